//! The configuration that all proxies are served at one moment, as one immutable value.
//!
//! Owns the sharing: proxies of one class share a [`Snapshot`], and all snapshots share one table
//! of endpoints, so an endpoint change costs the same whether ten or ten thousand proxies see it.
//! `smc_mesh::translate` makes served states and [`crate::session`] reads them. A clone is cheap
//! (persistent maps), so a slow stream can keep an old state while newer ones are made.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use crate::resource::{Resource, ResourceType};
use crate::revision::Revision;
use smc_types::ids::{ProxyName, WorkloadId};
use smc_types::proxy_class::ProxyClass;

/// How many past changes a served state remembers, for streams that skip generations. A stream that
/// skips more compares every resource, which costs more and gives the same result.
const REMEMBERED_CHANGES: usize = 64;

/// The configuration of the proxies of one class. It names endpoints; the [`ServedState`] holds them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// SDS.
    pub secrets: OrdMap<Arc<str>, Arc<Resource>>,
    /// CDS.
    pub clusters: OrdMap<Arc<str>, Arc<Resource>>,
    /// The EDS resources that the class may subscribe to: exactly those that its clusters refer to.
    pub endpoints: OrdSet<Arc<str>>,
    /// ECDS.
    pub extension_configs: OrdMap<Arc<str>, Arc<Resource>>,
    /// LDS.
    pub listeners: OrdMap<Arc<str>, Arc<Resource>>,
    /// RDS.
    pub routes: OrdMap<Arc<str>, Arc<Resource>>,
}

impl Snapshot {
    /// The resource of this type and name. Never endpoints: the [`ServedState`] holds those.
    pub fn get(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        match kind {
            ResourceType::Secret => self.secrets.get(name),
            ResourceType::Cluster => self.clusters.get(name),
            ResourceType::Endpoint => None,
            ResourceType::ExtensionConfig => self.extension_configs.get(name),
            ResourceType::Listener => self.listeners.get(name),
            ResourceType::Route => self.routes.get(name),
        }
    }

    /// All resources, except for endpoints.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let tables = [&self.secrets, &self.clusters, &self.extension_configs, &self.listeners, &self.routes];
        tables.into_iter().flat_map(OrdMap::values)
    }
}

/// Names of resources of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedNames {
    /// Those that it shares with other classes: thousands of classes may have thousands of them in common.
    pub shared: Arc<BTreeSet<(ResourceType, Arc<str>)>>,
    /// Those that it has alone.
    pub own: Arc<BTreeSet<(ResourceType, Arc<str>)>>,
}

/// The resources that one recomputation added, changed or removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Names of changed resources other than endpoints, by class. None where only the objects differ that
    /// a resource is made of.
    pub classes: BTreeMap<Arc<ProxyClass>, ChangedNames>,
    /// Names of changed endpoint resources.
    pub endpoints: BTreeSet<Arc<str>>,
    /// Classes whose snapshot was added or removed as a whole. Their resources are not listed.
    pub whole: BTreeSet<Arc<ProxyClass>>,
    /// Proxies that were added, were removed, or changed their class.
    pub proxies: BTreeSet<ProxyName>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
            && self.endpoints.is_empty()
            && self.whole.is_empty()
            && self.proxies.is_empty()
    }
}

/// A proxy in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownProxy {
    /// The workload that the proxy belongs to.
    pub workload: WorkloadId,
    /// The class of the proxy.
    pub class: Arc<ProxyClass>,
}

/// The configuration that all proxies are served at one moment.
#[derive(Debug, Clone, Default)]
pub struct ServedState {
    /// Grows by one with every change. Not comparable between processes.
    pub generation: u64,
    /// Snapshots by class. A class has none until it has a certificate; its proxies wait until then.
    pub snapshots: OrdMap<Arc<ProxyClass>, Arc<Snapshot>>,
    /// EDS resources by name, shared by all classes.
    pub endpoints: OrdMap<Arc<str>, Arc<Resource>>,
    /// The proxies in the mesh, by name.
    pub proxies: OrdMap<ProxyName, KnownProxy>,
    /// How far the source has come; `None` if its versions cannot be compared with those of other replicas.
    pub revision: Option<Arc<Revision>>,
    /// The latest changes, oldest first. The last one led to `generation`.
    history: Vector<Arc<Changes>>,
}

impl ServedState {
    /// Advances the generation and remembers the changes.
    pub fn record(&mut self, changes: Changes) {
        self.generation += 1;
        self.history.push_back(Arc::new(changes));
        if self.history.len() > REMEMBERED_CHANGES {
            self.history.pop_front();
        }
    }

