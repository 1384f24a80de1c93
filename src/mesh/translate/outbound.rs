//! The outbound half of a snapshot: the services that an identity may call.
//!
//! Owns the walk over these services. The result depends on the intent and on the address families, not on
//! the identity, so identities of equal intents share it. In permissive mode most do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;

use super::cluster::Limits;
use super::draft::{Draft, Part};
use super::endpoint::EndpointSet;
use super::intern::Interner;
use super::listener::outbound::{self as listener, Carriage, Chain, Transport};
use super::ordered_struct::DescribedCluster;
use super::proto::Families;
use super::provenance::{self, Objects};
use super::reports::{Half, Reports};
use super::route::{self, Arm, Destination};
use super::settings::Settings;
use super::{cluster, egress, request_metrics, retry, secret};
use crate::catalog::Topology;
use smc_authority::pki::TrustBundle;
use smc_model::cidr::IpNet;
use smc_model::outbound_intent::{OutboundIntent, PortRoutes, Route};
use smc_model::topology::{Service, ServicePort, SessionAffinity};
use smc_types::ids::{ServiceAccountId, ServiceId};
use smc_xds::names;
use smc_xds::resource::ResourceType;

/// Translates what an identity may call.
pub(super) fn translate(
    intent: &OutboundIntent,
    topology: Topology<'_>,
    settings: &Settings,
    bundle: &TrustBundle,
    families: Families,
    interner: &mut Interner,
) -> Part {
    let mut walk = Walk {
        intent,
        retried: retried(intent),
        topology,
        settings,
        bundle,
        draft: Draft::new(interner),
        taken: BTreeSet::new(),
        chains: Vec::new(),
        listener_objects: Objects::new(),
        leaves: BTreeSet::new(),
    };
    for (id, accounts) in intent.services.iter() {
        if let Some(service) = topology.service(id) {
            walk.service(service, accounts);
        }
    }
    walk.unreachable_leaves();
    let Walk { mut draft, taken, mut chains, mut listener_objects, .. } = walk;
    let exits = egress::translate(&intent.egress, &taken, settings, families, &mut draft);
    chains.extend(exits.chains);
    listener_objects.extend(exits.objects);
    if intent.passthrough {
        draft.add(
            ResourceType::Cluster,
            names::PASSTHROUGH_CLUSTER,
            &cluster::passthrough(),
            &Objects::new(),
        );
    }
    let (log, half) = (&intent.access_log, Half::Outbound);
    let traced = intent.tracing.as_ref().filter(|_| chains.iter().any(Chain::is_http));
    let mut reports = Reports::of(log, traced, half, families, &mut draft, &mut listener_objects);
    if let Some(config) = &intent.request_metrics {
        reports.log.http.push(request_metrics::counting());
        listener_objects.insert(config.clone());
    }
    let (passthrough, port) = (intent.passthrough, settings.outbound_port);
    let listener = listener::listener(chains, &exits.tls_ports, passthrough, families, port, &reports);
    draft.add(ResourceType::Listener, names::OUTBOUND_LISTENER, &listener, &listener_objects);
    draft.finish()
}

/// The services whose clusters carry calls for which a person declared when they are sent again, with the
/// objects that do: those that the policies name, and those that splits of these lead to.
fn retried(intent: &OutboundIntent) -> BTreeMap<&ServiceId, Objects> {
    let mut retried: BTreeMap<&ServiceId, Objects> = BTreeMap::new();
    for (id, policy) in intent.retries.iter() {
        let ports = intent.routes.get(id).into_iter().flat_map(|ports| ports.values());
        for service in ports.flat_map(PortRoutes::backends).chain([id]) {
            retried.entry(service).or_default().insert(policy.by.clone());
        }
    }
    retried
}

struct Walk<'a> {
    intent: &'a OutboundIntent,
    retried: BTreeMap<&'a ServiceId, Objects>,
    topology: Topology<'a>,
    settings: &'a Settings,
    bundle: &'a TrustBundle,
    draft: Draft<'a>,
    /// The addresses and ports that chains match. Envoy refuses a listener in which two chains
    /// match the same.
    taken: BTreeSet<(IpAddr, u16)>,
    chains: Vec<Chain>,
    /// The objects that the chains are made of.
    listener_objects: Objects,
    /// The backends of splits, with the port.
    leaves: BTreeSet<(ServiceId, u16)>,
}

