//! Short ways to write a mesh down, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::endpoint_budget::EndpointBudgets;
use super::selection::SelectionBudgets;
use super::{Affected, Catalog, Object, SourceEvent};
use crate::policy::fixtures;
pub(crate) use crate::policy::fixtures::{
    account, accounts, http_match, http_rule, ip, name, service_id, tcp_rule,
};
use smc_api::osm::telemetry::Collector;
use smc_api::osm::upstream_traffic_setting::UpstreamHost;
use smc_api::osm::{ExtensionService, MeshConfig, Retry, Telemetry, UpstreamTrafficSetting};
use smc_api::smi::{Backend, Rule, TrafficSplit};
use smc_model::access_log::Logged;
use smc_model::connection_settings::ConnectionSettings;
use smc_model::external_authorization::ExternalAuthorization;
use smc_model::log_format::{LogAttributes, LogFormat};
use smc_model::outside_server::{ExtensionServer, OutsideServer, ServerHost};
use smc_model::rate_limit::{LocalRateLimits, Rate, RateUnit, RequestLimit, RouteLimit, TOO_MANY_REQUESTS};
use smc_model::regex::Pattern;
use smc_model::retry_policy::{RetryCondition, RetryPolicy};
use smc_model::tls_parameters::{TlsParameters, TlsVersion};
use smc_model::topology::{
    EndpointSlice, Namespace, Readiness, Service, ServicePort, SessionAffinity, SliceEndpoint, SlicePort,
    TargetPort, Workload,
};
use smc_model::tracing::Tracing;
use smc_types::ids::ProxyUuid;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;
use smc_types::proxy_class::{AppProtocol, ProxyClass};

impl Catalog {
    /// A catalog of these objects.
    pub(crate) fn of(objects: impl IntoIterator<Item = Object>) -> Self {
        Self::default().and(objects)
    }

    /// A catalog in which the services of a namespace may have so many endpoints, and select so many pods.
    pub(crate) fn with_budgets(endpoints: u64, selected: u64) -> Self {
        let mut catalog = Self::default();
        catalog.index.endpoint_budgets = EndpointBudgets::of(endpoints);
        catalog.index.selection_budgets = SelectionBudgets::of(selected);
        catalog
    }

    /// This catalog with these objects.
    pub(crate) fn and(mut self, objects: impl IntoIterator<Item = Object>) -> Self {
        for object in objects {
            self.declare(object);
        }
        self
    }

    /// The problems that a search through every object finds.
    pub(crate) fn searched(&self) -> Vec<Problem> {
        let mut catalog = self.clone();
        catalog.found.all_due();
        catalog.problems()
    }

    /// Applies these events at once.
    pub(crate) fn apply_all(&mut self, events: &[SourceEvent]) -> Affected {
        for event in events {
            self.change(event.clone());
        }
        self.settle()
    }

    pub(crate) fn declare(&mut self, object: Object) -> Affected {
        self.apply(SourceEvent::Upsert(object))
    }

    pub(crate) fn withdraw(&mut self, kind: Kind, name: &str) -> Affected {
        self.apply(SourceEvent::Remove(ObjectRef::Namespaced(kind, name.parse().unwrap())))
    }
}

pub(crate) fn namespace(name: &str) -> Object {
    Object::Namespace(Namespace {
        name: name.to_owned(),
        monitored: true,
        injection: None,
        metrics: false,
        permissive: false,
        access_log: None,
    })
}

/// A namespace of the mesh whose workloads accept anyone in it.
pub(crate) fn open_namespace(name: &str) -> Object {
    let Object::Namespace(namespace) = namespace(name) else { unreachable!("a namespace") };
    Object::Namespace(Namespace { permissive: true, ..namespace })
}

/// A service port `port` that leads to the same port of the pod.
pub(crate) fn port(port: u16, protocol: AppProtocol) -> ServicePort {
    ServicePort { name: Some(format!("p{port}")), port, target: TargetPort::Number(port), protocol }
}

/// A service with one IPv4 address that selects pods by `app`.
pub(crate) fn service(id: &str, app: &str, ports: &[ServicePort]) -> Service {
    Service {
        id: id.parse().unwrap(),
        cluster_ips: vec![ip("10.96.0.1")],
        headless: false,
        selector: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        ports: ports.to_vec(),
        affinity: SessionAffinity::None,
    }
}

/// A ready pod in the namespace of its account, labelled `app`.
pub(crate) fn pod(id: &str, service_account: &str, app: &str, address: &str) -> Workload {
    let id = id.parse().unwrap();
    Workload {
        proxy: ProxyUuid::derived(&id),
        id,
        service_account: account(service_account),
        labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        services: Vec::new(),
        ips: vec![ip(address)],
        ports: BTreeMap::new(),
        readiness: Readiness::Ready,
        injection: None,
    }
}

