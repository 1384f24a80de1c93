//! What is held of one kind, and how far the API server has come with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_api::object::Object;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

use super::Version;
use crate::custom_objects::Marks;
use crate::source::failure::Trouble;

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
    /// The highest version of a history that the API server has left.
    pub(super) left: Version,
    /// The number of the latest list.
    pub(super) list: u64,
    /// The order to list that the latest list followed.
    pub(super) epoch: u64,
    /// What the list that is being read says and what is not known yet; `None` without such a list. It takes
    /// effect as one, at its end.
    pub(super) listing: Option<BTreeMap<ObjectRef, Read>>,
    /// The highest version of what that list names and there is no room for.
    pub(super) skipped: u64,
    /// What that list names and is remembered, but not held.
    pub(super) named: BTreeSet<NamespacedName>,
    pub(super) objects: BTreeMap<ObjectRef, Known>,
    pub(super) trouble: Option<Trouble>,
}

impl Collection {
    pub(super) fn new() -> Self {
        Self {
            look: Look::None,
            version: Version::NONE,
            left: Version::NONE,
            list: 0,
            epoch: 0,
            listing: None,
            skipped: 0,
            named: BTreeSet::new(),
            objects: BTreeMap::new(),
            trouble: None,
        }
    }

    /// Takes note of an event or bookmark of this version, before which nothing is missing. Returns
    /// whether it is later than everything that is known; otherwise the API server repeats itself. A
    /// version that is no number is always news.
    pub(super) fn reach(&mut self, version: Version) -> bool {
        let news = version == Version::NONE || self.version < version;
        self.version = self.version.max(version);
        news
    }

    /// Forgets where the API server was, since it went back.
    pub(super) fn leave_history(&mut self) {
        self.left = self.left.max(self.version);
        self.version = Version::NONE;
    }

    /// The version up to which replicas may count on what is said of this kind. What belongs to a
    /// history that the API server has left is void, so it counts as known.
    pub(super) fn known(&self) -> u64 {
        self.version.max(self.left).number()
    }
}

/// An object that is held.
#[derive(Debug)]
pub(super) struct Known {
    /// The number of the list that named it last.
    pub(super) list: u64,
    /// Its own JSON; `None` if that is too long, or cannot be read.
    pub(super) json: Option<Arc<str>>,
    /// The bytes that it takes.
    pub(super) bytes: usize,
}

/// An object as it was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) version: Version,
    /// As of [`Known`].
    pub(super) json: Option<Arc<str>>,
    /// `None` if it must have no effect.
    pub(super) object: Option<Object>,
    pub(super) problems: Vec<Problem>,
    /// As of [`super::Arrived`].
    pub(super) marks: Option<Box<Marks>>,
    /// As of [`Known`].
    pub(super) bytes: usize,
}

impl Read {
    /// Whether it is of the mesh by what it says. Of a Namespace its label decides, of others their
    /// namespace.
    pub(super) fn is_of_the_mesh(&self, kind: Kind) -> bool {
        kind != Kind::Namespace
            || matches!(&self.object, Some(Object::Namespace(namespace)) if namespace.monitored)
    }
}
