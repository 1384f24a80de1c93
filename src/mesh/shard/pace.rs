//! The pace at which a replica takes proxies over: as fast as it copes, and not at all while it
//! suffers.
//!
//! Owns what counts as suffering, and the rate: a step more after each interval that went well, half
//! after one that did not (Chiu and Jain, 1989). Reads no clock: times are the caller's, from any fixed
//! beginning.

use std::collections::VecDeque;
use std::time::Duration;

/// Moves a second at the beginning, and what is added after an interval that went well. Ten thousand
/// proxies have moved after a quarter of a minute.
const STEP: u64 = 100;

/// The fewest moves a second of a replica that does not suffer: it finds out that it copes again.
const MIN_RATE: u64 = 20;

/// The most moves a second. A handshake takes half a millisecond of a core, so this is half of one.
const MAX_RATE: u64 = 1000;

/// How often the rate changes, and when to ask again.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long an answer counts.
const RECENT: Duration = Duration::from_secs(2);

/// Answers that are remembered: a few rounds, and no work to look at.
const MAX_ANSWERS: usize = 64;

/// The time from admission to the first ACK that is too long, for a quarter of the recent streams. It
/// takes some milliseconds on an idle replica.
const SLOW: Duration = Duration::from_millis(250);

/// How late a task may run. A later one waits for a processor.
const LATE: Duration = Duration::from_millis(100);

/// Streams that are being admitted at once.
const MAX_ADMITTING: usize = 128;

/// How the proxies answered that connected recently. A single proxy that is slow or rejects decides
/// nothing.
#[derive(Debug, Default)]
pub struct Answers(VecDeque<Answer>);

#[derive(Debug, Clone, Copy)]
struct Answer {
    at: Duration,
    latency: Duration,
    rejected: bool,
}

impl Answers {
    /// Notes the first answer on a stream: how long after its admission it came, and whether it was a
    /// NACK.
    pub fn note(&mut self, at: Duration, latency: Duration, rejected: bool) {
        if self.0.len() >= MAX_ANSWERS {
            self.0.pop_front();
        }
        self.0.push_back(Answer { at, latency, rejected });
    }

    /// The load at `now`, with what the caller has measured itself.
    pub fn load(&self, now: Duration, late: Duration, admitting: usize) -> Load {
        let recent = self.0.iter().filter(|answer| now.saturating_sub(answer.at) <= RECENT);
        let (mut answers, mut slow, mut rejected) = (0, 0, 0);
        for answer in recent {
            answers += 1;
            slow += usize::from(answer.latency > SLOW);
            rejected += usize::from(answer.rejected);
        }
        Load { answers, slow, rejected, late, admitting }
    }
}

/// How a replica copes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// First answers of recent streams.
    pub answers: usize,
    /// Those of them that came late.
    pub slow: usize,
    /// Those of them that were NACKs.
    pub rejected: usize,
    /// How late the replica's own tasks run: its share of the processors is used up.
    pub late: Duration,
    /// Streams that are being admitted.
    pub admitting: usize,
}

impl Load {
    /// Whether the replica suffers. A quarter of the recent streams, and at least two, must be slow or
    /// rejected.
    pub fn suffers(&self) -> bool {
        let many = |count: usize| count >= 2 && count * 4 >= self.answers;
        self.late > LATE || self.admitting >= MAX_ADMITTING || many(self.slow) || many(self.rejected)
    }
}

/// How many proxies may move now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The number, at most what was asked for.
    pub granted: u64,
    /// When to ask for more.
    pub retry_after: Duration,
}

/// The pace of one replica, for all that hand proxies over to it.
#[derive(Debug)]
pub struct Pace {
    /// Moves a second.
    rate: u64,
    /// Thousandths of moves that may be granted.
    credit: u64,
    /// Up to when credit was given.
    credited: Duration,
    /// When the rate changed last.
    changed: Duration,
}

impl Pace {
    /// The pace of a replica that has taken nothing over yet.
    pub fn new(now: Duration) -> Self {
        Self { rate: STEP, credit: STEP * 250, credited: now, changed: now }
    }

