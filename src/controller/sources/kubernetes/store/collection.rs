//! What is held of one kind, and how far the API server has come with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_types::object_ref::{Kind, ObjectRef};

use super::Version;
use crate::sources::kubernetes::failure::Trouble;

/// How far the first look at a kind is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// It was not listed yet.
    None,
    /// It was listed.
    Listed,
    /// It is not served, but in these versions.
    Missing(BTreeSet<String>),
}

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) look: Look,
    /// The version up to which everything is known.
    pub(super) version: Version,
    /// As `version`, of namespaces that were listed later.
    pub(super) later: BTreeMap<String, Version>,
    /// The number of the latest list.
    pub(super) list: u64,
    pub(super) objects: BTreeMap<ObjectRef, Known>,
    pub(super) trouble: Option<Trouble>,
    /// Whether its changes arrive as they happen.
    pub(super) followed: bool,
}

impl Collection {
    pub(super) fn new() -> Self {
        Self {
            look: Look::None,
            version: Version::NONE,
            later: BTreeMap::new(),
            list: 0,
            objects: BTreeMap::new(),
            trouble: None,
            followed: false,
        }
    }

    /// Whether an event of this version in this namespace is news.
    pub(super) fn is_news(&self, version: Version, namespace: &str) -> bool {
        let listed = self.later.get(namespace).copied().unwrap_or(Version::NONE);
        !version.is_known_at(self.version) && !version.is_known_at(listed)
    }
}

/// An object that is held.
#[derive(Debug)]
pub(super) struct Known {
    /// The number of the list that named it last.
    pub(super) list: u64,
    /// Its own JSON; `None` if that is too long.
    pub(super) json: Option<Arc<str>>,
}

/// The version up to which all kinds are known together, where `latest` is that of the latest change: as far
/// as all of them were listed, or a change has come; but no further than a kind that is not followed.
pub(super) fn known(kinds: &BTreeMap<Kind, Collection>, latest: u64) -> u64 {
    let served = || kinds.values().filter(|kind| !matches!(kind.look, Look::Missing(_)));
    let version = |kind: &Collection| kind.version.number();
    let listed = served().map(version).min().unwrap_or_default();
    let lost = served().filter(|kind| !kind.followed).map(version).min();
    latest.max(listed).min(lost.unwrap_or(u64::MAX))
}
