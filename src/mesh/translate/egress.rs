//! The part of the outbound half that leads out of the mesh by name and network.
//!
//! Owns the clusters, routes and filter chains of Egresses. The listener chooses by port and network, then by
//! the name that TLS asks for; requests in clear text are chosen by their host, in a route configuration of
//! their own, so that what an object adds for HTTP ends no connection. Each name of TLS has a chain of its
//! own for the same reason.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;

use super::cluster;
use super::draft::Draft;
use super::listener::outbound::{Carriage, Chain, Transport};
use super::proto::Families;
use super::provenance::Objects;
use super::retry;
use super::route::{self, Destination};
use super::settings::Settings;
use smc_model::cidr::IpNet;
use smc_model::egress::{EgressHost, EgressPort, EgressPorts, EgressRoute, EgressTarget, EgressWay};
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;
use smc_xds::resource::ResourceType;

/// What is made of the ways out, beside the clusters and routes in the draft.
#[derive(Default)]
pub(super) struct Exits {
    pub(super) chains: Vec<Chain>,
    /// The ports on which TLS is looked at.
    pub(super) tls_ports: BTreeSet<u16>,
    /// The objects that the chains are made of.
    pub(super) objects: Objects,
}

/// Translates what of outside the mesh an identity may reach. An address and port that is `taken` is a
/// service of the mesh, whatever an Egress says.
pub(super) fn translate(
    ports: &EgressPorts,
    taken: &BTreeSet<(IpAddr, u16)>,
    settings: &Settings,
    families: Families,
    draft: &mut Draft<'_>,
) -> Exits {
    let mut walk = Walk { settings, families, clusters: BTreeMap::new(), exits: Exits::default() };
    // To a port of its own, the sidecar would connect in a loop.
    let own = [settings.outbound_port, settings.inbound_port];
    for (&number, port) in ports.iter().filter(|(number, _)| !own.contains(number)) {
        walk.port(number, port, taken, draft);
    }
    for (name, (message, objects)) in walk.clusters {
        draft.add(ResourceType::Cluster, &name, &message, &objects);
    }
    walk.exits
}

struct Walk<'a> {
    settings: &'a Settings,
    families: Families,
    clusters: BTreeMap<String, (Cluster, Objects)>,
    exits: Exits,
}

impl Walk<'_> {
    fn port(
        &mut self,
        number: u16,
        port: &EgressPort,
        taken: &BTreeSet<(IpAddr, u16)>,
        draft: &mut Draft<'_>,
    ) {
        let objects = &port.declared_by;
        self.exits.objects.extend(objects.iter().cloned());
        let mut used = BTreeSet::new();
        for (&network, way) in &port.networks {
            let is_address = network.prefix_len() == network.max_prefix_len();
            let is_service = is_address && taken.contains(&(network.addr(), number));
            if is_service || !self.families.have(network) {
                continue;
            }
            let name = names::egress(number, network);
            match way {
                EgressWay::Anything => {
                    let cluster = self.cluster(number, None, EgressTarget::Dialled, false, &mut used);
                    self.chain(name, number, network, Transport::Any, tcp(cluster));
                }
                EgressWay::ByName { tls, http } if tls.is_empty() && http.is_empty() => {
                    self.chain(name, number, network, Transport::Any, Carriage::Closed);
                }
                EgressWay::ByName { tls, http } => {
                    for (host, target) in tls {
                        self.exits.tls_ports.insert(number);
                        let cluster = self.cluster(number, Some(host), *target, false, &mut used);
                        let transport = Transport::Tls(host.clone());
                        self.chain(names::egress_tls(&name, host), number, network, transport, tcp(cluster));
                    }
                    if !http.is_empty() {
                        let carriage = self.requests(&name, number, http, objects, &mut used, draft);
                        self.chain(name, number, network, Transport::ClearText, carriage);
                    }
                }
            }
        }
        for name in used {
            if let Some((_, of)) = self.clusters.get_mut(&name) {
                of.extend(objects.iter().cloned());
            }
        }
    }

    fn chain(&mut self, name: String, port: u16, network: IpNet, transport: Transport, carriage: Carriage) {
        self.exits.chains.push(Chain { name, port, networks: vec![network], transport, carriage });
    }

    /// The requests of one network and port, with their route configuration.
    fn requests(
        &mut self,
        name: &str,
        port: u16,
        http: &BTreeMap<EgressHost, Vec<EgressRoute>>,
        objects: &Objects,
        used: &mut BTreeSet<String>,
        draft: &mut Draft<'_>,
    ) -> Carriage {
        let mut hosts: Vec<(&EgressHost, Vec<(&EgressRoute, String)>)> = Vec::with_capacity(http.len());
        for (host, routes) in http {
            let routes = routes.iter().map(|route| {
                let cluster = self.cluster(port, Some(host), route.target, true, used);
                (route, cluster)
            });
            hosts.push((host, routes.collect()));
        }
        let retries = retry::of_strangers(self.settings.request_retries);
        let message = route::egress(name, port, &hosts, retries.as_ref());
        draft.add(ResourceType::Route, name, &message, objects);
        let restricts = http.values().flatten().any(|route| route.matched.is_some());
        Carriage::Outside { route: name.to_owned(), restricts }
    }

    /// The cluster of what goes to this host. Only a single name can be resolved.
    fn cluster(
        &mut self,
        port: u16,
        host: Option<&EgressHost>,
        target: EgressTarget,
        http: bool,
        used: &mut BTreeSet<String>,
    ) -> String {
        let protocol = if http { AppProtocol::Http } else { AppProtocol::Tcp };
        let (name, message) = if let (EgressTarget::Resolved, Some(EgressHost::Named(host))) = (target, host)
        {
            let name = names::egress_host(host, port, http);
            (name.clone(), cluster::resolved(name, host, port, protocol, self.families))
        } else {
            let name = names::egress_dialled(http);
            (name.clone(), cluster::dialled(name, protocol))
        };
        if used.insert(name.clone()) {
            self.clusters.entry(name.clone()).or_insert_with(|| (message, Objects::new()));
        }
        name
    }
}

fn tcp(cluster: String) -> Carriage {
    Carriage::Tcp { destination: Destination::One(cluster), by_caller: false }
}

#[cfg(test)]
mod tests;