/// A ready machine behind these services of its namespace.
pub(crate) fn machine(id: &str, service_account: &str, services: &[&str], address: &str) -> Workload {
    let id = smc_types::ids::WorkloadId::machine(name(id));
    let named = |service: &&str| service_id(&format!("{}/{service}", id.namespace()));
    Workload {
        services: services.iter().map(named).collect(),
        proxy: ProxyUuid::derived(&id),
        labels: BTreeMap::new(),
        injection: Some(true),
        id,
        ..pod("shop/any", service_account, "", address)
    }
}

pub(crate) fn slice(id: &str, service: &str, ports: &[(&str, u16)], addresses: &[&str]) -> EndpointSlice {
    let ports = ports.iter().map(|&(name, port)| SlicePort { name: Some(name.to_owned()), port });
    let endpoint = |address: &&str| SliceEndpoint {
        addresses: vec![ip(address)],
        readiness: Readiness::Ready,
        workload: None,
    };
    EndpointSlice {
        id: id.parse().unwrap(),
        service: service_id(service),
        follows_pods: false,
        ports: ports.collect(),
        endpoints: addresses.iter().map(endpoint).collect(),
    }
}

pub(crate) fn target(id: &str, destination: &str, sources: &[&str], rules: &[Rule]) -> Object {
    Object::from(fixtures::target(id, destination, sources, rules))
}

pub(crate) fn group(id: &str, paths: &[&str]) -> Object {
    Object::HttpRouteGroup(fixtures::group(id, paths))
}

pub(crate) fn tcp_route(id: &str, ports: &[u16]) -> Object {
    Object::TcpRoute(fixtures::tcp_route(id, ports))
}

pub(crate) fn split(id: &str, root: &str, backends: &[(&str, u32)], matches: &[&str]) -> Object {
    let backend = |&(service, weight): &(&str, u32)| Backend { service: service_id(service), weight };
    Object::TrafficSplit(TrafficSplit {
        id: name(id),
        root: service_id(root),
        backends: backends.iter().map(backend).collect(),
        matches: matches.iter().map(|text| name(text)).collect(),
        domains: BTreeSet::new(),
    })
}

/// A Retry of failed requests, so many times.
pub(crate) fn retry(id: &str, source: &str, services: &[&str], retries: u32) -> Object {
    let policy = RetryPolicy {
        conditions: [RetryCondition::ServerError].into(),
        retries: Some(retries),
        per_try_timeout: None,
        backoff: None,
    };
    let destinations = services.iter().map(|id| service_id(id)).collect();
    Object::from(Retry { id: name(id), source: account(source), destinations, policy })
}

/// A Telemetry for the pods of an app, or for all, with a format.
pub(crate) fn telemetry(id: &str, app: Option<&str>, format: Option<&str>) -> Object {
    let selector = app.map(|app| ("app".to_owned(), app.to_owned())).into_iter().collect();
    let format = format.map(|format| LogFormat::parse(format).unwrap());
    Object::from(Telemetry { id: name(id), selector, format, collector: None })
}

/// The MeshConfig, which has these requests logged.
pub(crate) fn logging(logged: Logged) -> Object {
    let config = MeshConfig { access_log: Some(logged), ..MeshConfig::default() };
    Object::MeshConfig(name("smc-system/osm-mesh-config"), config)
}

/// A Telemetry, with a collector that is sent records with an attribute.
pub(crate) fn sent_to(telemetry: Object, service: &str, attribute: &str) -> Object {
    let Object::Telemetry(telemetry) = telemetry else { unreachable!("a Telemetry") };
    let attributes = LogAttributes::of([("a".to_owned(), attribute.to_owned())].into()).unwrap();
    let collector = Some(Collector { service: name(service), attributes });
    Object::from(Telemetry { collector, ..(*telemetry).clone() })
}

/// An ExtensionService at this host.
pub(crate) fn extension_service(id: &str, host: &str) -> Object {
    let server = OutsideServer { host: ServerHost::Name(host.to_owned()), port: 4317 };
    let server = Arc::new(ExtensionServer { server, connect_timeout: Duration::from_secs(5) });
    Object::from(ExtensionService { id: name(id), server })
}

/// The class of an identity's sidecars that are behind no service.
pub(crate) fn class(id: &str) -> ProxyClass {
    ProxyClass { account: account(id), inbound: Vec::new(), ipv4: true, ipv6: false, telemetry: None }
}

