//! What a list says, and when: nothing before it ends, and then all of it at once.

use std::collections::BTreeMap;

use smc_types::kind::{Extent, Kind};
use smc_types::object_ref::ObjectRef;

use super::collection::{Look, Read};
use super::namespaces::Namespaces;
use super::{Arrived, Ended, Scope, Store, namespace_of};

impl Store {
    /// Keeps an object of a list until the list ends, unless it is known as it is.
    pub(super) fn list(&mut self, kind: Kind, arrived: Arrived) {
        let Arrived { reference, version, content, marks } = arrived;
        if !self.is_ours(kind, &reference) {
            return;
        }
        let read = self.read(kind, &reference, version, content);
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let Some(listing) = &mut collection.listing else { return };
        if let Some(known) = collection.objects.get_mut(&reference) {
            known.list = collection.list;
        }
        match read {
            None => {
                // An earlier page may have named it otherwise.
                listing.remove(&reference);
                self.mark(kind, &reference, marks, None);
            }
            // Of a cluster's Namespaces, those count that are of the mesh, or were.
            Some(read) if !read.is_of_the_mesh(kind) && !collection.objects.contains_key(&reference) => {
                listing.remove(&reference);
            }
            Some(read) if listing.len() < self.limit => {
                listing.insert(reference, Read { marks, ..read });
            }
            Some(_) => {
                self.completeness.overflowed = true;
                self.changed = true;
            }
        }
    }

    /// Takes an object out of the list that is being read.
    pub(super) fn unlist(&mut self, kind: Kind, reference: &ObjectRef) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        if let Some(listing) = &mut collection.listing {
            listing.remove(reference);
        }
        if let Some(known) = collection.objects.get_mut(reference) {
            known.list = collection.list.saturating_sub(1);
        }
    }

    /// A list of all objects ends.
    pub(super) fn end_list(&mut self, kind: Kind, ended: Ended, scope: &Scope) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let Some(listing) = collection.listing.take() else { return };
        collection.look = Look::Listed;
        self.changed = true;
        self.reach_by_list(kind, ended.version);
        if kind == Kind::Namespace {
            self.namespaces.set_listed();
        }
        // A namespace that entered since the list began is read by itself.
        let listed = |namespaces: &Namespaces, namespace: &str| match kind.spec().extent {
            Extent::Cluster | Extent::Own => true,
            Extent::Mesh => namespaces.is_unchanged(namespace, scope),
        };
        if self.take_list(kind, ended, listing, listed) {
            // No list shows the version of a deletion, which is this one at the latest.
            self.latest.raise(kind, ended.version.number());
        }
        if kind.spec().extent == Extent::Mesh {
            for namespace in scope.keys() {
                let admits = listed(&self.namespaces, namespace) && self.namespaces.admit(kind, namespace);
                self.changed |= admits;
            }
        }
    }

    /// A list of the objects of a namespace ends.
    pub(super) fn end_namespace(&mut self, kind: Kind, ended: Ended, namespace: &str, entry: u64) {
        let Some(collection) = self.kinds.get_mut(&kind) else { return };
        let Some(listing) = collection.listing.take() else { return };
        if self.namespaces.scope().get(namespace) != Some(&entry) {
            return;
        }
        self.take_list(kind, ended, listing, |_, of| of == namespace);
        self.changed |= self.namespaces.admit(kind, namespace);
    }

    /// Brings a list into effect, in the namespaces of which `listed` holds. Returns whether it removes
    /// anything.
    fn take_list(
        &mut self,
        kind: Kind,
        ended: Ended,
        listing: BTreeMap<ObjectRef, Read>,
        listed: impl Fn(&Namespaces, &str) -> bool,
    ) -> bool {
        let mut gone = Vec::new();
        if let Some(collection) = self.kinds.get(&kind).filter(|_| ended.complete) {
            let unnamed = collection.objects.iter().filter(|(reference, known)| {
                known.list != collection.list
                    && !listing.contains_key(*reference)
                    && listed(&self.namespaces, namespace_of(reference))
            });
            gone.extend(unnamed.map(|(reference, _)| reference.clone()));
        }
        for reference in &gone {
            self.remove(kind, reference);
        }
        for (reference, read) in listing {
            if listed(&self.namespaces, namespace_of(&reference)) {
                self.put(kind, reference, read);
            }
        }
        !gone.is_empty()
    }
}
