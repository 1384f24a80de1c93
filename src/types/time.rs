//! Points in time and spans, as plain numbers that are passed in.
//!
//! Owns the arithmetic on them. Does not read a clock: the caller passes the time in.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whole seconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This point plus `span`, cut to whole seconds; saturates at the end of time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_secs()).unwrap_or(i64::MAX)))
    }

    /// This point minus `span`, cut to whole seconds; saturates at the beginning of time.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_secs()).unwrap_or(i64::MAX)))
    }

    /// The span from `earlier` to this point; zero if it lies after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