/// An UpstreamTrafficSetting of a service, with so many connections.
pub(crate) fn setting(id: &str, service: &str, max_connections: u32) -> Object {
    Object::from(UpstreamTrafficSetting {
        id: name(id),
        host: UpstreamHost::Service { id: service_id(service), domain: None },
        connections: ConnectionSettings {
            max_connections: Some(max_connections),
            ..ConnectionSettings::default()
        },
        rate_limits: Arc::default(),
        not_enforced: BTreeSet::new(),
    })
}

/// An UpstreamTrafficSetting of a service, with so many requests in a minute, and as many to each path.
pub(crate) fn limit(id: &str, service: &str, requests: u32, paths: &[&str]) -> Object {
    let rate = Rate { amount: requests, unit: RateUnit::Minute, burst: 0 };
    let limit = RequestLimit { rate, status: TOO_MANY_REQUESTS, headers: Vec::new() };
    let route = |path: &&str| RouteLimit { path: Pattern::prefix(path).unwrap(), limit: limit.clone() };
    let routes = paths.iter().map(route).collect();
    limits(id, service, LocalRateLimits { requests: Some(limit), routes, ..LocalRateLimits::default() })
}

/// An UpstreamTrafficSetting of a service that lets in so many connections in a minute.
pub(crate) fn connections(id: &str, service: &str, amount: u32) -> Object {
    let rate = Rate { amount, unit: RateUnit::Minute, burst: 0 };
    limits(id, service, LocalRateLimits { connections: Some(rate), ..LocalRateLimits::default() })
}

/// An UpstreamTrafficSetting of a service with these limits.
pub(crate) fn limits(id: &str, service: &str, limits: LocalRateLimits) -> Object {
    let Object::UpstreamTrafficSetting(setting) = setting(id, service, 1) else { unreachable!("a setting") };
    let rate_limits = Arc::new(limits);
    let connections = ConnectionSettings::default();
    Object::from(UpstreamTrafficSetting { connections, rate_limits, ..(*setting).clone() })
}

pub(crate) fn permissive(namespace: &str, permissive: bool) -> Object {
    let config = MeshConfig { permissive, ..MeshConfig::default() };
    Object::MeshConfig(name(&format!("{namespace}/osm-mesh-config")), config)
}

/// A server of this name that is asked whether requests may pass.
pub(crate) fn authorization(host: &str) -> Arc<ExternalAuthorization> {
    Arc::new(ExternalAuthorization {
        server: Some(OutsideServer { host: ServerHost::Name(host.to_owned()), port: 9191 }),
        stat_prefix: "x".repeat(64),
        timeout: Duration::from_millis(1500),
        failure_mode_allow: true,
    })
}

/// All that this server is to be reported, with the longest path there is.
pub(crate) fn tracing(host: &str) -> Arc<Tracing> {
    let collector = OutsideServer { host: ServerHost::Name(host.to_owned()), port: 9411 };
    Arc::new(Tracing { collector, path: format!("/{}", "x".repeat(255)), sampling: 3333 })
}

/// The longest name of a host.
pub(crate) fn longest_host() -> String {
    format!("{}.{}", [&*"x".repeat(62); 3].join("."), "x".repeat(63))
}

/// All suites and all curves that can be chosen.
pub(crate) fn all_of_tls() -> Arc<TlsParameters> {
    let aes = "ECDHE-ECDSA-AES256-GCM-SHA384".to_owned();
    let others = "[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]".to_owned();
    Arc::new(TlsParameters {
        minimum: TlsVersion::Tls12,
        maximum: TlsVersion::Tls12,
        cipher_suites: vec![aes, others],
        curves: vec!["P-521", "P-384", "X25519", "P-256"],
    })
}

/// The MeshConfig that chooses all of TLS.
pub(crate) fn longest_tls() -> Object {
    let config = MeshConfig { tls: Some(all_of_tls()), ..MeshConfig::default() };
    Object::MeshConfig(name("smc-system/osm-mesh-config"), config)
}

/// The MeshConfig by which all requests are reported to the server with the longest name.
pub(crate) fn traced() -> Object {
    let config = MeshConfig { tracing: Some(tracing(&longest_host())), ..MeshConfig::default() };
    Object::MeshConfig(name("smc-system/osm-mesh-config"), config)
}

/// The MeshConfig by which a server of this name is asked.
pub(crate) fn asking(host: &str) -> Object {
    let config = MeshConfig { external_authorization: Some(authorization(host)), ..MeshConfig::default() };
    Object::MeshConfig(name("smc-system/osm-mesh-config"), config)
}
