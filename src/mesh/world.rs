//! Everything that is served at one moment, as one immutable value.
//!
//! Owns the sharing: proxies of one class share a [`Snapshot`], and all snapshots share one table of
//! endpoints, so an endpoint change costs the same whether ten or ten thousand proxies see it. Refuses to
//! compute: [`crate::translate`] makes worlds, [`crate::session`] reads them. Cloning is cheap (persistent
//! maps), so a slow stream may hold an old world without stopping a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use crate::catalog::InboundPort;
use crate::ids::{ProxyName, ServiceAccountId, WorkloadId};
use crate::resource::{Resource, ResourceType};

/// How many past changes a world remembers, so that a stream that wakes late can still be told just what
/// changed. One that slept longer compares all it holds: dearer, never wrong.
const REMEMBERED_CHANGES: usize = 64;

/// What makes two proxies be served the same: who they are, which ports services lead to, and which
/// address families their pods have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyClass {
    /// The identity.
    pub account: ServiceAccountId,
    /// The inbound ports, sorted.
    pub inbound: Vec<InboundPort>,
    /// Whether the pods have IPv4 addresses.
    pub ipv4: bool,
    /// Whether the pods have IPv6 addresses.
    pub ipv6: bool,
}

/// What proxies of one class are served. Endpoints are named here and held by the [`World`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// SDS.
    pub secrets: OrdMap<Arc<str>, Arc<Resource>>,
    /// CDS.
    pub clusters: OrdMap<Arc<str>, Arc<Resource>>,
    /// The EDS names this class may subscribe to: exactly those its clusters refer to.
    pub endpoints: OrdSet<Arc<str>>,
    /// LDS.
    pub listeners: OrdMap<Arc<str>, Arc<Resource>>,
    /// RDS.
    pub routes: OrdMap<Arc<str>, Arc<Resource>>,
}

/// What one recomputation changed, by name, whether added, altered or removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Names of changed resources other than endpoints, by class.
    pub classes: BTreeMap<Arc<ProxyClass>, BTreeSet<(ResourceType, Arc<str>)>>,
    /// Names of changed endpoint resources.
    pub endpoints: BTreeSet<Arc<str>>,
    /// Classes whose whole snapshot appeared or vanished: everything in it changed, so it is not listed.
    pub whole: BTreeSet<Arc<ProxyClass>>,
    /// Proxies that appeared, vanished, or changed their class.
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

/// A proxy that the catalog knows: the workload it stands beside and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownProxy {
    /// The workload.
    pub workload: WorkloadId,
    /// What it is served.
    pub class: Arc<ProxyClass>,
}

/// Everything that is served at one moment.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Grows by one with every change. Meaningful within one process only.
    pub generation: u64,
    /// Snapshots by class. A class without a certificate yet has none: its proxies wait.
    pub snapshots: OrdMap<Arc<ProxyClass>, Arc<Snapshot>>,
    /// EDS resources by name, shared by all classes.
    pub endpoints: OrdMap<Arc<str>, Arc<Resource>>,
    /// In-mesh proxies by name.
    pub proxies: OrdMap<ProxyName, KnownProxy>,
    /// The latest changes, oldest first; the last one led to `generation`.
    history: Vector<Arc<Changes>>,
}

impl World {
    /// Advances the generation and remembers what changed.
    pub fn record(&mut self, changes: Changes) {
        self.generation += 1;
        self.history.push_back(Arc::new(changes));
        if self.history.len() > REMEMBERED_CHANGES {
            self.history.pop_front();
        }
    }

    /// What `proxy` is served now; `None` if the catalog does not know it or its certificate is not
    /// there yet.
    pub fn view(&self, proxy: &ProxyName) -> Option<View> {
        let class = &self.proxies.get(proxy)?.class;
        let snapshot = self.snapshots.get(class)?;
        Some(View {
            class: Arc::clone(class),
            snapshot: Arc::clone(snapshot),
            endpoints: self.endpoints.clone(),
        })
    }

    /// What changed after `generation` for proxies of `class`, or everything where that is not remembered.
    pub fn touched_since(&self, generation: u64, class: &ProxyClass) -> Touched {
        let steps = usize::try_from(self.generation.saturating_sub(generation)).unwrap_or(usize::MAX);
        if steps > self.history.len() {
            return Touched::Everything;
        }
        let mut names = BTreeSet::new();
        for changes in self.history.iter().skip(self.history.len() - steps) {
            if changes.whole.contains(class) {
                return Touched::Everything;
            }
            names.extend(changes.endpoints.iter().map(|name| (ResourceType::Endpoint, Arc::clone(name))));
            if let Some(own) = changes.classes.get(class) {
                names.extend(own.iter().cloned());
            }
        }
        Touched::Names(names)
    }
}

/// Which resources a stream has to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// All of them.
    Everything,
    /// These; all others are as they were.
    Names(BTreeSet<(ResourceType, Arc<str>)>),
}

/// What one proxy is served at one moment. It cannot reach a resource of another class.
#[derive(Debug, Clone)]
pub struct View {
    /// The proxy's class. A view of another class must be compared whole ([`Touched::Everything`]).
    pub class: Arc<ProxyClass>,
    snapshot: Arc<Snapshot>,
    endpoints: OrdMap<Arc<str>, Arc<Resource>>,
}

impl View {
    /// A view put together by hand, for tests and benches.
    pub fn new(
        class: Arc<ProxyClass>,
        snapshot: Arc<Snapshot>,
        endpoints: OrdMap<Arc<str>, Arc<Resource>>,
    ) -> Self {
        Self { class, snapshot, endpoints }
    }

    /// The resource of this type and name, if this proxy is served it.
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

    /// Whether both serve the very same snapshot, endpoints apart.
    pub(crate) fn is_same_snapshot(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot)
    }

    /// The table of a type that the snapshot holds itself; `None` for endpoints.
    fn table(&self, kind: ResourceType) -> Option<&OrdMap<Arc<str>, Arc<Resource>>> {
        match kind {
            ResourceType::Secret => Some(&self.snapshot.secrets),
            ResourceType::Cluster => Some(&self.snapshot.clusters),
            ResourceType::Endpoint => None,
            ResourceType::Listener => Some(&self.snapshot.listeners),
            ResourceType::Route => Some(&self.snapshot.routes),
        }
    }
}
