//! One log line for many events of one kind.
//!
//! Owns when a line is due: what strangers do must not fill the disk or hide other lines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The time between two lines of one kind.
pub const PAUSE: Duration = Duration::from_secs(10);

/// The events of one kind. The first is logged at once; of those within [`PAUSE`] after a line, the next line
/// has the number.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    quiet_until: Option<Instant>,
    unreported: u64,
}

impl LogLimit {
    /// Notes an event. If a line is due: how many events it stands for, this one included.
    pub fn note(&self) -> Option<u64> {
        let (now, mut state) = (Instant::now(), lock(&self.0));
        state.unreported += 1;
        if state.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        state.quiet_until = Some(now + PAUSE);
        Some(std::mem::take(&mut state.unreported))
    }
}

/// The events of several kinds, which are limited apart: many of one kind hide none of another. The names of
/// the kinds are constants, so that there are few.
#[derive(Debug, Default)]
pub struct LogLimits(Mutex<BTreeMap<&'static str, Arc<LogLimit>>>);

impl LogLimits {
    /// As [`LogLimit::note`], for an event of this kind.
    pub fn note(&self, kind: &'static str) -> Option<u64> {
        Arc::clone(lock(&self.0).entry(kind).or_default()).note()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_event_is_logged_at_once_and_many_have_one_line() {
        let limit = LogLimit::default();
        assert_eq!(limit.note(), Some(1));
        for _ in 0..100 {
            tokio::time::advance(PAUSE / 200).await;
            assert_eq!(limit.note(), None);
        }
        tokio::time::advance(PAUSE / 2).await;
        assert_eq!(limit.note(), Some(101));
        tokio::time::advance(PAUSE * 100).await;
        assert_eq!(limit.note(), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn many_events_of_one_kind_hide_none_of_another() {
        let limits = LogLimits::default();
        let counts = ["released", "released", "unknown", "released", "unknown"].map(|kind| limits.note(kind));
        assert_eq!(counts, [Some(1), None, Some(1), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!(["released", "unknown"].map(|kind| limits.note(kind)), [Some(3), Some(2)]);
    }
}
