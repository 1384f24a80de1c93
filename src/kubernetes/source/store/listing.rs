//! What a list says, and when: nothing before it ends, and then all of it at once.

use std::collections::{BTreeMap, BTreeSet};

use smc_types::kind::Kind;
use smc_types::object_ref::ObjectRef;

use super::collection::{Look, Read};
use super::namespaces::Namespaces;
use super::{Arrived, Ended, Scope, Store};

impl Store {
    /// A list begins, of all objects or of one namespace.
    pub(super) fn begin_list(&mut self, kind: Kind, namespace: Option<&str>) {
        self.abandon_list(kind);
        if let Some(collection) = self.kinds.get_mut(&kind) {
            collection.list += 1;
            collection.skipped = 0;
            collection.named = BTreeSet::new();
            collection.listing = Some(BTreeMap::new());
            self.share.begin(kind, namespace);
        }
    }

    /// The list that is being read has broken off.
    pub(super) fn abandon_list(&mut self, kind: Kind) {
        let listing = self.kinds.get_mut(&kind).and_then(|collection| collection.listing.take());
        let Some(listing) = listing else { return };
        for reference in listing.keys() {
            self.set_known(kind, reference);
        }
    }

    /// What is being listed is of a history that is left.
    pub(super) fn abandon_lists(&mut self) {
        let kinds: Vec<Kind> = self.kinds.keys().copied().collect();
        for kind in kinds {
            self.abandon_list(kind);
        }
    }

    /// Of an object that a list named otherwise, what is known counts again, if it is known.
    fn set_known(&mut self, kind: Kind, reference: &ObjectRef) {
        let known = self.kinds.get(&kind).and_then(|collection| collection.objects.get(reference));
        match known.map(|known| known.bytes) {
            Some(bytes) => {
                let marks = self.custom.get(reference).map(|object| object.marks.clone());
                self.find_room(kind, reference, bytes, marks.as_ref());
            }
            None => self.leave_room(reference),
        }
    }

    /// Keeps an object of a list until the list ends, unless it is known as it is, or there is no room for
    /// it.
    pub(super) fn list(&mut self, kind: Kind, arrived: Arrived) {
        let Arrived { reference, version, content, marks } = arrived;
        if !self.is_ours(kind, &reference) {
            return;
        }
        let read = self.read(kind, &reference, version, content);
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let Some(listing) = &mut collection.listing else { return };
        let known = collection.objects.get_mut(&reference);
        let is_known = known.is_some();
        if let Some(known) = known {
            known.list = collection.list;
        }
        // An earlier page may have named it otherwise.
        listing.remove(&reference);
        match read {
            None => self.mark_known(kind, &reference, marks, None),
            // Of a cluster's Namespaces, those count that are of the mesh, or were.
            Some(read) if !read.is_of_the_mesh(kind) => {
                if is_known {
                    listing.insert(reference, read);
                }
            }
            Some(read) => {
                let has_room = self.find_room(kind, &reference, read.bytes, marks.as_deref());
                if let Some(collection) = self.kinds.get_mut(&kind)
                    && let Some(listing) = &mut collection.listing
                {
                    if has_room {
                        listing.insert(reference, Read { marks, ..read });
                    } else {
                        collection.skipped = collection.skipped.max(version.number());
                        if let ObjectRef::Namespaced(_, name) = &reference
                            && self.share.remembers(kind, name)
                        {
                            collection.named.insert(name.clone());
                        }
                    }
                }
            }
        }
    }

    /// Takes an object out of the list that is being read.
    pub(super) fn unlist(&mut self, kind: Kind, reference: &ObjectRef) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        if let Some(known) = collection.objects.get_mut(reference) {
            known.list = collection.list.saturating_sub(1);
        }
        if collection.listing.as_mut().is_some_and(|listing| listing.remove(reference).is_some()) {
            self.set_known(kind, reference);
        }
    }

    /// A list of all objects ends.
    pub(super) fn end_list(&mut self, kind: Kind, ended: Ended, scope: &Scope) {
        let Some(collection) = self.kinds.get_mut(&kind).filter(|of| of.listing.is_some()) else { return };
        collection.look = Look::Listed;
        self.changed = true;
        let listing = collection.listing.take();
        // Another list than this one is abandoned if the API server went back.
        self.reach_by_list(kind, ended.version);
        if let Some(collection) = self.kinds.get_mut(&kind) {
            collection.listing = listing;
        }
        if kind == Kind::Namespace {
            self.namespaces.set_listed();
        }
        // A namespace that entered since the list began is read by itself.
        let (extent, own) = (kind.spec().extent, self.mesh_namespace.clone());
        let listed = |namespaces: &Namespaces, namespace: &str| {
            !extent.moves(namespace == own.as_str()) || namespaces.is_unchanged(namespace, scope)
        };
        if self.take_list(kind, ended, listed) {
            // No list shows the version of a deletion, which is this one at the latest.
            self.latest.raise(kind, ended.version.number());
        }
        if extent.follows_namespaces() {
            for namespace in scope.keys() {
                let admits = listed(&self.namespaces, namespace) && self.namespaces.admit(kind, namespace);
                self.changed |= admits;
            }
        }
    }

    /// A list of the objects of a namespace ends.
    pub(super) fn end_namespace(&mut self, kind: Kind, ended: Ended, namespace: &str, entry: u64) {
        if self.namespaces.scope().get(namespace) != Some(&entry) {
            return self.abandon_list(kind);
        }
        if self.kinds.get(&kind).is_none_or(|collection| collection.listing.is_none()) {
            return;
        }
        self.take_list(kind, ended, |_, of| of == namespace);
        self.changed |= self.namespaces.admit(kind, namespace);
    }

    /// Brings a list into effect, in the namespaces of which `listed` holds. Returns whether it removes
    /// anything.
    fn take_list(&mut self, kind: Kind, ended: Ended, listed: impl Fn(&Namespaces, &str) -> bool) -> bool {
        let (mut gone, mut outside) = (Vec::new(), Vec::new());
        if let Some(collection) = self.kinds.get(&kind)
            && let Some(listing) = &collection.listing
        {
            let unnamed = collection.objects.iter().filter(|(reference, known)| {
                ended.complete
                    && known.list != collection.list
                    && !listing.contains_key(*reference)
                    && listed(&self.namespaces, reference.namespace())
            });
            gone.extend(unnamed.map(|(reference, _)| reference.clone()));
            let others = listing.keys().filter(|of| !listed(&self.namespaces, of.namespace()));
            outside.extend(others.cloned());
        }
        for reference in &gone {
            self.remove(kind, reference);
        }
        for reference in &outside {
            if let Some(collection) = self.kinds.get_mut(&kind)
                && let Some(listing) = &mut collection.listing
            {
                listing.remove(reference);
            }
            self.set_known(kind, reference);
        }
        let namespaces = self.namespaces.clone();
        if ended.complete {
            self.forget_unnamed(kind, |namespace| listed(&namespaces, namespace));
        }
        let moves = self.share.end();
        self.follow(moves);
        self.missing.listed(kind, |namespace| listed(&namespaces, namespace));
        let Some(collection) = self.kinds.get_mut(&kind) else { return false };
        let skipped = std::mem::take(&mut collection.skipped);
        self.latest.raise(kind, skipped);
        for (reference, read) in collection.listing.take().unwrap_or_default() {
            self.put(kind, reference, read);
        }
        !gone.is_empty()
    }
}
