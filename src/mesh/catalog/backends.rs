//! The backends of one service: workloads, identities, addresses, endpoints.
//!
//! Owns the rules by which they follow from the service, its selected pods, its EndpointSlices and the
//! machines that name it. [`super::index`] keeps them. They are a sum of what each source contributes, so
//! that an event which concerns one source costs what that one contributes, before and after, and not what
//! stands behind the service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::counts::{ByPort, Counts, Grouped};
use super::{Catalog, Endpoint};
use smc_model::topology::{
    EndpointSlice, Readiness, Service, ServicePort, SliceEndpoint, TargetPort, Workload,
};
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::proxy_class::AppProtocol;

/// The in-mesh backends of one service, or the difference between two states of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Backends {
    /// Each workload behind the service, ready or not.
    workloads: Counts<WorkloadId>,
    /// The ports of them that the service targets.
    targets: Counts<(WorkloadId, u16, AppProtocol)>,
    /// Their identities, ready or not, so that a change of readiness changes no listener and no certificate
    /// validation.
    accounts: Counts<ServiceAccountId>,
    /// The addresses that pods behind the service listen on, per service port, ready or not for the same
    /// reason. Callers of a headless service dial them, so a machine's are not among them: the platform says
    /// which address a pod has, but a MeshWorkload's author may write any, and with the address of another
    /// host would take what callers send there.
    listening: ByPort<(IpAddr, u16)>,
    /// The endpoints that are ready, per service port.
    ready: ByPort<Endpoint>,
    /// Those that take the place of the ready ones of a port that has none.
    last_resort: ByPort<Endpoint>,
    /// The selected workloads outside of the mesh, and by each named target port the ones in the mesh
    /// without it. No answer about endpoints depends on them: they are what may be wrong with the service.
    outside: Counts<WorkloadId>,
    lacking: Grouped<String, WorkloadId>,
}

/// What of a service's backends a change turns.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Whether its endpoints differ.
    pub(super) endpoints: bool,
    /// Whether other identities are behind it.
    pub(super) accounts: bool,
    /// The addresses that pods begin, or cease, to listen on.
    pub(super) listening: BTreeSet<IpAddr>,
    /// The workloads of which it targets other ports.
    pub(super) targets: BTreeSet<WorkloadId>,
}

/// What contributes to the backends of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A pod that the service selects, or a machine that names it.
    Workload(WorkloadId),
    /// A slice of the service; of its addresses this one alone, if there is one.
    Slice(NamespacedName, Option<IpAddr>),
}

impl Source {
    /// The slice that this is an address of.
    pub(super) fn whole(&self) -> Option<Self> {
        match self {
            Self::Slice(id, Some(_)) => Some(Self::Slice(id.clone(), None)),
            Self::Slice(_, None) | Self::Workload(_) => None,
        }
    }
}

/// Which endpoints of a port get traffic: the ready ones, or else those of last resort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Ready,
    LastResort,
}

impl Tier {
    /// `None` gets no traffic.
    fn of(readiness: Readiness) -> Option<Self> {
        match readiness {
            Readiness::Ready => Some(Self::Ready),
            Readiness::Draining | Readiness::NodeUnreachable => Some(Self::LastResort),
            Readiness::NotReady => None,
        }
    }
}

impl Backends {
    /// Computes the backends of `service`.
    ///
    /// Its endpoints are the ready pods it selects, or where there is none for a port, those of last resort
    /// ([`Tier`]). EndpointSlices of the service take precedence, also for readiness,
    /// which Kubernetes overrides for `publishNotReadyAddresses`: their author knows more than the selector
    /// says. A machine that names the service is an endpoint beside both, and only so: no selector and no
    /// slice makes it one. A headless service leads to no machine. A service that is over the budget of its
    /// namespace ([`super::endpoint_budget`]) has workloads and identities, and nothing more.
    pub(super) fn of(catalog: &Catalog, service: &Service) -> Self {
        let mut backends = Self::default();
        let selected = catalog.index.selected.get(&service.id).into_iter().flatten();
        for workload in selected {
            backends.contribute(catalog, service, &Source::Workload(workload.clone()));
        }
        for slice in catalog.slices_of(&service.id) {
            backends.contribute(catalog, service, &Source::Slice(slice.id.clone(), None));
        }
        backends
    }

