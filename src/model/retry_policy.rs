//! Which failed requests are sent again because a person asked for it.
//!
//! Owns the conditions, by the names that Envoy gave them, and the bounds. What is sent again in any case,
//! because it was certainly not processed, is no part of it.

use std::collections::BTreeSet;
use std::time::Duration;

/// The most that [`RetryPolicy::retries`] may be. Each hop of a call multiplies, and a service that has
/// failed ten times within a second is better left alone.
pub const MAX_RETRIES: u32 = 10;

/// When a request is sent again, and how.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryPolicy {
    /// What has to have happened: any of these.
    pub conditions: BTreeSet<RetryCondition>,
    /// How often, at most; [`MAX_RETRIES`] is the most. Zero means never, whatever happened; `None` means as
    /// often as what is sent again in any case, or once.
    pub retries: Option<u32>,
    /// How long one try may take; `None` means without end.
    pub per_try_timeout: Option<Duration>,
    /// The base of the pauses between tries, which grow and are drawn; `None` means the sidecar's own.
    pub backoff: Option<Duration>,
}

/// Declares [`RetryCondition`] with the names of its values, so that none is without.
macro_rules! conditions {
    ($($(#[$doc:meta])* $condition:ident = $name:literal,)*) => {
        /// What has to have happened to a request for it to be sent again.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RetryCondition {
            $($(#[$doc])* $condition,)*
        }

        impl RetryCondition {
            /// All conditions.
            pub const ALL: &[Self] = &[$(Self::$condition,)*];

            /// Its name in `retryOn`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$condition => $name,)*
                }
            }
        }
    };
}

conditions! {
    /// An answer of 500 to 599, or none.
    ServerError = "5xx",
    /// An answer of 502, 503 or 504, or none.
    GatewayError = "gateway-error",
    /// No answer: the connection broke off, or the time of a try is over.
    Reset = "reset",
    /// The connection broke off before the request was written.
    ResetBeforeRequest = "reset-before-request",
    /// No connection came to be.
    ConnectFailure = "connect-failure",
    /// An answer that a limit of rates gave.
    RateLimited = "envoy-ratelimited",
    /// An answer of 409.
    RetriableClientError = "retriable-4xx",
    /// The stream was refused before any processing.
    RefusedStream = "refused-stream",
    /// The status of gRPC.
    Cancelled = "cancelled",
    /// The status of gRPC.
    DeadlineExceeded = "deadline-exceeded",
    /// The status of gRPC.
    Internal = "internal",
    /// The status of gRPC.
    ResourceExhausted = "resource-exhausted",
    /// The status of gRPC.
    Unavailable = "unavailable",
}

impl RetryCondition {
    /// The condition of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|condition| condition.as_str() == name)
    }
}
