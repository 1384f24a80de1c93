//! How a subcommand ends.
//!
//! Owns what every subcommand returns. The exit codes are those of [`super`].

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

#[cfg(test)]
mod tests {
    use smc_types::causes::causes;

    use super::*;

    #[test]
    fn a_refusal_of_the_controller_is_printed_once() {
        let refused = Refused(tonic::Status::not_found("there is no Pod a/b"));
        assert_eq!(causes(&refused), "the controller says: there is no Pod a/b");
    }
}
