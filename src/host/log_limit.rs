//! One log line for many events of one kind.
//!
//! Owns when a line is due: what strangers do must not fill the disk or hide other lines.

use std::sync::Mutex;
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
}
