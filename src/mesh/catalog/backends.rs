//! The backends of one service: workloads, identities, addresses, endpoints.
//!
//! Owns the rules by which they follow from the service, its selected pods, its EndpointSlices and the
//! machines that name it. [`super::index`] caches them; an event recomputes them for the services that it
//! affects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Catalog, Endpoint};
use smc_model::topology::{
    EndpointSlice, Readiness, Service, ServicePort, SliceEndpoint, TargetPort, Workload,
};
use smc_types::ids::{ServiceAccountId, WorkloadId};
use smc_types::proxy_class::AppProtocol;

/// The in-mesh backends of one service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Backends {
    /// Each workload behind the service, ready or not, and the ports of it that the service targets.
    pub(super) targets: BTreeMap<WorkloadId, BTreeSet<(u16, AppProtocol)>>,
    /// Their identities, ready or not, so that a change of readiness changes no listener and no certificate
    /// validation.
    pub(super) accounts: BTreeSet<ServiceAccountId>,
    /// The addresses that pods behind the service listen on, per service port, ready or not for the same
    /// reason. Callers of a headless service dial them, so a machine's are not among them: the platform says
    /// which address a pod has, but a MeshWorkload's author may write any, and with the address of another
    /// host would take what callers send there.
    pub(super) listening: BTreeMap<u16, BTreeSet<(IpAddr, u16)>>,
    /// The endpoints, per service port, sorted. Every declared port has an entry.
    pub(super) endpoints: BTreeMap<u16, Vec<Endpoint>>,
}

impl Backends {
    /// Computes the backends of `service`.
    ///
    /// Its endpoints are the ready pods it selects, or where there is none for a port, those of last resort
    /// ([`Readiness::is_last_resort`]). EndpointSlices of the service take precedence, also for readiness,
    /// which Kubernetes overrides for `publishNotReadyAddresses`: their author knows more than the selector
    /// says. A machine that names the service is an endpoint beside both, and only so: no selector and no
    /// slice makes it one. A headless service leads to no machine.
    pub(super) fn of(catalog: &Catalog, service: &Service) -> Self {
        let mut backends = Self {
            endpoints: service.ports.iter().map(|port| (port.port, Vec::new())).collect(),
            ..Self::default()
        };
        let mut last_resort: BTreeMap<u16, Vec<Endpoint>> = BTreeMap::new();
        let sliced = catalog.index.slices_of.contains_key(&service.id);
        for id in catalog.index.selected.get(&service.id).into_iter().flatten() {
            let Some(workload) = catalog.workloads.get(id).filter(|w| catalog.in_mesh(w)) else { continue };
            let machine = workload.id.is_machine();
            if machine && service.headless {
                continue;
            }
            backends.add_workload(workload);
            for port in &service.ports {
                let Some(target) = target_port(port, workload) else { continue };
                backends.add_target(
                    workload,
                    port,
                    target,
                    workload.ips.iter().copied().filter(|_| !machine),
                );
                if machine || !sliced {
                    for ip in workload.ips.iter().copied().filter(|&ip| has_family(service, ip)) {
                        let to = backends.tier(workload.readiness, &mut last_resort);
                        add_endpoint(to, port, ip, target, workload);
                    }
                }
            }
        }
        for slice in catalog.slices_of(&service.id) {
            for endpoint in &slice.endpoints {
                for &ip in &endpoint.addresses {
                    if let Some(workload) = catalog.workload_at(slice, endpoint, ip) {
                        backends.add_slice_endpoint(&mut last_resort, service, slice, endpoint, ip, workload);
                    }
                }
            }
        }
        for (port, endpoints) in &mut backends.endpoints {
            if endpoints.is_empty() {
                endpoints.extend(last_resort.remove(port).unwrap_or_default());
            }
            endpoints.sort_unstable();
            endpoints.dedup();
        }
        backends
    }

    fn add_slice_endpoint(
        &mut self,
        last_resort: &mut BTreeMap<u16, Vec<Endpoint>>,
        service: &Service,
        slice: &EndpointSlice,
        endpoint: &SliceEndpoint,
        ip: IpAddr,
        workload: &Workload,
    ) {
        self.add_workload(workload);
        let readiness = match (endpoint.readiness, workload.readiness) {
            // The slice says no more of such a pod than that it is not ready.
            (Readiness::NotReady, Readiness::NodeUnreachable) => Readiness::NodeUnreachable,
            (stated, _) => stated,
        };
        for slice_port in &slice.ports {
            for port in service.ports.iter().filter(|port| port.name == slice_port.name) {
                self.add_target(workload, port, slice_port.port, [ip]);
                let to = self.tier(readiness, last_resort);
                add_endpoint(to, port, ip, slice_port.port, workload);
            }
        }
    }

    /// The endpoints to which one of this readiness belongs, if to any.
    fn tier<'a>(
        &'a mut self,
        readiness: Readiness,
        last_resort: &'a mut BTreeMap<u16, Vec<Endpoint>>,
    ) -> Option<&'a mut BTreeMap<u16, Vec<Endpoint>>> {
        if readiness.is_ready() {
            Some(&mut self.endpoints)
        } else {
            readiness.is_last_resort().then_some(last_resort)
        }
    }

    fn add_workload(&mut self, workload: &Workload) {
        self.targets.entry(workload.id.clone()).or_default();
        self.accounts.insert(workload.service_account.clone());
    }

    fn add_target(
        &mut self,
        workload: &Workload,
        port: &ServicePort,
        target: u16,
        ips: impl IntoIterator<Item = IpAddr>,
    ) {
        self.targets.entry(workload.id.clone()).or_default().insert((target, port.protocol));
        self.listening.entry(port.port).or_default().extend(ips.into_iter().map(|ip| (ip, target)));
    }
}

fn add_endpoint(
    endpoints: Option<&mut BTreeMap<u16, Vec<Endpoint>>>,
    port: &ServicePort,
    ip: IpAddr,
    target: u16,
    workload: &Workload,
) {
    let Some(endpoints) = endpoints else { return };
    endpoints.entry(port.port).or_default().push(Endpoint {
        ip,
        port: target,
        workload: workload.id.clone(),
        service_account: workload.service_account.clone(),
    });
}

/// The port of `workload` that `port` targets; `None` if it names a container port that the pod lacks.
pub(super) fn target_port(port: &ServicePort, workload: &Workload) -> Option<u16> {
    match &port.target {
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => workload.ports.get(name).copied(),
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
        let key = (ip, slice.id.namespace().to_owned());
        let candidates = self.index.at_address.get(&key)?.iter();
        let candidates: Vec<&Workload> = candidates
            .filter(|id| !id.is_machine())
            .filter(|id| endpoint.workload.as_ref().is_none_or(|meant| meant == *id))
            .filter_map(|id| self.workload(id))
            .filter(|workload| self.in_mesh(workload))
            .collect();
        if let [only] = candidates[..] {
            return Some(only);
        }
        let mut ready = candidates.into_iter().filter(|workload| workload.readiness.is_ready());
        ready.next().filter(|_| ready.next().is_none())
    }
}
