//! Whether the API server went back to an older state, and what follows.
//!
//! Owns what follows from the signs, which are lists and the API server's own word: everything is
//! listed again. An etcd that is restored from a copy begins to count at the copy's version. A watch
//! that goes on from a later version is silent until that version is there again, and then misses what
//! came before it: no informer notices (kubernetes#107457).

use smc_types::object_ref::Kind;
use smc_xds::revision::Versions;

use super::{Store, Version};

/// What is known of the API server's own history.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The number of the order to list everything.
    epoch: u64,
    /// How it went back, until it has come to later versions than ever before.
    went_back: Option<WentBack>,
    /// The order that followed.
    back_at: u64,
    /// Whether it went back since that was asked last.
    news: bool,
}

/// The API server went back to an older state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::source) struct WentBack {
    /// The version that it had come to.
    pub(in crate::source) from: u64,
    /// An earlier version that it named afterwards.
    pub(in crate::source) to: u64,
}

impl History {
    /// The number of the order to list everything.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Everything is to be listed again.
    pub(super) fn list_again(&mut self) {
        self.epoch += 1;
    }

    /// Whether what was listed by this order is of a history that the API server has left.
    pub(super) fn has_left(&self, epoch: u64) -> bool {
        epoch < self.back_at
    }

    /// How the API server went back, if that is to be said.
    pub(super) fn went_back(&self) -> Option<WentBack> {
        self.went_back
    }
}

impl Store {
    /// How the API server went back, if it did so since this was asked last.
    pub(in crate::source) fn take_went_back(&mut self) -> Option<WentBack> {
        std::mem::take(&mut self.history.news).then_some(self.history.went_back).flatten()
    }

    /// How far the API server had come with each kind, the furthest first. If it went back by anything that
    /// is known here, it is not as far any more with the first.
    pub(in crate::source) fn furthest(&self) -> Vec<(Kind, Version)> {
        let kinds = self.kinds.iter().filter(|(_, of)| of.version != Version::NONE);
        let mut kinds: Vec<(Kind, Version)> = kinds.map(|(kind, of)| (*kind, of.version)).collect();
        kinds.sort_by_key(|(_, version)| std::cmp::Reverse(*version));
        kinds
    }

    /// Takes note that everything of a kind is known up to this version. Returns whether that is news.
    /// The events of a kind come in the order of their versions, so an earlier one is a repetition.
    pub(super) fn reach(&mut self, kind: Kind, version: Version) -> bool {
        self.overtake(version);
        self.kinds.get_mut(&kind).is_some_and(|collection| collection.reach(version))
    }

    /// Takes note that a list is of this version. A list is a consistent read.
    pub(super) fn reach_by_list(&mut self, kind: Kind, version: Version) {
        let Some(before) = self.kinds.get(&kind).map(|collection| collection.version) else { return };
        if version.is_before(before) {
            self.go_back(version);
        }
        self.overtake(version);
        let epoch = self.epoch();
        if let Some(collection) = self.kinds.get_mut(&kind) {
            collection.version = version;
            collection.epoch = epoch;
        }
    }

    /// The API server went back: nothing that is known of it holds, and everything is listed again. What was
    /// sent stays until then.
    pub(super) fn go_back(&mut self, to: Version) {
        self.abandon_lists();
        let mut from = 0;
        for collection in self.kinds.values_mut() {
            collection.leave_history();
            from = from.max(collection.known());
        }
        // Versions of the history that it has left would say to other replicas that they lag behind.
        self.latest = Versions::default();
        self.history.went_back = Some(WentBack { from, to: to.number() });
        self.history.news = true;
        self.history.list_again();
        self.history.back_at = self.history.epoch;
        self.changed = true;
    }

    /// Once the API server is further than ever, its versions say again which state is meant.
    fn overtake(&mut self, version: Version) {
        if self.history.went_back.is_some_and(|went_back| version.number() > went_back.from) {
            self.history.went_back = None;
            self.changed = true;
        }
    }
}
