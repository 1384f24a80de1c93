//! What may be wrong with the server.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use smc_types::object_ref::Kind;
use tokio::time::Instant;

/// A definition that is back is seen when the server is asked again what it serves, every half minute.
const LATELY: Duration = Duration::from_secs(35);

/// What may be wrong for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Connections are refused.
    Away,
    /// Connections are accepted, and nothing is said.
    Frozen,
    /// Requests are accepted, and not answered; open watches are silent.
    Hang,
    /// Custom resources are not served yet, as after a start.
    Unknown,
    /// Lists and watches of a kind are refused for lack of rights.
    Forbidden(Kind),
    /// A kind's definition is gone.
    Gone(Kind),
    /// What is read of a kind is behind.
    Lag(Kind),
    /// Requests for a kind are refused with a status; `None` is what the server serves.
    Refusing(Option<Kind>),
}

/// A refusal of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The seconds for which the server asks to be left alone.
    pub retry_after: Option<u8>,
}

/// What happens to the open watches of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// They end in order.
    Close,
    /// They end in the middle of an object; abruptly, or as if in order.
    Cut {
        /// Whether the connection breaks.
        abruptly: bool,
    },
    /// An event says that they cannot go on.
    Error(u16),
    /// The latest events come again.
    Repeat(u8),
    /// They say nothing for a while, or for ever.
    Silence {
        /// For how long.
        span: Option<Duration>,
        /// Whether they end then.
        ends: bool,
    },
}

/// What is wrong now.
#[derive(Debug, Default)]
pub struct Faults {
    until: BTreeMap<Fault, Instant>,
    /// How far behind a kind is.
    lags: BTreeMap<Kind, Duration>,
    /// The refusal that lasts.
    refusing: BTreeMap<Option<Kind>, Refusal>,
    /// Refusals of the next requests.
    next: BTreeMap<Option<Kind>, VecDeque<Refusal>>,
    /// When one of them came last.
    refused: Option<Instant>,
    /// When anything was last wrong that is over.
    last: Option<Instant>,
}

impl Faults {
    /// Something is wrong for a while.
    pub fn begin(&mut self, fault: Fault, until: Instant) {
        let ends = self.until.entry(fault).or_insert(until);
        *ends = until.max(*ends);
    }

    /// When something ends that is wrong at `now`.
    pub fn ends(&self, fault: Fault, now: Instant) -> Option<Instant> {
        self.until.get(&fault).copied().filter(|until| *until > now)
    }

    /// Whether something is wrong at `now`.
    pub fn holds(&self, fault: Fault, now: Instant) -> bool {
        self.ends(fault, now).is_some()
    }

    /// Whether something is wrong at `now`, or was a moment ago, for which a source may still take it.
    pub fn held_lately(&self, fault: Fault, now: Instant) -> bool {
        self.until.get(&fault).is_some_and(|until| *until + LATELY > now)
    }

    /// A kind is behind for a while.
    pub fn lag(&mut self, kind: Kind, by: Duration, until: Instant) {
        self.lags.insert(kind, by);
        self.begin(Fault::Lag(kind), until);
    }

    /// How far behind a kind is, beside what is usual.
    pub fn lags(&self, kind: Kind, now: Instant) -> Option<Duration> {
        self.holds(Fault::Lag(kind), now).then(|| self.lags.get(&kind).copied().unwrap_or_default())
    }

    /// Requests of a kind are refused for a while.
    pub fn refuse(&mut self, kind: Option<Kind>, refusal: Refusal, until: Instant) {
        self.refusing.insert(kind, refusal);
        self.begin(Fault::Refusing(kind), until);
    }

    /// The next requests of a kind are refused.
    pub fn refuse_next(&mut self, kind: Option<Kind>, refusal: Refusal, times: u8, now: Instant) {
        let next = self.next.entry(kind).or_default();
        next.extend(std::iter::repeat_n(refusal, times.into()));
        self.note(now);
    }

    /// The refusal of a request that came now.
    pub fn refusal(&mut self, kind: Option<Kind>, now: Instant) -> Option<Refusal> {
        if self.holds(Fault::Refusing(kind), now) {
            return self.refusing.get(&kind).copied();
        }
        let refusal = self.next.get_mut(&kind)?.pop_front()?;
        self.note(now);
        self.refused = Some(now);
        Some(refusal)
    }

    /// When one of the next requests was refused last.
    pub fn refused(&self) -> Option<Instant> {
        self.refused
    }

    /// Takes note that something was wrong.
    pub fn note(&mut self, now: Instant) {
        self.last = self.last.max(Some(now));
    }

    /// When nothing is wrong any more; the past, if nothing is wrong now. Refusals of next requests end when
    /// they were asked.
    pub fn healthy_at(&self) -> Option<Instant> {
        self.until.values().copied().max().max(self.last)
    }

    /// Everything that is wrong ends.
    pub fn end_all(&mut self, now: Instant) {
        self.until.values_mut().for_each(|until| *until = now.min(*until));
    }

    /// Forgets refusals of requests that were not made.
    pub fn forget_next(&mut self) {
        self.next.clear();
    }

    /// The definitions are as they were.
    pub fn restore_definitions(&mut self, now: Instant) {
        for (fault, until) in &mut self.until {
            if matches!(fault, Fault::Gone(_)) {
                *until = (*until).min(now);
            }
        }
    }
}