    /// What these sources contribute to a service.
    pub(super) fn from(catalog: &Catalog, service: &ServiceId, sources: &BTreeSet<Source>) -> Self {
        let mut backends = Self::default();
        if let Some(service) = catalog.services.get(service) {
            for source in sources {
                backends.contribute(catalog, service, source);
            }
        }
        backends
    }

    fn contribute(&mut self, catalog: &Catalog, service: &Service, source: &Source) {
        let bare = catalog.index.endpoint_budgets.is_cut(&service.id);
        match source {
            Source::Workload(id) => {
                let selected = catalog.index.selected.get(&service.id).is_some_and(|all| all.contains(id));
                let Some(workload) = catalog.workloads.get(id).filter(|_| selected) else { return };
                if catalog.in_mesh(workload) {
                    let sliced = catalog.index.slices_of.contains_key(&service.id);
                    self.add_selected(service, workload, sliced, bare);
                } else {
                    self.outside.add(id.clone(), 1);
                }
            }
            Source::Slice(id, only) => {
                let slices = catalog.index.slices_of.get(&service.id);
                let slice = slices.filter(|slices| slices.contains(id)).and_then(|_| catalog.slices.get(id));
                let Some(slice) = slice else { return };
                let ports = if bare { Vec::new() } else { ports_of(service, slice) };
                let selected = catalog.index.selected.get(&service.id).filter(|_| slice.follows_pods);
                for endpoint in &slice.endpoints {
                    for &ip in endpoint.addresses.iter().filter(|ip| only.is_none_or(|only| only == **ip)) {
                        if let Some(workload) = catalog.workload_at(slice, endpoint, ip) {
                            let follows = selected.is_some_and(|all| all.contains(&workload.id));
                            self.add_slice_endpoint(&ports, endpoint, ip, workload, follows);
                        }
                    }
                }
            }
        }
    }

    fn add_selected(&mut self, service: &Service, workload: &Workload, sliced: bool, bare: bool) {
        let machine = workload.id.is_machine();
        if machine && service.headless {
            return;
        }
        self.add_workload(workload);
        for port in service.ports.iter().filter(|_| !bare) {
            let target = match target_port(port, workload) {
                Ok(target) => target,
                Err(name) => {
                    self.lacking.add(name.to_owned(), workload.id.clone());
                    continue;
                }
            };
            let ips = workload.ips.iter().copied();
            self.add_target(workload, port, target, ips.clone().filter(|_| !machine));
            if machine || !sliced {
                for ip in ips.filter(|&ip| has_family(service, ip)) {
                    self.add_endpoint(Tier::of(workload.readiness), port, ip, target, workload);
                }
            }
        }
    }

    /// Adds an endpoint of a slice, which `follows` its pod where Kubernetes made it since the service
    /// selects the pod.
    fn add_slice_endpoint(
        &mut self,
        ports: &[(&ServicePort, u16)],
        endpoint: &SliceEndpoint,
        ip: IpAddr,
        workload: &Workload,
        follows: bool,
    ) {
        self.add_workload(workload);
        let tier = match (endpoint.readiness, workload.readiness) {
            // The slice says no more of such a pod than that it is not ready.
            (Readiness::NotReady, Readiness::NodeUnreachable) => Some(Tier::LastResort),
            // The slice is behind its pod, or the pod that is known is. Where it is so of all pods of a
            // service, as when nodes are heard of again, a service without endpoints would refuse requests.
            (Readiness::NotReady, pod) if follows => Tier::of(pod).map(|_| Tier::LastResort),
            (stated, _) => Tier::of(stated),
        };
        for &(port, target) in ports {
            self.add_target(workload, port, target, [ip]);
            self.add_endpoint(tier, port, ip, target, workload);
        }
    }

    fn add_workload(&mut self, workload: &Workload) {
        self.workloads.add(workload.id.clone(), 1);
        self.accounts.add(workload.service_account.clone(), 1);
    }

    fn add_target(
        &mut self,
        workload: &Workload,
        port: &ServicePort,
        target: u16,
        ips: impl IntoIterator<Item = IpAddr>,
    ) {
        self.targets.add((workload.id.clone(), target, port.protocol), 1);
        ips.into_iter().for_each(|ip| self.listening.add(port.port, (ip, target)));
    }