    /// The configuration of `proxy`. `None` if the catalog does not know the proxy, or its
    /// certificate does not exist yet.
    pub fn view(&self, proxy: &ProxyName) -> Option<View> {
        let class = &self.proxies.get(proxy)?.class;
        let snapshot = self.snapshots.get(class)?;
        Some(View {
            class: Arc::clone(class),
            snapshot: Arc::clone(snapshot),
            endpoints: self.endpoints.clone(),
            revision: self.revision.clone(),
        })
    }

    /// What changed after `generation`, step by step; `None` if that is not remembered.
    pub fn changes_since(&self, generation: u64) -> Option<impl Iterator<Item = &Changes>> {
        let steps = usize::try_from(self.generation.saturating_sub(generation)).unwrap_or(usize::MAX);
        let forgotten = self.history.len().checked_sub(steps)?;
        Some(self.history.iter().skip(forgotten).map(|changes| &**changes))
    }

    /// The resources of `class` that changed after `generation`; [`Changed::Everything`] if that is
    /// not remembered.
    pub fn changed_since(&self, generation: u64, class: &ProxyClass) -> Changed {
        let Some(steps) = self.changes_since(generation) else { return Changed::Everything };
        let mut names = BTreeSet::new();
        for changes in steps {
            if changes.whole.contains(class) {
                return Changed::Everything;
            }
            names.extend(changes.endpoints.iter().map(|name| (ResourceType::Endpoint, Arc::clone(name))));
            if let Some(changed) = changes.classes.get(class) {
                names.extend(changed.shared.iter().chain(&*changed.own).cloned());
            }
        }
        Changed::Names(names)
    }
}

/// The resources that a stream must compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// All of them.
    Everything,
    /// These. All others are unchanged.
    Names(BTreeSet<(ResourceType, Arc<str>)>),
}

/// The configuration of one proxy at one moment. It gives no access to resources of another class.
#[derive(Debug, Clone)]
pub struct View {
    /// The proxy's class. A view of another class must be compared whole ([`Changed::Everything`]).
    pub class: Arc<ProxyClass>,
    snapshot: Arc<Snapshot>,
    endpoints: OrdMap<Arc<str>, Arc<Resource>>,
    revision: Option<Arc<Revision>>,
}

impl View {
    /// A view of these parts, for tests and benches.
    pub fn new(
        class: Arc<ProxyClass>,
        snapshot: Arc<Snapshot>,
        endpoints: OrdMap<Arc<str>, Arc<Resource>>,
    ) -> Self {
        Self { class, snapshot, endpoints, revision: None }
    }

    /// The same view of a source that has come this far.
    #[must_use]
    pub fn at(self, revision: Revision) -> Self {
        Self { revision: Some(Arc::new(revision)), ..self }
    }

    /// How far the source had come.
    pub fn revision(&self) -> Option<&Revision> {
        self.revision.as_deref()
    }

    /// The resource of this type and name, if the proxy is served it.
    pub fn get(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        match self.table(kind) {
            Some(table) => table.get(name),
            None if self.snapshot.endpoints.contains(name) => self.endpoints.get(name),
            None => None,
        }
    }

    /// All resources of this type, sorted by name.
    pub fn all(&self, kind: ResourceType) -> Box<dyn Iterator<Item = &Arc<Resource>> + '_> {
        match self.table(kind) {
            Some(table) => Box::new(table.values()),
            None => Box::new(self.snapshot.endpoints.iter().filter_map(|name| self.endpoints.get(name))),
        }
    }

    /// The names of this type in a range, sorted. Endpoints may be named that do not exist.
    pub(crate) fn names(
        &self,
        kind: ResourceType,
        range: (Bound<&str>, Bound<&str>),
    ) -> Box<dyn Iterator<Item = &Arc<str>> + '_> {
        match self.table(kind) {
            Some(table) => Box::new(table.range::<_, str>(range).map(|(name, _)| name)),
            None => Box::new(self.snapshot.endpoints.range::<_, str>(range)),
        }
    }

    /// Whether both views share one snapshot. Their endpoints may differ.
    pub(crate) fn is_same_snapshot(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot)
    }

    /// The table of a type in the snapshot; `None` for endpoints, which the served state holds.
    fn table(&self, kind: ResourceType) -> Option<&OrdMap<Arc<str>, Arc<Resource>>> {
        match kind {
            ResourceType::Secret => Some(&self.snapshot.secrets),
            ResourceType::Cluster => Some(&self.snapshot.clusters),
            ResourceType::Endpoint => None,
            ResourceType::ExtensionConfig => Some(&self.snapshot.extension_configs),
            ResourceType::Listener => Some(&self.snapshot.listeners),
            ResourceType::Route => Some(&self.snapshot.routes),
        }
    }
}
