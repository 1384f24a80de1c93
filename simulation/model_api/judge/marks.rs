//! The marks of domain objects: which content of an object the source has published.

use std::net::IpAddr;

use smc_mesh::catalog::Object;
use smc_types::object_ref::{Kind, ObjectRef};

use crate::model_api::history::Key;
use crate::model_api::objects::{key, namespace_number};

/// The kind and the key of an object that the model has made.
pub(super) fn named(reference: &ObjectRef) -> Option<(Kind, Key)> {
    match reference {
        ObjectRef::Namespace(name) => Some((Kind::Namespace, (namespace_number(name)?, 0))),
        ObjectRef::Namespaced(kind, id) => Some((*kind, key(*kind, id.namespace(), id.name())?)),
    }
}

/// What a published object shows of its mark.
pub(super) fn mark(object: &Object) -> Option<u32> {
    match object {
        Object::Namespace(namespace) => Some(match (namespace.monitored, namespace.injection) {
            (false, _) => return None,
            (true, None) => 0,
            (true, Some(true)) => 1,
            (true, Some(false)) => 2,
        }),
        Object::Service(service) => address(service.cluster_ips.first()?),
        Object::ServiceAccount(_) => Some(0),
        Object::Workload(workload) => address(workload.ips.first()?),
        Object::EndpointSlice(slice) => address(slice.endpoints.first()?.addresses.first()?),
        Object::TrafficTarget(target) => number(target.sources.first()?.as_name().name(), 's'),
        Object::HttpRouteGroup(group) => number(group.matches.keys().next()?, 'm'),
        Object::TcpRoute(route) => route.ports.first().copied().map(u32::from),
        Object::UdpRoute(route) => route.ports.first().copied().map(u32::from),
        Object::TrafficSplit(split) => split.backends.first().map(|backend| backend.weight),
        Object::Egress(object) => object.ports.first().map(|(port, _)| u32::from(*port)),
        Object::IngressBackend(object) => object.backends.first().map(|opened| u32::from(opened.port)),
        Object::Retry(retry) => u32::try_from(retry.policy.per_try_timeout?.as_millis()).ok(),
        Object::UpstreamTrafficSetting(setting) => setting.connections.max_connections,
        Object::MeshRootCertificate(root) => root.trust_domain.as_deref()?.strip_prefix('m')?.parse().ok(),
        Object::ExtensionService(service) => Some(u32::from(service.server.server.port)),
        Object::Telemetry(telemetry) => telemetry.selector.get("mark")?.parse().ok(),
        Object::MeshConfig(_, config) => {
            config.injected.exclude_outbound_ports.first().copied().map(u32::from)
        }
    }
}

fn number(text: &str, prefix: char) -> Option<u32> {
    text.strip_prefix(prefix)?.parse().ok()
}

fn address(address: &IpAddr) -> Option<u32> {
    let IpAddr::V4(address) = address else { return None };
    let [ten, a, b, c] = address.octets();
    (ten == 10).then(|| u32::from_be_bytes([0, a, b, c]))
}
