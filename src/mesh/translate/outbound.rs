//! The outbound half of a snapshot: everything that an identity may call.
//!
//! Owns the walk over the reachable services. The result depends on what is reachable and on the address
//! families, not on who asks, so identities with the same reach share it (in permissive mode: all).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::draft::{Draft, Part};
use super::endpoint::EndpointSet;
use super::intern::Interner;
use super::listener::outbound::{self as listener, Carriage, Chain};
use super::proto::Families;
use super::route::{self, Arm, Destination};
use super::settings::Settings;
use super::{cluster, names, secret};
use crate::catalog::{Catalog, Service, ServicePort};
use crate::ids::{ServiceAccountId, ServiceId};
use crate::pki::TrustBundle;
use crate::policy::{self, SplitPlan};
use crate::resource::ResourceType;

/// The services an identity may call, each with the identities behind it that it may reach.
pub(super) type Reach = BTreeMap<ServiceId, BTreeSet<ServiceAccountId>>;

/// Translates a reach.
pub(super) fn translate(
    catalog: &Catalog,
    settings: &Settings,
    bundle: &TrustBundle,
    reach: &Reach,
    families: Families,
    interner: &mut Interner,
) -> Part {
    let egress = catalog.mesh_config().egress;
    let mut walk = Walk {
        catalog,
        settings,
        bundle,
        draft: Draft::new(interner),
        taken: BTreeSet::new(),
        chains: Vec::new(),
        leaves: BTreeSet::new(),
    };
    for (service, accounts) in reach {
        if let Some(service) = catalog.service(service) {
            walk.service(service, accounts);
        }
    }
    walk.unreachable_leaves(reach);
    let Walk { mut draft, chains, .. } = walk;
    if egress {
        draft.add(ResourceType::Cluster, names::PASSTHROUGH_CLUSTER, &cluster::passthrough());
    }
    let listener = listener::listener(chains, egress, families, settings.outbound_port);
    draft.add(ResourceType::Listener, names::OUTBOUND_LISTENER, &listener);
    draft.finish()
}

struct Walk<'a> {
    catalog: &'a Catalog,
    settings: &'a Settings,
    bundle: &'a TrustBundle,
    draft: Draft<'a>,
    /// The addresses and ports that lead somewhere. Envoy refuses a listener in which two chains match the same.
    taken: BTreeSet<(IpAddr, u16)>,
    chains: Vec<Chain>,
    /// Leaves of splits, with the port.
    leaves: BTreeSet<(ServiceId, u16)>,
}

