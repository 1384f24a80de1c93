//! Why reading from the API server was interrupted, and what follows from it.
//!
//! Owns the decisions: whether to go on from the last known version or to list again, when to try again, and
//! what is reported. Pure.

use std::fmt;
use std::time::Duration;

use smc_host::backoff::Backoff;
use smc_types::text::truncated;

use super::message::Status;
use crate::api::Unreachable;

/// The waits between attempts of one kind. Half a minute at most: an API server that is back is asked by some
/// dozen kinds of every replica within that time.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));

/// The longest wait that an API server may ask for. It asks for seconds; more would be a mistake of a proxy.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);

/// The longest wait between attempts while the API server answers and asks to be left alone for a while: it
/// says itself what it can bear.
const MAX_WAIT_IF_ASKED: Duration = Duration::from_secs(5);

/// How long reading may fail before that is reported. Restarts of an API server, and connections that it
/// closes, are common.
pub(super) const REPORTED_AFTER: Duration = Duration::from_secs(5);

/// Reading was interrupted.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection could not be made, or broke.
    Unreachable(Unreachable),
    /// There was no answer in time.
    NoAnswer,
    /// A streaming list did not end: the server does not know such lists, or hangs.
    Endless,
    /// The API server, or what is between, ended an answer before its end.
    CutShort,
    /// The API server refused.
    Refused {
        /// How it refused.
        status: Status,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The answer cannot be read.
    Malformed(String),
    /// A page of a list is longer than what is read.
    TooLarge {
        /// The number of objects that it was asked for.
        limit: usize,
    },
}

/// Why a kind cannot be read, as problems say it. Says the same while the reason stays the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The API server cannot be reached or does not answer.
    Unreachable,
    /// The replica may not read it.
    Forbidden,
    /// The API server does not accept the replica's credentials.
    Unauthorized,
    /// The API server fails, for this reason.
    Refused(String),
    /// What it sends cannot be read.
    Malformed,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("cannot be reached, or does not answer"),
            Self::Forbidden => f.write_str(
                "refuses to list and watch for lack of permission; `smc upgrade` gives the controllers' roles back",
            ),
            Self::Unauthorized => f.write_str("does not accept the controller's credentials"),
            Self::Refused(reason) => write!(f, "fails: {reason}"),
            Self::Malformed => f.write_str("sends what cannot be read"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "{}", smc_types::causes::causes(error)),
            Self::NoAnswer => f.write_str("no answer in time"),
            Self::Endless => f.write_str("the list did not end in time"),
            Self::CutShort => f.write_str("the answer ended before its end"),
            Self::Refused { status: Status { code, reason, message }, .. } => {
                write!(f, "status {code} {reason}: {}", truncated(message, 300))
            }
            Self::Malformed(error) => write!(f, "unreadable: {error}"),
            Self::TooLarge { limit } => write!(f, "a page of at most {limit} objects is too large"),
        }
    }
}

impl Failure {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(status.code),
            _ => None,
        }
    }

    /// Whether a watch may go on from the version that it has come to, if the API server is still the same: a
    /// connection was lost, or the API server asks to be left alone for a while. After anything else,
    /// something may be missing.
    pub(super) fn keeps_version(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoAnswer | Self::CutShort) || self.code() == Some(429)
    }

    /// Whether the API server did not answer.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoAnswer | Self::Endless | Self::CutShort)
    }

    /// Whether the API server does not know the resource.
    pub(super) fn is_missing(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether a streaming list was refused as such, by an older server, which refuses that of every kind.
    pub(super) fn refuses_streaming(&self) -> bool {
        matches!(self, Self::Endless) || matches!(self.code(), Some(400 | 422))
    }

    /// Whether the list of this kind is better asked for in pages: a server that fails to stream it (as
    /// over an older etcd) may still page it.
    pub(super) fn fails_streaming(&self) -> bool {
        self.refuses_streaming() || self.code() == Some(500)
    }

    /// What is reported of it; `None` if it is nothing to report, however often it happens.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        match self {
            Self::Unreachable(_) | Self::NoAnswer | Self::Endless | Self::CutShort => {
                Some(Trouble::Unreachable)
            }
            Self::Malformed(_) | Self::TooLarge { .. } => Some(Trouble::Malformed),
            Self::Refused { status, .. } => match status.code {
                401 => Some(Trouble::Unauthorized),
                403 => Some(Trouble::Forbidden),
                // Whether the kind is missing is found out by another way.
                404 | 410 => None,
                code => Some(Trouble::Refused(format!("status {code}, {}", truncated(&status.message, 200)))),
            },
        }
    }

    /// Whether it is reported at once, since no other attempt will do.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// How long to wait after failed attempt number `attempt`, the first being 0, by any number `random`.
    pub(super) fn wait(&self, attempt: u32, random: u64) -> Duration {
        let wait = BACKOFF.wait_with_jitter(attempt, random);
        match self {
            Self::Refused { retry_after: Some(asked), .. } => {
                // Those that were asked to wait for the same time do not come back together.
                (*asked).min(MAX_RETRY_AFTER) + wait.min(MAX_WAIT_IF_ASKED)
            }
            _ => wait,
        }
    }
}

