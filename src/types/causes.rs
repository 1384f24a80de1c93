//! Error chains as text.
//!
//! Owns the one-line form of an error and its causes, for logs, statuses and command lines.

use std::error::Error;

/// The error and its causes, outermost first, on one line.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat their source in their own text.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        #[source]
        below: Option<Box<Layer>>,
    }

    #[test]
    fn causes_follow_on_one_line_and_are_not_repeated() {
        let inner = Layer { text: "no such file", below: None };
        let same = Layer { text: "cannot read: no such file", below: Some(Box::new(inner)) };
        let outer = Layer { text: "starting\nthe server", below: Some(Box::new(same)) };
        assert_eq!(causes(&outer), "starting the server: cannot read: no such file");
    }
}