impl Walk<'_> {
    /// A service that may be called: its clusters, and a chain for each port.
    fn service(&mut self, service: &Service, accounts: &BTreeSet<ServiceAccountId>) {
        self.identities(&service.id, accounts);
        let only = self.restriction(&service.id, accounts);
        for port in &service.ports {
            self.cluster(&service.id, port, only.clone());
            let plan = policy::split_plan(self.catalog, &service.id, port);
            if let Some(plan) = &plan {
                let leaves = plan.arms.iter().flat_map(|arm| &arm.weights);
                self.leaves.extend(leaves.map(|(leaf, _)| (leaf.clone(), port.port)));
            }
            let dialled = self.dialled(service, port);
            if !dialled.is_empty() {
                self.chains(service, port, dialled, plan.as_ref());
            }
        }
    }

    /// Leaves of splits that the identity may not reach: a cluster without endpoints, so that their share
    /// fails (503) instead of going to the others or dangling.
    fn unreachable_leaves(&mut self, reach: &Reach) {
        let nobody = BTreeSet::new();
        let mut named = BTreeSet::new();
        for (id, number) in std::mem::take(&mut self.leaves) {
            let service = self.catalog.service(&id);
            let Some(port) =
                service.and_then(|service| service.ports.iter().find(|port| port.port == number))
            else {
                continue;
            };
            if !reach.contains_key(&id) {
                if named.insert(id.clone()) {
                    self.identities(&id, &nobody);
                }
                self.cluster(&id, port, self.restriction(&id, &nobody));
            }
        }
    }

    /// Who may answer for the service.
    fn identities(&mut self, service: &ServiceId, accounts: &BTreeSet<ServiceAccountId>) {
        let name = names::outbound_validation(service);
        let message = secret::exactly(&name, self.settings, self.bundle, accounts);
        self.draft.add(ResourceType::Secret, &name, &message);
    }

    /// The identities that endpoints are limited to; `None` if that is no limit.
    fn restriction(
        &self,
        service: &ServiceId,
        accounts: &BTreeSet<ServiceAccountId>,
    ) -> Option<Arc<BTreeSet<ServiceAccountId>>> {
        (self.catalog.accounts_behind(service) != *accounts).then(|| Arc::new(accounts.clone()))
    }

    fn cluster(
        &mut self,
        service: &ServiceId,
        port: &ServicePort,
        only: Option<Arc<BTreeSet<ServiceAccountId>>>,
    ) {
        let endpoints = names::endpoints(service, port.port, only.as_deref());
        let message = cluster::service(service, port.port, port.protocol, &endpoints);
        self.draft.add(ResourceType::Cluster, &names::cluster(service, port.port), &message);
        self.draft.add_endpoints(&endpoints, EndpointSet { service: service.clone(), port: port.port, only });
    }

    /// Where clients of this port connect to, as far as no other service, or port of this one, has that address
    /// and port already: addresses by port, which for a headless service is each pod's own. Services come sorted
    /// by name, so who is first does not depend on the order of events. Virtual addresses that two services
    /// claim are reported by the catalog; headless services may well have pods in common.
    fn dialled(&mut self, service: &Service, port: &ServicePort) -> BTreeMap<u16, Vec<IpAddr>> {
        let meant = if service.headless {
            self.catalog.headless_addresses(&service.id, port)
        } else {
            service.cluster_ips.iter().map(|&ip| (ip, port.port)).collect()
        };
        let mut free: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (ip, number) in meant {
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
        plan: Option<&SplitPlan>,
    ) {
        let arms = match plan {
            Some(plan) => split_arms(plan, port),
            None => vec![Arm { matches: None, destination: Destination::One(self.whole(service, port)) }],
        };
        let carriage = if port.protocol.is_http() {
            let route = names::outbound_route(&service.id, port.port);
            self.draft.add(ResourceType::Route, &route, &route::outbound(&route, &arms));
            Carriage::Http(route)
        } else {
            // Without requests there is nothing to match: only what takes everything counts.
            let rest = arms.into_iter().find(|arm| arm.matches.is_none()).map(|arm| arm.destination);
            Carriage::Tcp(rest.unwrap_or_else(|| Destination::One(names::cluster(&service.id, port.port))))
        };
        let own = names::outbound_chain(&service.id, port.port, port.protocol);
        for (number, mut addresses) in dialled {
            addresses.sort_unstable();
            let name = if service.headless { names::headless_chain(&own, number) } else { own.clone() };
            self.chains.push(Chain { name, addresses, port: number, carriage: carriage.clone() });
        }
    }

    /// The cluster that takes all of an unsplit port's traffic.
    fn whole(&mut self, service: &Service, port: &ServicePort) -> String {
        if !service.headless {
            return names::cluster(&service.id, port.port);
        }
        let name = names::pod_cluster(&service.id, port.port);
        let message = cluster::pod(&service.id, port.port, port.protocol);
        self.draft.add(ResourceType::Cluster, &name, &message);
        name
    }
}

/// A split's arms, by cluster. Leaves are reached on the root's port.
fn split_arms(plan: &SplitPlan, port: &ServicePort) -> Vec<Arm> {
    let arms = plan.arms.iter().filter_map(|arm| {
        let weights = arm.weights.iter().map(|(leaf, weight)| (names::cluster(leaf, port.port), *weight));
        Some(Arm { matches: arm.matches.clone(), destination: Destination::weighted(weights)? })
    });
    arms.collect()
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
