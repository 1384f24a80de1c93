//! What of outside the mesh may reach an identity.
//!
//! Owns which IngressBackends open which ports of a class, and which addresses their sources have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Catalog;
use super::backends::Backends;
use crate::policy::{IngressAttempt, IngressCheck, MAX_IDENTITY, Opening, check_ingress};
use smc_api::osm::ingress_backend::{BackendPort, IngressBackend};
use smc_model::cidr::IpNet;
use smc_model::http_match::{HttpMatch, MethodSet};
use smc_model::inbound_intent::HttpAccess;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::proxy_class::{InboundPort, ProxyClass};

/// The most addresses that the sources of one IngressBackend stand for. A mesh has some tens of pods of
/// gateways; each address is written out on every port that the object opens.
pub(super) const MAX_ADDRESSES: usize = 1024;

impl Catalog {
    /// The IngressBackend of this name.
    pub fn ingress_backend(&self, id: &NamespacedName) -> Option<&IngressBackend> {
        self.ingress_backends.get(id).map(AsRef::as_ref)
    }

    /// What IngressBackends open of the ports of a class, sorted by object. Nothing, where the mesh ignores
    /// them.
    pub(super) fn openings<'a>(&'a self, class: &'a ProxyClass) -> Vec<Opening<'a>> {
        if self.index.ingress_to.is_empty() || self.mesh_config().ignores_ingress {
            return Vec::new();
        }
        let services: BTreeSet<_> = class.inbound.iter().flat_map(|port| &port.services).collect();
        let objects: BTreeSet<_> =
            services.iter().filter_map(|service| self.index.ingress_to.get(*service)).flatten().collect();
        let opening = |id: &NamespacedName| {
            let object = self.ingress_backend(id)?;
            let own = object.backends.iter().filter(|opened| services.contains(&opened.service));
            let ports = own.filter_map(|opened| Some((opened, opened_port(opened, class)?)));
            let ports: Vec<_> = ports.collect();
            (!ports.is_empty()).then_some(Opening { object, ports })
        };
        objects.into_iter().filter_map(opening).collect()
    }

    /// What becomes of an attempt from outside at a workload; `None` for one that has no sidecar.
    pub fn check_ingress(&self, workload: &WorkloadId, attempt: &IngressAttempt) -> Option<IngressCheck> {
        let class = self.class(workload)?;
        Some(check_ingress(&self.inbound_intent(class, MAX_IDENTITY).ingress, attempt))
    }

    /// The requests that IngressBackends let in to a service, by the host that they are for: `*` is any. The
    /// `GetIngressRoutesPerHost` of the original design. The host is a regular expression, as the
    /// HTTPRouteGroup has it in its header `host`; a source of the requests has to be let in as well.
    pub fn ingress_routes_per_host(&self, service: &ServiceId) -> BTreeMap<String, BTreeSet<HttpMatch>> {
        let mut hosts: BTreeMap<String, BTreeSet<HttpMatch>> = BTreeMap::new();
        let mut add = |route: HttpMatch| {
            let host = route.headers.get("host");
            let host = host.map_or_else(|| "*".to_owned(), |value| value.matching().as_str().to_owned());
            hosts.entry(host).or_default().insert(route);
        };
        let accounts = self.accounts_behind(service);
        for class in accounts.iter().flat_map(|account| self.classes(account)) {
            let own = class.inbound.iter().filter(|inbound| inbound.services.contains(service));
            let ports: BTreeSet<_> = own.map(|inbound| inbound.port).collect();
            let chains = self.inbound_intent(class, MAX_IDENTITY).ingress;
            let chains = chains.into_iter().filter(|chain| ports.contains(&chain.port));
            for grant in chains.flat_map(|chain| chain.grants) {
                match grant.http {
                    HttpAccess::Any => {
                        add(HttpMatch { path: None, methods: MethodSet::Any, headers: BTreeMap::new() });
                    }
                    HttpAccess::Only(routes) => routes.iter().cloned().for_each(&mut add),
                }
            }
        }
        hosts
    }

    /// How many networks the sources of an IngressBackend stand for at most.
    pub(super) fn count_ingress_addresses(&self, object: &IngressBackend) -> usize {
        let sources = object.sources.addresses.iter();
        let count = sources.map(|sources| {
            let behind =
                sources.services.iter().filter_map(|service| self.index.source_addresses.get(service));
            behind.map(BTreeSet::len).fold(sources.ranges.len(), usize::saturating_add)
        });
        count.sum::<usize>().min(MAX_ADDRESSES)
    }

