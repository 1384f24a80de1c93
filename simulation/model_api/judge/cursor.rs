//! Which moment of a kind's history is published.
//!
//! Owns the search for it: the first moment, not before an earlier one, at which the server had what is
//! published. If any sequence of moments explains what was published, the first ones do.

use std::collections::BTreeSet;

use imbl::OrdMap;
use smc_types::kind::Extent;
use smc_types::object_ref::Kind;

use crate::model_api::history::{Form, Key, Moment, OWN, Objects};
use crate::model_api::objects::shown;

/// What is published of a kind.
pub(super) type Published = OrdMap<Key, u32>;

/// The moment of a kind that is published.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    kind: Kind,
    /// The moment.
    pub(super) at: usize,
    /// The objects that are another at the moment.
    pub(super) differing: BTreeSet<Key>,
    /// Of Namespaces, those that need not be published yet, since they entered after the run began.
    pub(super) withheld: BTreeSet<u16>,
}

/// What the server's objects must be compared with.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// What is published of the kind.
    pub(super) published: &'a Published,
    pub(super) namespaces: &'a Published,
}

impl Cursor {
    /// At a moment.
    pub(super) fn new(kind: Kind, at: usize) -> Self {
        Self { kind, at, differing: BTreeSet::new(), withheld: BTreeSet::new() }
    }

    /// Of Namespaces: those that are not of the mesh at the moment may come late.
    pub(super) fn withhold_others(&mut self, moments: &[Moment], all: impl Iterator<Item = u16>) {
        let objects = &moments[self.at].objects;
        self.withheld.extend(all.filter(|namespace| !is_good(objects, (*namespace, 0))));
    }

    /// Compares all objects.
    pub(super) fn compare_all(&mut self, moments: &[Moment], view: View<'_>) {
        self.differing.clear();
        let objects = &moments[self.at].objects;
        let keys: BTreeSet<Key> = objects.keys().chain(view.published.keys()).copied().collect();
        for key in keys {
            self.compare(objects, key, view);
        }
    }

    /// Compares the objects of a namespace.
    pub(super) fn compare_in(&mut self, moments: &[Moment], namespace: u16, view: View<'_>) {
        let objects = &moments[self.at].objects;
        let range = (namespace, 0)..=(namespace, u16::MAX);
        let held = objects.range(range.clone()).map(|(key, _)| *key);
        let keys: BTreeSet<Key> = held.chain(view.published.range(range).map(|(key, _)| *key)).collect();
        for key in keys {
            self.compare(objects, key, view);
        }
    }

    /// Compares one object.
    pub(super) fn compare_one(&mut self, moments: &[Moment], key: Key, view: View<'_>) {
        self.compare(&moments[self.at].objects, key, view);
    }

    fn compare(&mut self, objects: &Objects, key: Key, view: View<'_>) {
        let published = view.published.get(&key).copied();
        let expected = expected(self.kind, objects, key, view.namespaces);
        let late = published.is_none() && self.kind == Kind::Namespace && self.withheld.contains(&key.0);
        if published == expected || late {
            self.differing.remove(&key);
        } else {
            self.differing.insert(key);
        }
    }

    /// Goes on to the first moment at which the server had what is published. Returns whether there is one.
    pub(super) fn advance(&mut self, moments: &[Moment], view: View<'_>) -> bool {
        while !self.differing.is_empty() {
            let Some(next) = moments.get(self.at + 1) else { return false };
            self.at += 1;
            match next.change {
                Some(change) if !next.returned => {
                    self.pass(&next.objects, change.key);
                    self.compare(&next.objects, change.key, view);
                }
                _ => {
                    let before = &moments[self.at - 1].objects;
                    let keys: Vec<Key> = before.keys().copied().collect();
                    for key in keys {
                        self.pass(&next.objects, key);
                    }
                    self.compare_all(moments, view);
                }
            }
        }
        true
    }

    /// A Namespace that is not of the mesh at a moment, and is later, entered in between.
    fn pass(&mut self, objects: &Objects, key: Key) {
        if self.kind == Kind::Namespace && !is_good(objects, key) {
            self.withheld.insert(key.0);
        }
    }

    /// Of Namespaces: those that are published have come.
    pub(super) fn come(&mut self, namespaces: &Published) {
        self.withheld.retain(|namespace| !namespaces.contains_key(&(*namespace, 0)));
    }
}

/// What must be published of an object, where these namespaces are.
pub(super) fn expected(kind: Kind, objects: &Objects, key: Key, namespaces: &Published) -> Option<u32> {
    let of_mesh = is_of_mesh(kind, key, namespaces);
    let held = objects.get(&key).filter(|held| of_mesh && held.form == Form::Good)?;
    Some(shown(kind, held.mark))
}

/// Whether an object of this name is of the mesh, where these namespaces are.
pub(super) fn is_of_mesh(kind: Kind, key: Key, namespaces: &Published) -> bool {
    match kind.spec().extent {
        Extent::Cluster => true,
        Extent::Own => key.0 == OWN,
        Extent::Mesh => namespaces.contains_key(&(key.0, 0)),
        Extent::MeshAndOwn => key.0 == OWN || namespaces.contains_key(&(key.0, 0)),
    }
}

fn is_good(objects: &Objects, key: Key) -> bool {
    objects.get(&key).is_some_and(|held| held.form == Form::Good)
}
