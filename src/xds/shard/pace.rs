//! The pace at which a replica takes proxies over: as fast as it copes, and not at all while it
//! suffers.
//!
//! Owns what counts as suffering, how long a replica is open before any proxy moves there, and the rate: a
//! step more after each interval that went well, half after one that did not (Chiu and Jain, 1989). Reads
//! no clock: times are the caller's, from any fixed beginning.

use std::collections::VecDeque;
use std::time::Duration;

use super::until_retried;

/// Moves a second at the beginning.
const FIRST_RATE: u64 = 100;

/// Moves a second that are added after an interval that went well. So few that the next answers show what
/// they did before more are added; ten thousand proxies have moved after a quarter of a minute all the
/// same.
const STEP: u64 = 50;

/// The fewest moves a second, also while answers are slow: a replica finds out that it copes again.
const MIN_RATE: u64 = 20;

/// The most moves a second. A handshake takes half a millisecond of a core, so this is half of one.
const MAX_RATE: u64 = 1000;

/// How often the rate changes, and when to ask again.
const INTERVAL: Duration = Duration::from_millis(250);

/// Milliseconds of moves that may be granted together. They connect together and wait for each other.
const BURST: u64 = 50;

/// How long an answer counts.
const RECENT: Duration = Duration::from_secs(2);

/// Answers that are remembered: a few rounds, and no work to look at.
const MAX_ANSWERS: usize = 64;

/// The time from admission to the first ACK that is too long, for a quarter of the recent streams. It
/// takes some milliseconds on an idle replica, and a round trip. Where many sidecars are farther away than
/// this, moves go at the lowest rate.
const SLOW: Duration = Duration::from_millis(100);

/// How late a task may run. A later one waits for a processor.
const LATE: Duration = Duration::from_millis(50);

/// How long a proxy that was granted takes to come, at most. What is granted counts as taken until nothing
/// has been granted for so long, and thus twice once it has come: where there is hardly room, moves are
/// slower.
const COMING: Duration = Duration::from_secs(5);

/// Proxies that are being admitted at once, or wait for their handshake.
const MAX_ADMITTING: usize = 16;

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
    pub fn load(&self, now: Duration, measured: Load) -> Load {
        let recent = self.0.iter().filter(|answer| now.saturating_sub(answer.at) <= RECENT);
        let (mut answers, mut slow, mut rejected) = (0, 0, 0);
        for answer in recent {
            answers += 1;
            slow += usize::from(answer.latency > SLOW);
            rejected += usize::from(answer.rejected);
        }
        Load { answers, slow, rejected, ..measured }
    }
}

/// How long it takes until all proxies try a replica again that has been open for so long, in a group of this
/// size. Until then, those that failed to connect before would come back to the replica that hands them over.
pub fn settling(open_for: Duration, replicas: usize) -> Duration {
    until_retried(replicas).saturating_sub(open_for)
}

/// How a replica copes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// How long it takes until all proxies try the replica again: see [`settling`].
    pub settling: Duration,
    /// First answers of recent streams.
    pub answers: usize,
    /// Those of them that came late.
    pub slow: usize,
    /// Those of them that were NACKs.
    pub rejected: usize,
    /// How late the replica's own tasks run: its share of the processors is used up.
    pub late: Duration,
    /// Proxies that are being admitted, or wait for their handshake.
    pub admitting: usize,
    /// How many more proxies the replica may serve; `None` means any number.
    pub room: Option<u64>,
}

impl Load {
    /// Whether the replica suffers. A quarter of the recent streams, and at least two, must be slow or
    /// rejected.
    pub fn suffers(&self) -> bool {
        self.takes_none() || self.many(self.slow)
    }

    /// Whether the replica suffers so much that nothing moves there.
    fn takes_none(&self) -> bool {
        self.late > LATE || self.admitting >= MAX_ADMITTING || self.many(self.rejected)
    }

    fn many(&self, count: usize) -> bool {
        count >= 2 && count * 4 >= self.answers
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
    /// Moves that were granted one soon after the other, whose proxies may not have come yet.
    coming: u64,
    /// When the last of them was granted.
    granted_at: Duration,
}

impl Pace {
    /// The pace of a replica that has taken nothing over yet.
    pub fn new(now: Duration) -> Self {
        Self {
            rate: FIRST_RATE,
            credit: FIRST_RATE * BURST,
            credited: now,
            changed: now,
            coming: 0,
            granted_at: now,
        }
    }

