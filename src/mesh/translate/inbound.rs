//! The inbound half of a snapshot: the application's ports, and who may use them.
//!
//! Owns the walk over a class's ports. Nothing in it refers to the outbound half.

use std::collections::BTreeSet;

use super::draft::{Draft, Part};
use super::intern::Interner;
use super::listener::inbound::{self as listener, Chain};
use super::listener::statistics;
use super::proto::Families;
use super::rbac::Rules;
use super::settings::Settings;
use super::{cluster, names, route, secret};
use crate::catalog::{Catalog, InboundPort};
use crate::ids::ServiceAccountId;
use crate::pki::TrustBundle;
use crate::policy::{self, InboundAccess};
use crate::problem::Problem;
use crate::resource::ResourceType;
use crate::world::ProxyClass;

/// Translates the ports of a class.
pub(super) fn translate(
    catalog: &Catalog,
    settings: &Settings,
    bundle: &TrustBundle,
    class: &ProxyClass,
    interner: &mut Interner,
) -> Part {
    let mut draft = Draft::new(interner);
    let families = Families::new(class.ipv4, class.ipv6);
    if class.inbound.iter().any(|port| port.protocol.is_http()) {
        let message = secret::anyone_in_mesh(names::INBOUND_VALIDATION, settings, bundle);
        draft.add(ResourceType::Secret, names::INBOUND_VALIDATION, &message);
    }
    let mut chains = Vec::new();
    for port in &class.inbound {
        if settings.is_sidecars(port.port) {
            for service in &port.services {
                let message = format!("leads to port {}, which is the sidecar's own; left out", port.port);
                draft.report(Problem::error(format_args!("Service {service}"), "spec.ports", message));
            }
            continue;
        }
        let Some(server_names) = server_names(class, port, &mut draft) else { continue };
        let access = policy::inbound_access(catalog, &class.account, port);
        let name = names::local_cluster(port.port, port.protocol);
        let local = cluster::local(port.port, port.protocol, families.loopback());
        draft.add(ResourceType::Cluster, &name, &local);
        if port.protocol.is_http() {
            let route = names::inbound(port.port, port.protocol);
            let message = route::inbound(&route, name, Rules::http(&access, settings));
            draft.add(ResourceType::Route, &route, &message);
        } else {
            let name = names::inbound_port_validation(port.port, port.protocol);
            let message = match callers(&access) {
                None => secret::anyone_in_mesh(&name, settings, bundle),
                Some(callers) => secret::exactly(&name, settings, bundle, &callers),
            };
            draft.add(ResourceType::Secret, &name, &message);
        }
        let rules = Rules::connection(&access, settings);
        chains.push(Chain { port: port.port, protocol: port.protocol, server_names, rules });
    }
    if let Some(listener) = listener::listener(chains, families, settings.inbound_port) {
        draft.add(ResourceType::Listener, names::INBOUND_LISTENER, &listener);
    }
    if let Some(port) = settings.prometheus_port {
        draft.add(ResourceType::Cluster, names::ADMIN_CLUSTER, &cluster::admin());
        draft.add(ResourceType::Listener, names::PROMETHEUS_LISTENER, &statistics::listener(port, families));
    }
    draft.finish()
}

/// Who may connect; `None` means anyone in the mesh.
fn callers(access: &InboundAccess) -> Option<BTreeSet<ServiceAccountId>> {
    match access {
        InboundAccess::AnyoneInMesh => None,
        InboundAccess::Grants(grants) => {
            Some(grants.iter().flat_map(|grant| grant.sources.iter().cloned()).collect())
        }
    }
}

/// The names by which connections for this port and protocol are told apart from other protocols on the
/// same port. Empty if there is no other: then whoever gets here is meant, whatever name they ask for.
/// `None` if every service on it is already taken by another protocol, so that nothing is left.
fn server_names(class: &ProxyClass, port: &InboundPort, draft: &mut Draft<'_>) -> Option<Vec<String>> {
    let others =
        || class.inbound.iter().filter(|other| other.port == port.port && other.protocol != port.protocol);
    if others().next().is_none() {
        return Some(Vec::new());
    }
    let mut names = Vec::new();
    for service in &port.services {
        let taken = others().any(|other| other.protocol < port.protocol && other.services.contains(service));
        if taken {
            let message = format!(
                "leads to port {} of {} in two protocols; {:?} is left out there",
                port.port, class.account, port.protocol
            );
            draft.report(Problem::warning(format_args!("Service {service}"), "spec.ports", message));
        } else {
            names.push(service.fqdn());
        }
    }
    (!names.is_empty()).then_some(names)
}
