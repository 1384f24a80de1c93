//! How a subcommand ends.
//!
//! Owns what every subcommand returns. The exit codes are those of [`super`].

use std::error::Error;

use smc_types::causes::causes;

/// The controller refused the call or failed. The status is no `#[source]`, since its text repeats the
/// message.
#[derive(Debug, thiserror::Error)]
#[error("the controller says: {}", .0.message())]
pub(super) struct Refused(pub(super) tonic::Status);

/// The result of a subcommand.
pub(super) type Outcome = Result<Verdict, Box<dyn std::error::Error + Send + Sync>>;

/// The result of a subcommand that worked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It worked.
    Ok,
    /// It worked, and found what has to be mended.
    Findings,
}

/// An error and its causes for a person, on one line. What the API server says is its message alone: kube
/// prints the whole status beside it.
pub(super) fn printed(error: &(dyn Error + 'static)) -> String {
    let mut text = causes(error);
    let mut next = Some(error);
    while let Some(error) = next {
        let of_kube = error.downcast_ref::<kube::Error>();
        let of_kube = of_kube.or_else(|| error.downcast_ref::<Box<kube::Error>>().map(Box::as_ref));
        if let Some(kube::Error::Api(status)) = of_kube
            && !status.message.is_empty()
            && let Some(at) = text.find(&error.to_string().replace(['\n', '\r'], " "))
        {
            text.truncate(at);
            text.push_str(&status.message.replace(['\n', '\r'], " "));
            break;
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the namespace bookstor")]
    struct Failed(#[source] Box<kube::Error>);

    #[test]
    fn the_api_server_is_quoted_in_its_own_words() {
        let status = Status::failure("namespaces \"bookstor\" not found", "NotFound").with_code(404);
        let expected = "namespaces \"bookstor\" not found";
        assert_eq!(printed(&kube::Error::Api(Box::new(status.clone()))), expected);
        let failed = Failed(Box::new(kube::Error::Api(Box::new(status))));
        assert_eq!(printed(&failed), format!("cannot read the namespace bookstor: {expected}"));
        let other = Failed(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded));
        assert_eq!(printed(&other), causes(&other));
    }

    #[test]
    fn a_refusal_of_the_controller_is_printed_once() {
        let refused = Refused(tonic::Status::not_found("there is no Pod a/b"));
        assert_eq!(causes(&refused), "the controller says: there is no Pod a/b");
    }
}