impl Walk<'_> {
    /// Adds the clusters of a service, and a filter chain for each port.
    fn service(&mut self, service: &Service, accounts: &BTreeSet<ServiceAccountId>) {
        let routes = self.intent.routes.get(&service.id);
        self.identities(&service.id, accounts);
        let only = self.restriction(&service.id, accounts);
        for port in &service.ports {
            self.cluster(service, port, only.clone());
            let routes = routes.and_then(|routes| routes.get(&port.port));
            let leaves = routes.into_iter().flat_map(PortRoutes::backends);
            self.leaves.extend(leaves.map(|leaf| (leaf.clone(), port.port)));
            let dialled = self.dialled(service, port);
            if !dialled.is_empty() {
                self.chains(service, port, dialled, routes);
            }
        }
    }

    /// Adds a cluster without endpoints for each backend of a split that the identity may not call.
    /// Its share of the requests fails (503) instead of going to the other backends, and no route
    /// refers to a missing cluster.
    fn unreachable_leaves(&mut self) {
        let no_accounts = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for (id, number) in std::mem::take(&mut self.leaves) {
            let Some(service) = self.topology.service(&id) else { continue };
            let Some(port) = service.ports.iter().find(|port| port.port == number) else { continue };
            if !self.intent.services.contains_key(&id) {
                if seen.insert(id.clone()) {
                    self.identities(&id, &no_accounts);
                }
                self.cluster(service, port, self.restriction(&id, &no_accounts));
            }
        }
    }

    /// Adds the validation context of connections to the service.
    fn identities(&mut self, service: &ServiceId, accounts: &BTreeSet<ServiceAccountId>) {
        let name = names::outbound_validation(service);
        let message = secret::exactly(&name, self.settings, self.bundle, accounts);
        self.draft.add_secret(&message);
    }

    /// The identities that endpoints are limited to; `None` if those are all identities behind the service.
    fn restriction(
        &self,
        service: &ServiceId,
        accounts: &BTreeSet<ServiceAccountId>,
    ) -> Option<Arc<BTreeSet<ServiceAccountId>>> {
        (self.topology.accounts_behind(service) != *accounts).then(|| Arc::new(accounts.clone()))
    }

    fn cluster(
        &mut self,
        service: &Service,
        port: &ServicePort,
        only: Option<Arc<BTreeSet<ServiceAccountId>>>,
    ) {
        let endpoints = names::endpoints(&service.id, port.port, only.as_deref());
        let (limits, objects) = self.limits(&service.id, port);
        let message =
            cluster::service(&service.id, port.port, port.protocol, &endpoints, service.affinity, limits);
        let message = self.described(message, &service.id, port);
        let set = EndpointSet { service: service.id.clone(), port: port.port, only };
        self.draft.add_eds_cluster(&message, &endpoints, set, &objects);
    }

    /// The cluster of a port of a service, as the metrics of requests call it.
    fn described(&self, cluster: Cluster, service: &ServiceId, port: &ServicePort) -> DescribedCluster {
        let counted = self.intent.request_metrics.is_some() && port.protocol.is_http();
        request_metrics::described(cluster, service, counted)
    }

    /// What bounds the calls to a port of a service, and the objects that its clusters are made of.
    fn limits(&self, id: &ServiceId, port: &ServicePort) -> (Limits<'_>, Objects) {
        let declared = self.intent.connections.get(id);
        let retried = self.retried.get(id).filter(|_| port.protocol.is_http());
        let mut objects = provenance::service(id);
        objects.extend(declared.map(|declared| declared.by.clone()));
        objects.extend(retried.into_iter().flatten().cloned());
        let tls = self.intent.tls.as_ref();
        objects.extend(tls.map(|declared| declared.by.clone()));
        let curves = tls.map_or(&[][..], |declared| &declared.what.curves);
        let connections = declared.map(|declared| declared.what).unwrap_or_default();
        (Limits { connections, retried: retried.is_some(), curves }, objects)
    }

    /// The addresses of a service port, by destination port, without those that an earlier service or port
    /// of the namespace has. Of a headless service they are the pods' addresses, and the port is each pod's
    /// own. Services come sorted by name, so the result does not depend on the order of events. The catalog
    /// decides between namespaces, and reports virtual addresses of two services; headless services may
    /// share pods.
    fn dialled(&mut self, service: &Service, port: &ServicePort) -> BTreeMap<u16, Vec<IpAddr>> {
        let addresses = self.topology.dialled(service, port);
        let mut free: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (ip, number) in addresses {
            if self.taken.insert((ip, number)) {
                free.entry(number).or_default().push(ip);
            }
        }
        free
    }

    fn chains(
        &mut self,
        service: &Service,
        port: &ServicePort,
        dialled: BTreeMap<u16, Vec<IpAddr>>,
        routes: Option<&PortRoutes>,
    ) {
        let arms = match routes {
            Some(routes) => self.split_arms(&routes.routes, service, port),
            None => vec![unsplit(service, self.whole(service, port))],
        };
        let mut objects = provenance::service(&service.id);
        // Not `append`, which makes the whole set again.
        self.listener_objects.extend(objects.iter().cloned());
        objects.extend(routes.into_iter().flat_map(|routes| routes.declared_by.iter().cloned()));
        let carriage = if port.protocol.is_http() {
            let route = names::outbound_route(&service.id, port.port);
            let declared = self.intent.retries.get(&service.id);
            objects.extend(declared.map(|declared| declared.by.clone()));
            let declared = declared.map(|declared| &declared.what);
            let retries = retry::policy(self.settings.request_retries, declared);
            let message = route::outbound(&route, &arms, retries);
            self.draft.add(ResourceType::Route, &route, &message, &objects);
            let by_caller = arms.iter().any(|arm| arm.by_caller);
            Carriage::Http { route, host: service.id.fqdn(), by_caller }
        } else {
            self.listener_objects.extend(objects);
            // There are no requests to match, so only the arm that takes everything applies.
            let rest = arms.into_iter().find(|arm| arm.matches.is_none());
            let Arm { destination, by_caller, .. } =
                rest.unwrap_or_else(|| unsplit(service, names::cluster(&service.id, port.port)));
            Carriage::Tcp { destination, by_caller }
        };
        let own = names::outbound_chain(&service.id, port.port, port.protocol);
        for (number, mut addresses) in dialled {
            addresses.sort_unstable();
            let name = if service.headless { names::headless_chain(&own, number) } else { own.clone() };
            let networks = addresses.into_iter().map(IpNet::from).collect();
            let (transport, carriage) = (Transport::Any, carriage.clone());
            self.chains.push(Chain { name, networks, transport, port: number, carriage });
        }
    }

    /// The arms of a split, with clusters for services. Backends are called on the root's port. What
    /// stays with the root goes where it goes without a split.
    fn split_arms(&mut self, routes: &[Route], service: &Service, port: &ServicePort) -> Vec<Arm> {
        let stays = routes.iter().flat_map(|route| &route.backends).any(|(leaf, _)| *leaf == service.id);
        let root = stays.then(|| self.whole(service, port));
        let cluster = |leaf: &ServiceId| match &root {
            Some(root) if *leaf == service.id => root.clone(),
            _ => names::cluster(leaf, port.port),
        };
        let arms = routes.iter().filter_map(|arm| {
            let weights = arm.backends.iter().map(|(leaf, weight)| (cluster(leaf), *weight));
            let by_caller = arm.backends.iter().any(|(leaf, _)| {
                if *leaf == service.id {
                    keeps(service)
                } else {
                    self.topology.service(leaf).is_some_and(balanced_by_caller)
                }
            });
            Some(Arm {
                matches: arm.matches.clone(),
                destination: Destination::weighted(weights)?,
                by_caller,
            })
        });
        arms.collect()
    }

    /// The cluster of what goes to the service itself.
    fn whole(&mut self, service: &Service, port: &ServicePort) -> String {
        if !service.headless {
            return names::cluster(&service.id, port.port);
        }
        let name = names::pod_cluster(&service.id, port.port);
        let (limits, objects) = self.limits(&service.id, port);
        let message = cluster::pod(&service.id, port.port, port.protocol, limits);
        let message = self.described(message, &service.id, port);
        self.draft.add(ResourceType::Cluster, &name, &message, &objects);
        name
    }
}

/// Everything goes to this cluster of the service.
fn unsplit(service: &Service, cluster: String) -> Arm {
    Arm { matches: None, destination: Destination::One(cluster), by_caller: keeps(service) }
}

/// Whether the cluster of what goes to the service itself picks its pod by the caller. That of a headless
/// service goes where its caller dialled.
fn keeps(service: &Service) -> bool {
    !service.headless && balanced_by_caller(service)
}

/// Whether the cluster of its endpoints picks one by the caller.
fn balanced_by_caller(service: &Service) -> bool {
    service.affinity == SessionAffinity::ClientIp
}

#[cfg(test)]
mod tests;