    /// Grants at most `wanted` moves. In any time of t seconds at most 1,000 (t + 1/4) are granted, and
    /// none while the replica suffers.
    pub fn grant(&mut self, now: Duration, load: &Load, wanted: u64) -> Grant {
        let suffers = load.suffers();
        if now.saturating_sub(self.changed) >= INTERVAL {
            self.rate =
                if suffers { (self.rate / 2).max(MIN_RATE) } else { (self.rate + STEP).min(MAX_RATE) };
            self.changed = now;
        }
        // A millisecond is a thousandth of a move for each move a second.
        let passed = u64::try_from(now.saturating_sub(self.credited).as_millis()).unwrap_or(u64::MAX);
        self.credited += Duration::from_millis(passed);
        self.credit = self.credit.saturating_add(passed.saturating_mul(self.rate)).min(self.rate * 250);
        if suffers {
            self.credit = 0;
            return Grant { granted: 0, retry_after: INTERVAL };
        }
        let granted = wanted.min(self.credit / 1000);
        self.credit -= granted * 1000;
        Grant { granted, retry_after: INTERVAL / 5 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_replica_suffers_when_many_are_slow_or_reject_or_it_has_no_processor() {
        let load = |answers, slow, rejected| Load { answers, slow, rejected, ..Load::default() };
        for (load, expected, sentence) in [
            (Load::default(), false, "nothing is known against it"),
            (load(1, 1, 0), false, "one slow proxy decides nothing"),
            (load(1, 0, 1), false, "nor does one that rejects"),
            (load(8, 2, 0), true, "a quarter is slow"),
            (load(9, 2, 0), false, "less than a quarter is slow"),
            (load(8, 0, 2), true, "a quarter rejects"),
            (Load { late: millis(101), ..Load::default() }, true, "tasks run late"),
            (Load { admitting: MAX_ADMITTING, ..Load::default() }, true, "a crowd is being admitted"),
        ] {
            assert_eq!(load.suffers(), expected, "{sentence}");
        }
    }

    #[test]
    fn old_answers_are_forgotten_and_few_are_kept() {
        let mut answers = Answers::default();
        for _ in 0..1000 {
            answers.note(millis(0), millis(900), true);
        }
        let load = answers.load(millis(100), millis(0), 0);
        assert_eq!((load.answers, load.slow, load.rejected), (MAX_ANSWERS, MAX_ANSWERS, MAX_ANSWERS));
        assert_eq!(answers.load(millis(2001), millis(0), 0), Load::default());
    }

    #[test]
    fn the_rate_grows_by_steps_and_halves_when_it_hurts() {
        let bad = Load { late: millis(500), ..Load::default() };
        let mut pace = Pace::new(millis(0));
        for (at, load, rate) in [
            (100, Load::default(), 100),
            (250, Load::default(), 200),
            (300, Load::default(), 200),
            (500, Load::default(), 300),
            (750, bad, 150),
            (1000, bad, 75),
            (1250, bad, 37),
            (1500, bad, 20),
            (1750, bad, 20),
            (2000, Load::default(), 120),
        ] {
            pace.grant(millis(at), &load, 10);
            assert_eq!(pace.rate, rate, "at {at} ms");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_granted_in_pain_and_the_rate_is_bounded(
            asked in vec((0..400u64, any::<bool>(), 0..5000u64), 1..200),
        ) {
            let (mut now, mut total) = (millis(0), 0);
            let mut pace = Pace::new(now);
            for (passed, suffers, wanted) in asked {
                now += millis(passed);
                let load = Load { late: if suffers { millis(200) } else { millis(0) }, ..Load::default() };
                let grant = pace.grant(now, &load, wanted);
                assert!(grant.granted <= wanted && !(suffers && grant.granted > 0));
                assert!(grant.retry_after > Duration::ZERO);
                total += u128::from(grant.granted);
                assert!(total * 1000 <= u128::from(MAX_RATE) * (now.as_millis() + 250));
            }
            // It always resumes.
            for _ in 0..2 {
                now += INTERVAL;
                total = u128::from(pace.grant(now, &Load::default(), 10).granted);
            }
            assert!(total > 0);
        }
    }
}