    /// Grants at most `wanted` moves. In any time of t seconds at most 1,000 (t + 1/20) are granted, no more
    /// than there is room for, and none while the replica has no processor to spare, admits a crowd, is
    /// rejected, or has just opened.
    pub fn grant(&mut self, now: Duration, load: &Load, wanted: u64) -> Grant {
        if !load.settling.is_zero() {
            return Grant { granted: 0, retry_after: load.settling };
        }
        let suffers = load.suffers();
        if now.saturating_sub(self.changed) >= INTERVAL {
            self.rate =
                if suffers { (self.rate / 2).max(MIN_RATE) } else { (self.rate + STEP).min(MAX_RATE) };
            self.changed = now;
        }
        // A millisecond is a thousandth of a move for each move a second.
        let passed = u64::try_from(now.saturating_sub(self.credited).as_millis()).unwrap_or(u64::MAX);
        self.credited += Duration::from_millis(passed);
        self.credit = self.credit.saturating_add(passed.saturating_mul(self.rate)).min(self.rate * BURST);
        if load.takes_none() {
            self.credit = 0;
            return Grant { granted: 0, retry_after: INTERVAL };
        }
        if now.saturating_sub(self.granted_at) >= COMING {
            self.coming = 0;
        }
        let room = load.room.map_or(u64::MAX, |room| room.saturating_sub(self.coming));
        let granted = wanted.min(self.credit / 1000).min(room);
        self.credit -= granted * 1000;
        if granted > 0 {
            self.coming = self.coming.saturating_add(granted);
            self.granted_at = now;
        }
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
        let load = answers.load(millis(100), Load::default());
        assert_eq!((load.answers, load.slow, load.rejected), (MAX_ANSWERS, MAX_ANSWERS, MAX_ANSWERS));
        assert_eq!(answers.load(millis(2001), Load::default()), Load::default());
    }

    #[test]
    fn a_replica_that_has_just_opened_takes_nothing_over() {
        let mut pace = Pace::new(millis(0));
        let load = |open_for| Load { settling: settling(millis(open_for), 3), ..Load::default() };
        let none = |retry_after| Grant { granted: 0, retry_after: millis(retry_after) };
        assert_eq!(pace.grant(millis(10), &load(0), 5), none(3500));
        assert_eq!(pace.grant(millis(3010), &load(3000), 5), none(500));
        assert_eq!(pace.grant(millis(3510), &load(3500), 5).granted, 5);
    }

    #[test]
    fn the_rate_grows_by_steps_and_halves_when_it_hurts() {
        let bad = Load { late: millis(500), ..Load::default() };
        let mut pace = Pace::new(millis(0));
        for (at, load, rate) in [
            (100, Load::default(), 100),
            (250, Load::default(), 150),
            (300, Load::default(), 150),
            (500, Load::default(), 200),
            (750, bad, 100),
            (1000, bad, 50),
            (1250, bad, 25),
            (1500, bad, 20),
            (1750, bad, 20),
            (2000, Load::default(), 70),
        ] {
            pace.grant(millis(at), &load, 10);
            assert_eq!(pace.rate, rate, "at {at} ms");
        }
    }

    #[test]
    fn no_more_move_than_there_is_room_for() {
        let mut pace = Pace::new(millis(0));
        let room = |room| Load { room: Some(room), ..Load::default() };
        for (at, left, wanted, granted, sentence) in [
            (1000, 0, 5, 0, "there is none"),
            (2000, 3, 5, 3, "as many as there is room for"),
            (2250, 3, 5, 0, "they have not come yet"),
            (2500, 1, 5, 0, "two of them have come"),
            (7000, 4, 5, 4, "all had the time to come"),
            (7250, 9, 2, 2, "less than there is room for"),
            (7500, 9, 9, 3, "six are coming"),
        ] {
            assert_eq!(pace.grant(millis(at), &room(left), wanted).granted, granted, "{at}: {sentence}");
        }
    }

    #[test]
    fn slow_answers_leave_the_lowest_rate() {
        let slow = Load { answers: 4, slow: 4, ..Load::default() };
        let mut pace = Pace::new(millis(0));
        let granted = (1..=80).map(|n| pace.grant(millis(n * 250), &slow, 100).granted);
        assert_eq!(granted.skip(40).sum::<u64>(), 40);
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
                assert!(total * 1000 <= u128::from(MAX_RATE) * (now.as_millis() + u128::from(BURST)));
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
