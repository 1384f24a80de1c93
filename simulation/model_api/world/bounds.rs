//! The time that the source has, and how often it may ask.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_types::object_ref::Kind;
use tokio::time::Instant;

use super::World;
use super::actions::OBJECTS;
use crate::model_api::judge::{Rule, Violation};
use crate::model_api::server::{Asked, Server, Setup, Streaming};
use crate::model_api::tally::Tally;

/// What the source has for what changes while nothing is wrong.
const CALM: Duration = Duration::from_secs(5);

/// What it has after something was wrong: attempts of one kind may be half a minute apart.
const ROUGH: Duration = Duration::from_secs(35);

/// What it has to notice a return to an older state after the server answers again.
const RETURN: Duration = Duration::from_secs(3);

/// For how long attempts may be far apart after something was wrong.
const ROUGH_AFTER: Duration = Duration::from_secs(45);

/// What it has more where a watch is silent for ever.
const SILENCE: Duration = Duration::from_secs(110);

/// What it has more where a definition is gone: it may be missing by mistake.
const UNDEFINED: Duration = Duration::from_secs(45);

/// What it has more where lists that should be streamed do not end: that takes 20 s to be noticed, or a
/// minute while something changes.
const ENDLESS: Duration = Duration::from_secs(65);

/// From this delay of answers on, in milliseconds, two of them and the second between may be 2.5 s apart.
const SLOW: u64 = 700;

/// The most requests of a start that nothing disturbs, with streamed lists.
const START: u32 = 40;

/// How often versions are asked for.
const VERSIONS_PER_SECOND: u32 = 2;

/// The most requests in a minute that are no lists and no watches, beside those that have a reason: a look at
/// what is served costs some ten every half minute, and three every second may ask for a version.
const OTHERS_PER_MINUTE: u64 = 300;

/// What is known of the time that the source has.
#[derive(Debug)]
pub(super) struct Bounds {
    /// What answers and caches take.
    slow: Duration,
    endless: bool,
    rough_until: Option<Instant>,
    returned_at: Option<Instant>,
    undefined: bool,
    silent: bool,
}

impl Bounds {
    pub(super) fn new(setup: &Setup, namespaces: u16) -> Self {
        // A list in pages may have to begin once more.
        let pages = match setup.streaming {
            Streaming::Served => 0,
            _ => (u64::from(namespaces) * OBJECTS).div_ceil(setup.page.max(1) as u64),
        };
        let slow = Duration::from_millis((3 + 2 * pages) * longest(&setup.delays) + 2 * longest(&setup.lags));
        let endless = setup.streaming == Streaming::Ignored;
        Self { slow, endless, rough_until: None, returned_at: None, undefined: false, silent: false }
    }

    /// Something is wrong until then, after which attempts may be far apart.
    pub(super) fn rough(&mut self, until: Instant) {
        self.rough_until = self.rough_until.max(Some(until + ROUGH_AFTER));
    }

    /// A definition is gone for a while.
    pub(super) fn undefined(&mut self) {
        self.undefined = true;
    }

    /// A connection or a watch is silent for ever.
    pub(super) fn silent(&mut self) {
        self.silent = true;
    }

    /// The server goes back to an older state. A list that began before waits for what is no more.
    pub(super) fn returned(&mut self, listing: bool) {
        self.returned_at = Some(Instant::now());
        self.endless |= listing;
    }

    /// The source said what the server has. A watch that is silent for ever may hide the next change as well.
    pub(super) fn settled(&mut self) {
        self.undefined = false;
    }

    /// When the source must have noticed the return to an older state.
    pub(super) fn return_due(&self, healthy: Option<Instant>, began: Instant) -> Instant {
        let at = self.returned_at.unwrap_or(began).max(began);
        let at = healthy.map_or(at, |healthy| at.max(healthy));
        at + if self.rough_until.is_some_and(|until| until > at) { ROUGH } else { RETURN } + self.more()
    }

