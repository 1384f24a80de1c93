//! What the source asked the server for, and what excuses it for asking more often.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_types::object_ref::Kind;
use tokio::time::Instant;

/// For how long a list may be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// The first page of a list, or a list by a watch.
    List,
    /// A further page.
    Page,
    /// A list of one object at most, which only shows the version.
    Probe,
    /// A watch from a version on.
    Watch,
}

/// The requests since the source began.
#[derive(Debug, Default)]
pub struct Tally {
    /// Those for objects.
    pub asked: BTreeMap<(Kind, Asked), u32>,
    /// All others.
    pub others: u32,
    /// How often the server gave a reason to list a kind once more.
    pub excuses: BTreeMap<Kind, u32>,
    /// How often it gave a reason to look once more at what it serves.
    pub looks_excused: u32,
    /// The kinds of which a whole list was sent.
    pub listed: BTreeMap<Kind, Instant>,
    /// The kinds of which a request was refused for lack of rights, and since when.
    pub forbidden: BTreeMap<Kind, Instant>,
}

impl Tally {
    /// Counts a request for objects.
    pub fn count(&mut self, kind: Kind, asked: Asked) {
        *self.asked.entry((kind, asked)).or_default() += 1;
    }

    /// How often objects of a kind were asked for so.
    pub fn of(&self, kind: Kind, asked: Asked) -> u32 {
        self.asked.get(&(kind, asked)).copied().unwrap_or_default()
    }

    /// All requests.
    pub fn all(&self) -> u32 {
        self.asked.values().sum::<u32>() + self.others
    }

    /// Connections stand still until then: what was sent just before may not arrive earlier.
    pub(super) fn delay_lists(&mut self, now: Instant, until: Instant) {
        for listed in self.listed.values_mut().filter(|listed| **listed + ON_ITS_WAY > now) {
            *listed = until;
        }
    }

    /// The server gave a reason to list a kind once more.
    pub fn excuse(&mut self, kind: Kind) {
        *self.excuses.entry(kind).or_default() += 1;
    }

    /// The server gave a reason to list every kind once more.
    pub fn excuse_all(&mut self) {
        for kind in Kind::ALL {
            self.excuse(*kind);
        }
    }

    /// Something is wrong for a while: requests may fail again and again.
    pub fn excuse_for(&mut self, span: Duration) {
        for _ in 0..=span.as_secs() / 10 {
            self.excuse_all();
        }
        self.looks_excused += 1;
    }
}