    fn add_endpoint(
        &mut self,
        tier: Option<Tier>,
        port: &ServicePort,
        ip: IpAddr,
        target: u16,
        workload: &Workload,
    ) {
        let endpoints = match tier {
            Some(Tier::Ready) => &mut self.ready,
            Some(Tier::LastResort) => &mut self.last_resort,
            None => return,
        };
        let (workload, service_account) = (workload.id.clone(), workload.service_account.clone());
        endpoints.add(port.port, Endpoint { ip, port: target, workload, service_account });
    }

    /// Adds a difference, or what other sources contribute.
    pub(super) fn add(&mut self, other: Self) {
        let Self { workloads, targets, accounts, listening, ready, last_resort, outside, lacking } = other;
        self.workloads.add_all(workloads);
        self.targets.add_all(targets);
        self.accounts.add_all(accounts);
        self.listening.add_all(listening);
        self.ready.add_all(ready);
        self.last_resort.add_all(last_resort);
        self.outside.add_all(outside);
        self.lacking.add_all(lacking);
    }

    /// Takes away what others contributed.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.workloads.subtract(&other.workloads);
        self.targets.subtract(&other.targets);
        self.accounts.subtract(&other.accounts);
        self.listening.subtract(&other.listening);
        self.ready.subtract(&other.ready);
        self.last_resort.subtract(&other.last_resort);
        self.outside.subtract(&other.outside);
        self.lacking.subtract(&other.lacking);
    }

    /// What `change` turns if it is added.
    pub(super) fn turned(&self, change: &Self) -> Turned {
        let turned = self.workloads.turned(&change.workloads).map(|(id, _)| id);
        let targets = turned.chain(self.targets.turned(&change.targets).map(|((id, ..), _)| id));
        Turned {
            endpoints: self.turns_endpoints(change),
            accounts: self.accounts.turned(&change.accounts).next().is_some(),
            listening: self.listening.turned(&change.listening).map(|(_, (ip, _))| *ip).collect(),
            targets: targets.cloned().collect(),
        }
    }

    /// Whether the endpoints of a port differ. Of a port that begins or ceases to have ready ones, it says so
    /// whatever those of last resort are.
    fn turns_endpoints(&self, change: &Self) -> bool {
        if self.ready.turned(&change.ready).next().is_some() {
            return true;
        }
        let mut turned = self.last_resort.turned(&change.last_resort);
        turned.any(|(port, _)| self.ready.of(port).next().is_none())
    }

    /// Whether the workloads and accounts that `change` turns begin, or cease, to be behind the service.
    pub(super) fn turned_workloads<'a>(
        &self,
        change: &'a Self,
    ) -> impl Iterator<Item = (&'a WorkloadId, bool)> {
        self.workloads.turned(&change.workloads)
    }

    /// As [`Self::turned_workloads`], the identities.
    pub(super) fn turned_accounts<'a>(
        &self,
        change: &'a Self,
    ) -> impl Iterator<Item = (&'a ServiceAccountId, bool)> {
        self.accounts.turned(&change.accounts)
    }

    /// How many workloads there are.
    pub(super) fn len(&self) -> usize {
        self.workloads.values().len()
    }

    /// The workloads, ready or not, sorted.
    pub(super) fn workloads(&self) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.values()
    }

    /// The ports of a workload that the service targets, sorted.
    pub(super) fn targets(&self, workload: &WorkloadId) -> impl Iterator<Item = (u16, AppProtocol)> {
        let from = (workload.clone(), 0, AppProtocol::Http);
        let of = self.targets.from(from).take_while(move |(id, ..)| id == workload);
        of.map(|(_, port, protocol)| (*port, *protocol))
    }

    /// The identities, sorted.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &ServiceAccountId> {
        self.accounts.values()
    }

    /// The addresses that pods listen on for a port of the service, sorted.
    pub(super) fn listening(&self, port: u16) -> impl Iterator<Item = (IpAddr, u16)> {
        self.listening.of(&port).copied()
    }

    /// Whether a pod listens there, for any port of the service.
    pub(super) fn is_listening(&self, at: (IpAddr, u16)) -> bool {
        self.listening.groups().any(|counts| counts.contains(&at))
    }

    /// The addresses that pods listen on, for any port of the service.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.listening.groups().flat_map(Counts::values).map(|(ip, _)| *ip).collect()
    }

    /// The selected workloads outside of the mesh, sorted.
    pub(super) fn outside(&self) -> impl ExactSizeIterator<Item = &WorkloadId> {
        self.outside.values()
    }

    /// The selected workloads in the mesh without a port of this name, sorted. None, if the service is over
    /// the budget of its namespace.
    pub(super) fn lacking(&self, name: &str) -> impl ExactSizeIterator<Item = &WorkloadId> {
        self.lacking.of(name)
    }

    /// The endpoints of a port of the service, sorted.
    pub(super) fn endpoints(&self, port: u16) -> impl Iterator<Item = &Endpoint> {
        let mut ready = self.ready.of(&port).peekable();
        let last_resort = ready.peek().is_none().then(|| self.last_resort.of(&port));
        ready.chain(last_resort.into_iter().flatten())
    }
}

