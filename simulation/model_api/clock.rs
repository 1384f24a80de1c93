//! The time of day in a story: a fixed moment, and tokio's time since.

use std::fmt::Write as _;
use std::time::Duration;

use smc_host::env::Clock;
use smc_types::time::Timestamp;
use tokio::time::Instant;

/// 1994-11-06, 00:00:00 UTC, a Sunday.
const START: Timestamp = Timestamp(784_080_000);

/// A clock that began with the story, and shows tokio's time.
#[derive(Debug, Clone, Copy)]
pub struct StoryClock(Instant);

impl StoryClock {
    /// A clock that begins now.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// The time since the story began.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The header `Date` (RFC 9110, section 5.6.7). A story is shorter than a day.
    pub fn date(&self) -> String {
        let seconds = self.elapsed().as_secs();
        let mut text = String::from("Sun, 06 Nov 1994 ");
        // Writing to a string does not fail.
        let _ = write!(text, "{:02}:{:02}:{:02} GMT", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        text
    }
}

impl Clock for StoryClock {
    fn now(&self) -> Timestamp {
        START.plus(self.elapsed())
    }
}