    /// The networks that the sources of an IngressBackend stand for, as many as are heeded: its ranges, and
    /// then the endpoints of each service. `None` if they name none.
    pub(super) fn ingress_addresses(&self, object: &IngressBackend) -> Option<BTreeSet<IpNet>> {
        let sources = object.sources.addresses.as_ref()?;
        let behind = sources.services.iter().filter_map(|service| self.index.source_addresses.get(service));
        let mut addresses = sources.ranges.clone();
        for address in behind.flatten() {
            if addresses.len() >= MAX_ADDRESSES {
                break;
            }
            addresses.insert(IpNet::from(*address));
        }
        Some(addresses)
    }

    /// Brings the addresses of services up to date that are, or were, named as sources. Returns the
    /// IngressBackends that name one whose addresses differ.
    pub(super) fn turned_sources(&mut self, services: BTreeSet<ServiceId>) -> BTreeSet<NamespacedName> {
        let mut turned = BTreeSet::new();
        for service in services {
            let naming = self.index.ingress_from.get(&service);
            let now = naming.map(|_| self.ingress_source(&service)).unwrap_or_default();
            let before = self.index.source_addresses.get(&service);
            if before.map_or(now.is_empty(), |before| *before == now) {
                continue;
            }
            turned.extend(naming.into_iter().flatten().cloned());
            if now.is_empty() {
                self.index.source_addresses.remove(&service);
            } else {
                self.index.source_addresses.insert(service, now);
            }
        }
        turned
    }

    /// The addresses of what stands behind a service, in the mesh or not, ready or not, as many as are
    /// heeded: those of its EndpointSlices, or of the pods that it selects if it has none. Nothing, where the
    /// service is of no namespace of the mesh.
    pub fn ingress_source(&self, service: &ServiceId) -> BTreeSet<IpAddr> {
        let mut addresses = BTreeSet::new();
        if !self.services.contains_key(service) || !self.monitors(service.namespace()) {
            return addresses;
        }
        let mut add = |of: &mut dyn Iterator<Item = IpAddr>| {
            for address in of {
                if addresses.len() >= MAX_ADDRESSES {
                    break;
                }
                addresses.insert(address);
            }
        };
        if self.index.slices_of.contains_key(service) {
            let endpoints = self.slices_of(service).flat_map(|slice| &slice.endpoints);
            add(&mut endpoints.flat_map(|endpoint| &endpoint.addresses).copied());
        } else {
            let selected = self.index.selected.get(service).into_iter().flatten();
            let pods = selected.filter(|id| !id.is_machine()).filter_map(|id| self.workload(id));
            add(&mut pods.flat_map(|pod| &pod.ips).copied());
        }
        addresses
    }

    /// The identities behind the backends of these IngressBackends.
    pub(super) fn accounts_opened_by<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a NamespacedName>,
    ) -> BTreeSet<ServiceAccountId> {
        let objects = objects.into_iter().filter_map(|id| self.ingress_backend(id));
        let services: BTreeSet<_> =
            objects.flat_map(|object| &object.backends).map(|opened| &opened.service).collect();
        services.into_iter().flat_map(|service| self.accounts_behind(service)).collect()
    }

    /// The ports of workloads behind a service, as an ingress finds them, each with its protocol.
    pub(super) fn ports_for_ingress(&self, service: &ServiceId) -> BTreeMap<u16, IngressPort> {
        let mut ports = BTreeMap::new();
        let accounts = self.index.backends.get(service).into_iter().flat_map(Backends::accounts);
        for class in accounts.flat_map(|account| self.classes(account)) {
            for inbound in class.inbound.iter().filter(|inbound| inbound.services.contains(service)) {
                let first = first_http(class, inbound.port);
                let found = match first {
                    None => IngressPort::WithoutHttp,
                    Some(first) if first.services.contains(service) => IngressPort::Open,
                    Some(first) => IngressPort::OfAnother(first.services.first().cloned()),
                };
                ports.entry(inbound.port).or_insert(found);
            }
        }
        ports
    }
}

/// What an ingress finds at a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IngressPort {
    Open,
    WithoutHttp,
    /// The services declare two protocols over HTTP, and it is reached in that of another one.
    OfAnother(Option<ServiceId>),
}

/// The inbound port that an IngressBackend opens by one of its backends. A port that services declare in two
/// protocols over HTTP is reached in the first.
fn opened_port<'a>(opened: &BackendPort, class: &'a ProxyClass) -> Option<&'a InboundPort> {
    first_http(class, opened.port).filter(|inbound| inbound.services.contains(&opened.service))
}

fn first_http(class: &ProxyClass, port: u16) -> Option<&InboundPort> {
    let from = class.inbound.partition_point(|inbound| inbound.port < port);
    let mut same = class.inbound.iter().skip(from).take_while(|inbound| inbound.port == port);
    same.find(|inbound| inbound.protocol.is_http())
}
