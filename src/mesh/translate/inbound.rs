//! The inbound half of a snapshot: the application's ports, and the identities that may use them.
//!
//! Owns the walk over the ports of a class. It refers to nothing in the outbound half.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use prost::Name;

use super::connection_limit::ConnectionLimits;
use super::draft::{Draft, Part};
use super::intern::Interner;
use super::listener::inbound::{self as listener, Chain, IngressWay};
use super::listener::statistics;
use super::proto::{self, Families};
use super::provenance::{self, Objects};
use super::rate_limit::{Caller, PortLimits};
use super::rbac::Rules;
use super::reports::{Half, Reports};
use super::settings::Settings;
use super::tls::ClientCertificates;
use super::{cluster, external_authorization, route, secret};
use smc_authority::pki::TrustBundle;
use smc_model::inbound_intent::{InboundAccess, InboundIntent};
use smc_model::ingress::{IngressChain, IngressTransport};
use smc_model::sidecar_settings::LocalProxyMode;
use smc_types::ids::{ServiceAccountId, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;
use smc_types::proxy_class::{InboundPort, ProxyClass};
use smc_xds::names;
use smc_xds::resource::ResourceType;

/// Translates what may reach the workloads of a class. `share` is the room in bytes that the intent was made
/// for.
pub(super) fn translate(
    intent: &InboundIntent,
    settings: &Settings,
    bundle: &TrustBundle,
    class: &ProxyClass,
    share: u64,
    interner: &mut Interner,
) -> Part {
    let mut draft = Draft::new(interner);
    let families = Families::new(class.ipv4, class.ipv6);
    if class.inbound.iter().any(|port| port.protocol.is_http()) {
        let message = secret::anyone_in_mesh(names::INBOUND_VALIDATION, settings, bundle);
        draft.add_secret(&message);
    }
    let (mut chains, mut ingress) = (Vec::new(), Vec::new());
    let mut listener_objects = Objects::new();
    report_left_out(class, intent, share, &mut draft);
    let is_http = |(port, _): &(InboundPort, InboundAccess)| port.protocol.is_http();
    let asked = intent.external_authorization.as_ref().filter(|_| intent.ports.iter().any(is_http));
    listener_objects.extend(asked.map(|declared| declared.by.clone()));
    let asked = asked.map(|declared| external_authorization::translate(declared, families, &mut draft));
    for (port, access) in &intent.ports {
        if settings.is_sidecars(port.port) {
            for service in &port.services {
                let message = format!("leads to port {}, which is the sidecar's own; left out", port.port);
                draft.report(Problem::error(ObjectRef::from(service), "spec.ports", message));
            }
            continue;
        }
        let by_tls = |way: &IngressChain| way.port == port.port && way.transport == IngressTransport::Tls;
        let beside_ingress = intent.ingress.iter().any(by_tls);
        let Some(server_names) = server_names(class, port, beside_ingress, &mut draft) else { continue };
        let name = names::local_cluster(port.port, port.protocol);
        let services = provenance::services(port);
        let mut objects = services.clone();
        draft.add(ResourceType::Cluster, &name, &local(intent, port, families), &objects);
        listener_objects.extend(objects.iter().cloned());
        let connections = ConnectionLimits::new(port, &server_names, intent);
        listener_objects.append(&mut connections.objects());
        let limits = PortLimits::new(port, intent);
        objects.extend(limits.objects().iter().cloned());
        objects.append(&mut provenance::access(access));
        if port.protocol.is_http() {
            let route = names::inbound(port.port, port.protocol);
            let message = route::inbound(&route, name, Rules::http(access, settings), &limits);
            draft.add(ResourceType::Route, &route, &message, &objects);
        } else {
            let name = names::inbound_port_validation(port.port, port.protocol);
            let message = match callers(access) {
                None => secret::anyone_in_mesh(&name, settings, bundle),
                Some(callers) => secret::exactly(&name, settings, bundle, &callers),
            };
            draft.add_secret(&message);
            listener_objects.extend(objects);
        }
        let rules = Rules::connection(access, settings);
        let chain = names::inbound(port.port, port.protocol);
        let connection_filters = connections.filters(&chain, &mut draft);
        let mut filters = add_limits(&limits, Caller::Mesh, &chain, &mut draft);
        filters.extend(asked.clone());
        let (port, protocol) = (port.port, port.protocol);
        chains.push(Chain { port, protocol, server_names, connection_filters, rules, filters });
        let ways = intent.ingress.iter().filter(|way| (way.port, way.protocol) == (port, protocol));
        for way in ways {
            let mut objects = services.clone();
            objects.append(&mut provenance::ingress(way));
            listener_objects.extend(objects.iter().cloned());
            objects.extend(limits.objects().iter().cloned());
            let mut way = open_to_ingress(way, &limits, &objects, bundle, &mut draft);
            way.connection_filters = connections.filters(&way.name, &mut draft);
            way.filters.extend(asked.clone());
            ingress.push(way);
        }
    }
    let (log, half) = (&intent.access_log, Half::Inbound);
    let traced = intent.tracing.as_ref().filter(|_| chains.iter().any(|chain| chain.protocol.is_http()));
    let reports = Reports::of(log, traced, half, families, &mut draft, &mut listener_objects);
    listener_objects.extend(intent.tls.as_ref().map(|declared| declared.by.clone()));
    let tls = intent.tls.as_ref().map(|declared| &*declared.what);
    let listener = listener::listener(chains, ingress, families, settings, &reports, tls);
    if let Some(listener) = listener {
        draft.add(ResourceType::Listener, names::INBOUND_LISTENER, &listener, &listener_objects);
    }
    if let Some(port) = settings.prometheus_port {
        add_statistics(port, families, &mut draft);
    }
    draft.finish()
}

/// The cluster of the application.
fn local(intent: &InboundIntent, port: &InboundPort, families: Families) -> Cluster {
    match intent.local_proxy_mode {
        LocalProxyMode::Localhost => cluster::local(port.port, port.protocol, families.loopback()),
        LocalProxyMode::PodIp => cluster::own_address(port.port, port.protocol),
    }
}

fn add_statistics(port: u16, families: Families, draft: &mut Draft<'_>) {
    let none = Objects::new();
    let statistics = statistics::listener(port, families);
    draft.add(ResourceType::Cluster, names::ADMIN_CLUSTER, &cluster::admin(), &none);
    draft.add(ResourceType::Listener, names::PROMETHEUS_LISTENER, &statistics, &none);
}

/// Adds the configurations of the filters that limit requests on a chain, and returns the filters.
fn add_limits(
    limits: &PortLimits<'_>,
    caller: Caller,
    chain: &str,
    draft: &mut Draft<'_>,
) -> Vec<HttpFilter> {
    let filters = limits.filters(caller, chain).into_iter().map(|config| {
        draft.add(ResourceType::ExtensionConfig, &config.name, &config, limits.objects());
        proto::discovered_filter(config.name, LocalRateLimit::type_url())
    });
    filters.collect()
}

/// Adds the routes, and the validation context, for what an ingress sends to a port, and returns the way.
fn open_to_ingress(
    chain: &IngressChain,
    limits: &PortLimits<'_>,
    objects: &Objects,
    bundle: &TrustBundle,
    draft: &mut Draft<'_>,
) -> IngressWay {
    let (spoken, tls) = match chain.transport {
        IngressTransport::ClearText => ("http", None),
        IngressTransport::Tls => ("https", Some(certificates_of_clients(chain, bundle, draft))),
    };
    let name = names::ingress(chain.port, spoken);
    let local = names::local_cluster(chain.port, chain.protocol);
    let routes = route::inbound(&name, local, Rules::ingress(&chain.grants), limits);
    draft.add(ResourceType::Route, &name, &routes, objects);
    let filters = add_limits(limits, Caller::Ingress, &name, draft);
    IngressWay { name, port: chain.port, tls, connection_filters: Vec::new(), filters }
}

/// How the certificates of an ingress are checked, whose secret is added.
fn certificates_of_clients(
    chain: &IngressChain,
    bundle: &TrustBundle,
    draft: &mut Draft<'_>,
) -> ClientCertificates {
    if chain.principals.is_empty() {
        return ClientCertificates::None;
    }
    // Where names are to be matched, Envoy refuses clients without a certificate, also if it requires none.
    // So the names are left to the rules of the routes there.
    if chain.anonymous {
        let name = names::optional_ingress_validation(chain.port);
        draft.add_secret(&secret::issued_by_the_mesh(&name, bundle));
        return ClientCertificates::Optional(name);
    }
    let name = names::ingress_validation(chain.port);
    draft.add_secret(&secret::gateways(&name, bundle, &chain.principals));
    ClientCertificates::Required(name)
}

/// Reports what does not fit. The rest is in force.
fn report_left_out(class: &ProxyClass, intent: &InboundIntent, share: u64, draft: &mut Draft<'_>) {
    let account = &class.account;
    for rule in &intent.left_out {
        let message = format!(
            "allows nothing: with it, the rules for the ports of {account} would take more than {share} bytes"
        );
        let field = match rule {
            ObjectRef::Namespaced(Kind::TrafficTarget, _) => "spec.rules",
            _ => "spec",
        };
        draft.report(Problem::error(rule.clone(), field, message));
    }
    let beyond: BTreeSet<_> = intent.without_room.iter().flat_map(|port| &port.services).collect();
    for service in beyond {
        let message = format!(
            "leads to a port of {account} for which there is no room beside its {} others: it is closed",
            intent.ports.len()
        );
        draft.report(Problem::error(ObjectRef::from(service), "spec.ports", message));
        if let Some(limits) = intent.limits.get(service) {
            let message = format!(
                "a port of {account} is closed: with these limits, those for its ports would take more than {share} \
                 bytes"
            );
            draft.report(Problem::error(limits.by.clone(), "spec.rateLimit", message));
        }
    }
}

/// The identities that may connect; `None` means every identity of the mesh.
fn callers(access: &InboundAccess) -> Option<BTreeSet<ServiceAccountId>> {
    match access {
        InboundAccess::AnyoneInMesh => None,
        InboundAccess::Grants(grants) => {
            Some(grants.iter().flat_map(|grant| grant.sources.iter().cloned()).collect())
        }
    }
}

/// The SNI names that distinguish this protocol from the others on the same port, and calls of the mesh from
/// an ingress. Empty if there is nothing to distinguish; then the chain matches every name. `None` if another
/// protocol already has every service of this one.
fn server_names(
    class: &ProxyClass,
    port: &InboundPort,
    beside_ingress: bool,
    draft: &mut Draft<'_>,
) -> Option<Vec<String>> {
    let others =
        || class.inbound.iter().filter(|other| other.port == port.port && other.protocol != port.protocol);
    if others().next().is_none() {
        // What callers of the mesh ask for. It does not depend on the services: another service must not
        // replace the chain.
        return Some(beside_ingress.then(|| format!("*{}", ServiceId::DOMAIN)).into_iter().collect());
    }
    let mut names = Vec::new();
    for service in &port.services {
        let taken = others().any(|other| other.protocol < port.protocol && other.services.contains(service));
        if taken {
            let message = format!(
                "leads to port {} of {} in two protocols; {:?} is left out there",
                port.port, class.account, port.protocol
            );
            draft.report(Problem::warning(ObjectRef::from(service), "spec.ports", message));
        } else {
            names.push(service.fqdn());
        }
    }
    (!names.is_empty()).then_some(names)
}