/// How long to wait before a watch that ended in order is opened again: not at all, unless it ended `attempt`
/// times without having said anything.
pub(super) fn reopen(attempt: u32, random: u64) -> Duration {
    match attempt.checked_sub(1) {
        None => Duration::ZERO,
        Some(attempt) => BACKOFF.wait_with_jitter(attempt, random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Failure {
        let status = Status { code, reason: String::new(), message: message.to_owned() };
        Failure::Refused { status, retry_after: None }
    }

    #[test]
    fn every_failure_says_what_follows_from_it() {
        let broken = || Failure::Unreachable(Unreachable("broken".into()));
        let too_large = "Too large resource version: 9, current: 5";
        for (failure, keeps_version, trouble) in [
            (broken(), true, Some(Trouble::Unreachable)),
            (Failure::NoAnswer, true, Some(Trouble::Unreachable)),
            (Failure::Endless, false, Some(Trouble::Unreachable)),
            (Failure::CutShort, true, Some(Trouble::Unreachable)),
            (Failure::Malformed("x".to_owned()), false, Some(Trouble::Malformed)),
            (Failure::TooLarge { limit: 1 }, false, Some(Trouble::Malformed)),
            (refused(400, "a"), false, Some(Trouble::Refused("status 400, a".to_owned()))),
            (refused(401, ""), false, Some(Trouble::Unauthorized)),
            (refused(403, ""), false, Some(Trouble::Forbidden)),
            (refused(404, ""), false, None),
            (refused(410, ""), false, None),
            (refused(429, "slow"), true, Some(Trouble::Refused("status 429, slow".to_owned()))),
            (refused(500, "a"), false, Some(Trouble::Refused("status 500, a".to_owned()))),
            (refused(503, "a"), false, Some(Trouble::Refused("status 503, a".to_owned()))),
            (refused(504, "a"), false, Some(Trouble::Refused("status 504, a".to_owned()))),
            (refused(504, too_large), false, Some(Trouble::Refused(format!("status 504, {too_large}")))),
        ] {
            assert_eq!(failure.keeps_version(), keeps_version, "{failure}");
            assert_eq!(failure.trouble(), trouble, "{failure}");
        }
    }

    #[test]
    fn a_server_that_asks_to_be_left_alone_is_left_alone() {
        let asking = |seconds| Failure::Refused {
            status: Status { code: 429, ..Status::default() },
            retry_after: Some(Duration::from_secs(seconds)),
        };
        for random in [0, 1, u64::MAX] {
            assert!(asking(7).wait(0, random) >= Duration::from_secs(7));
            assert!(asking(1_000_000).wait(9, random) <= MAX_RETRY_AFTER + MAX_WAIT_IF_ASKED);
            assert!(asking(1).wait(9, random) <= Duration::from_secs(6), "it says itself what it can bear");
            assert!(Failure::NoAnswer.wait(9, random) >= Duration::from_secs(15));
            assert!(Failure::NoAnswer.wait(0, random) < Duration::from_secs(1));
            assert_eq!(reopen(0, random), Duration::ZERO);
            assert!(reopen(1, random) > Duration::ZERO);
        }
    }
}