/// The ports of a service that a slice has by name, with the number that each has there.
fn ports_of<'a>(service: &'a Service, slice: &EndpointSlice) -> Vec<(&'a ServicePort, u16)> {
    let mut named: BTreeMap<_, Vec<&ServicePort>> = BTreeMap::new();
    for port in &service.ports {
        named.entry(&port.name).or_default().push(port);
    }
    let numbers = |name| named.get(name).into_iter().flatten().copied();
    slice.ports.iter().flat_map(|port| numbers(&port.name).map(|of| (of, port.port))).collect()
}

/// The port of `workload` that `port` targets, or the name of a container port that the workload lacks.
fn target_port<'a>(port: &'a ServicePort, workload: &Workload) -> Result<u16, &'a str> {
    match &port.target {
        TargetPort::Number(number) => Ok(*number),
        TargetPort::Name(name) => workload.ports.get(name).copied().ok_or(name),
    }
}

/// Whether the service has addresses of the family of `ip`. A service without addresses (headless, or not
/// assigned yet) takes every family.
fn has_family(service: &Service, ip: IpAddr) -> bool {
    service.cluster_ips.is_empty() || service.cluster_ips.iter().any(|own| own.is_ipv4() == ip.is_ipv4())
}

impl Catalog {
    /// The slices of a service, sorted by name.
    pub(super) fn slices_of(
        &self,
        service: &smc_types::ids::ServiceId,
    ) -> impl Iterator<Item = &EndpointSlice> {
        self.index.slices_of.get(service).into_iter().flatten().filter_map(|name| self.slices.get(name))
    }

    /// The in-mesh pod that answers at `ip` of a slice: a pod of the slice's own namespace (one
    /// namespace must not draw another's pods behind its service) with this address, and with the name that
    /// the slice gives, if any. A terminating pod may keep its address in its status after a new pod got it,
    /// so of several workloads only a single ready one counts.
    pub(super) fn workload_at(
        &self,
        slice: &EndpointSlice,
        endpoint: &SliceEndpoint,
        ip: IpAddr,
    ) -> Option<&Workload> {
        let namespace = slice.id.namespace();
        let injects = |of_pod| self.namespaces.get(namespace).is_some_and(|own| own.injects(of_pod));
        let here = self.index.standing_at(ip, namespace);
        let here = here.filter(|(standing, _)| !standing.machine && injects(standing.injection));
        let (mut all, mut ready) = (Sole::default(), Sole::default());
        for (standing, pods) in here {
            let sole = match &endpoint.workload {
                Some(meant) => pods.get(meant).into(),
                None => Sole::of(pods),
            };
            all = all.and(sole);
            ready = if standing.ready { ready.and(sole) } else { ready };
        }
        all.only().or(ready.only()).and_then(|id| self.workload(id))
    }
}

/// The only one of several sets.
#[derive(Debug, Clone, Copy, Default)]
enum Sole<'a> {
    #[default]
    None,
    One(&'a WorkloadId),
    Several,
}

impl<'a> From<Option<&'a WorkloadId>> for Sole<'a> {
    fn from(id: Option<&'a WorkloadId>) -> Self {
        id.map_or(Self::None, Self::One)
    }
}

impl<'a> Sole<'a> {
    fn of(workloads: &'a BTreeSet<WorkloadId>) -> Self {
        if workloads.len() > 1 { Self::Several } else { workloads.first().into() }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, sole) | (sole, Self::None) => sole,
            _ => Self::Several,
        }
    }

    fn only(self) -> Option<&'a WorkloadId> {
        match self {
            Self::One(id) => Some(id),
            Self::None | Self::Several => None,
        }
    }
}