    /// Until when the source has time, if all is quiet from now on.
    pub(super) fn quiet_until(&self, now: Instant, began: Instant) -> Instant {
        let span = if self.rough_until.is_some_and(|until| until > now) { ROUGH } else { CALM };
        let begins = self.returned_at.map_or(began, |at| at.max(began));
        now.max(begins) + span + self.more()
    }

    fn more(&self) -> Duration {
        let mut more = self.slow;
        for (holds, span) in [(self.endless, ENDLESS), (self.undefined, UNDEFINED), (self.silent, SILENCE)] {
            if holds {
                more += span;
            }
        }
        more
    }
}

fn longest(of: &BTreeMap<Kind, u64>) -> u64 {
    of.values().copied().max().unwrap_or(0)
}

impl Server {
    /// Whatever the source asked before is forgotten.
    pub(super) fn begin_run(&self) {
        let mut state = self.state();
        state.tally = Tally::default();
        if let Some(healthy) = state.faults.healthy_at() {
            let wrong = healthy.saturating_duration_since(Instant::now());
            if wrong > Duration::ZERO {
                state.tally.excuse_for(wrong);
            }
        }
    }
}

impl World<'_> {
    /// Whether a start was as cheap as it must be, if nothing disturbed it.
    pub(super) fn check_start(&self) -> Result<(), Violation> {
        let state = self.server.state();
        let tally = &state.tally;
        if !tally.excuses.is_empty() || tally.looks_excused > 0 {
            return Ok(());
        }
        for kind in Kind::ALL {
            let lists = tally.of(*kind, Asked::List);
            if lists > 1 {
                return Err(Violation::new(Rule::Requests, format!("{lists} lists of {kind} at a start")));
            }
        }
        // A kind may take its time, and for so long versions are asked for.
        let most =
            START + VERSIONS_PER_SECOND * u32::try_from(self.judge.began().elapsed().as_secs()).unwrap_or(0);
        if self.story.setup.streaming == Streaming::Served && tally.all() > most {
            return Err(Violation::new(Rule::Requests, format!("{} requests at a start", tally.all())));
        }
        Ok(())
    }

    /// Whether every request had a reason.
    pub(super) fn check_requests(&self) -> Result<(), Violation> {
        let state = self.server.state();
        let tally = &state.tally;
        let minutes = self.judge.began().elapsed().as_secs() / 60 + 1;
        // A watch ends after four minutes, and without bookmarks it is opened again every 100 s: by a list if
        // answers are too slow to show that the API server was there all the time.
        let setup = &self.story.setup;
        let slow = longest(&setup.delays) + longest(&setup.lags) >= SLOW;
        let ends = if setup.bookmarks { minutes / 4 } else { minutes };
        let silences = if slow { u32::try_from(ends).unwrap_or(u32::MAX) } else { 0 };
        let several = |what: String| Err(Violation::new(Rule::Requests, what));
        for kind in Kind::ALL {
            // Without the namespaces, no list of another kind is of use.
            let of = |kind: &Kind| tally.excuses.get(kind).copied().unwrap_or_default();
            let excuses = of(kind).max(of(&Kind::Namespace));
            let (lists, watches) = (tally.of(*kind, Asked::List), tally.of(*kind, Asked::Watch));
            if lists > 1 + 2 * excuses + silences {
                return several(format!("{lists} lists of {kind} with {excuses} reasons for more"));
            }
            if u64::from(watches) > 2 * (1 + u64::from(excuses) + minutes) {
                return several(format!("{watches} watches of {kind} with {excuses} reasons for more"));
            }
        }
        let probes: u32 = Kind::ALL.iter().map(|kind| tally.of(*kind, Asked::Probe)).sum();
        let others = u64::from(tally.others + probes);
        let most = 60 + OTHERS_PER_MINUTE * minutes + 400 * u64::from(tally.looks_excused);
        if others > most {
            return several(format!("{others} other requests, and {most} are the most"));
        }
        Ok(())
    }
}
