//! Since when the API server has answered without a gap.
//!
//! Owns how long a gap is in which the API server may have become another one, over another copy of etcd.
//! Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The longest time between two answers in which a connection may have been lost, and nothing else: an etcd
/// and an API server that are stopped, given another copy and started again take longer. The API server is
/// asked every second.
const GAP: Duration = Duration::from_millis(2500);

/// Since when the API server has answered without a gap, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Uptime(Option<Answers>);

/// Answers without a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answers {
    /// When the first one was asked for, or came, if that took long.
    since: Instant,
    /// When the last one was asked for.
    asked: Instant,
}

impl Uptime {
    /// Takes note of an answer that comes now, and of when it was asked for: the API server gave it at some
    /// time in between.
    pub(super) fn answered(&mut self, asked: Instant, now: Instant) {
        let short = |from: Instant| now.saturating_duration_since(from) <= GAP;
        let first = if short(asked) { asked } else { now };
        let before = self.0.filter(|before| short(before.asked));
        self.0 = Some(Answers { since: before.map_or(first, |before| before.since), asked });
    }

    /// Whether the API server, which answers now, is the one that it was then.
    pub(super) fn covers(&self, then: Instant, now: Instant) -> bool {
        self.0.is_some_and(|of| of.since <= then && now.saturating_duration_since(of.asked) <= GAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_is_the_same_while_it_answers_without_a_gap() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        for (answers, then, now, same) in [
            (&[][..], 0, 0, false),
            (&[(5, 10)], 5, 20, true),
            // Nothing is known of the time before the first answer was asked for.
            (&[(5, 10)], 4, 20, false),
            (&[(0, 10), (1000, 1010), (2000, 2010)], 10, 4500, true),
            (&[(0, 10), (1000, 1010), (2000, 2010)], 10, 4501, false),
            // One answer is missing, or two.
            (&[(0, 10), (2000, 2010)], 10, 2020, true),
            (&[(0, 10), (3000, 3010)], 10, 3020, false),
            (&[(0, 10), (3000, 3010)], 3000, 3020, true),
            // An answer that took long may have been of the beginning or of the end.
            (&[(0, 10), (1000, 2600)], 10, 2610, false),
            (&[(0, 2600)], 2599, 2600, false),
        ] {
            let mut uptime = Uptime::default();
            for (asked, came) in answers {
                uptime.answered(at(*asked), at(*came));
            }
            assert_eq!(uptime.covers(at(then), at(now)), same, "{answers:?}, then {then}, now {now}");
        }
    }
}
