//! The namespaces of the mesh, and those that are withheld.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_types::object_ref::Kind;

/// The namespaces of the mesh. The number differs each time that a namespace enters.
pub(in crate::source) type Scope = BTreeMap<String, u64>;

/// Which namespaces are of the mesh, and in which of them something has not been read yet.
#[derive(Debug, Default, Clone)]
pub(super) struct Namespaces {
    scope: Arc<Scope>,
    /// Whether they are known to their end, by a list of this run.
    listed: bool,
    /// The number of the latest namespace that entered.
    entered: u64,
    /// Namespaces that entered, with the kinds that have not been read in them.
    withheld: BTreeMap<String, BTreeSet<Kind>>,
}

impl Namespaces {
    /// The namespaces of the mesh, as far as they are known.
    pub(super) fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// Whether they are known to their end.
    pub(super) fn are_listed(&self) -> bool {
        self.listed
    }

    /// Takes note that they are known to their end.
    pub(super) fn set_listed(&mut self) {
        self.listed = true;
    }

    /// Whether a namespace is of the mesh.
    pub(super) fn contains(&self, namespace: &str) -> bool {
        self.scope.contains_key(namespace)
    }

    /// Whether a namespace is of the mesh and has not left since `scope` was that of the mesh.
    pub(super) fn is_unchanged(&self, namespace: &str, scope: &Scope) -> bool {
        scope.get(namespace).is_some_and(|entry| self.scope.get(namespace) == Some(entry))
    }

    /// A namespace enters. It is withheld until these kinds have been read in it.
    pub(super) fn enter(&mut self, namespace: &str, unread: BTreeSet<Kind>) {
        if self.contains(namespace) {
            return;
        }
        self.entered += 1;
        Arc::make_mut(&mut self.scope).insert(namespace.to_owned(), self.entered);
        if !unread.is_empty() {
            self.withheld.insert(namespace.to_owned(), unread);
        }
    }

    /// A namespace of the mesh is to be read again, and stays of the mesh meanwhile.
    pub(super) fn renew(&mut self, namespace: &str) {
        if let Some(entry) = Arc::make_mut(&mut self.scope).get_mut(namespace) {
            self.entered += 1;
            *entry = self.entered;
        }
    }

    /// A namespace leaves. Returns whether it was of the mesh.
    pub(super) fn leave(&mut self, namespace: &str) -> bool {
        self.withheld.remove(namespace);
        self.contains(namespace) && Arc::make_mut(&mut self.scope).remove(namespace).is_some()
    }

    /// Whether a namespace is withheld.
    pub(super) fn withholds(&self, namespace: &str) -> bool {
        self.withheld.contains_key(namespace)
    }

    /// Whether any is withheld.
    pub(super) fn withholds_any(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// A kind was read in a namespace. Returns whether the namespace is no longer withheld by that.
    pub(super) fn admit(&mut self, kind: Kind, namespace: &str) -> bool {
        let Some(unread) = self.withheld.get_mut(namespace) else { return false };
        unread.remove(&kind);
        let admitted = unread.is_empty();
        if admitted {
            self.withheld.remove(namespace);
        }
        admitted
    }

    /// A kind needs not be read in any namespace.
    pub(super) fn admit_everywhere(&mut self, kind: Kind) {
        self.withheld.retain(|_, unread| {
            unread.remove(&kind);
            !unread.is_empty()
        });
    }

    /// These namespaces are whole, whatever was not read in them.
    pub(super) fn admit_all(&mut self, namespaces: &BTreeSet<String>) {
        self.withheld.retain(|namespace, _| !namespaces.contains(namespace));
    }
}
