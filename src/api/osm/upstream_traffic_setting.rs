//! `policy.openservicemesh.io` UpstreamTrafficSetting: what a service can bear.
//!
//! Owns its fields. A limit that cannot be read is left out: in a cluster the API server refuses it, and the
//! object stays as it was. One of zero is obeyed, and named, because nothing passes. Limits that a rate limit
//! service counts are checked, and not enforced yet; neither is an object for a host that is no service of
//! its namespace, which OSM takes for an Egress of the namespace.

pub mod global;
mod request_limit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_model::connection_settings::ConnectionSettings;
use smc_model::rate_limit::{LocalRateLimits, MAX_BYTES, RouteLimit};
use smc_model::regex::Pattern;
use smc_types::ids::{NamespacedName, ServiceId, check_subdomain};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use super::policy::{MAX_HEADERS, MAX_SETTINGS, duration_within, entries, number, section};
use crate::kind::{Column, CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node};
use crate::service_name::FullName;

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<UpstreamTrafficSettingSpec>],
    columns: &[Column::text("Host", ".spec.host")],
    example: |_| {
        json!({
            "host": "web.shop.svc.cluster.local",
            "connectionSettings": {"tcp": {"maxConnections": 10}},
        })
    },
    read: |object| effective(read_upstream_traffic_setting(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::UpstreamTrafficSetting)
};

/// Limits of connections and rates to a service.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct UpstreamTrafficSettingSpec {
    /// The host name of the service.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Limits of connections and requests.
    pub connection_settings: Option<ConnectionSettingsSpec>,
    /// Limits of rates.
    pub rate_limit: Option<RateLimit>,
    /// Limits of the rates of requests by path. The first that matches counts a request.
    #[schemars(length(max = MAX_SETTINGS))]
    pub http_routes: Option<Vec<RouteSetting>>,
}

/// Limits of connections and requests, each for one port of the service and one caller's sidecar.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "ConnectionSettings")]
pub struct ConnectionSettingsSpec {
    /// Of connections.
    pub tcp: Option<TcpSettings>,
    /// Of requests.
    pub http: Option<HttpSettings>,
}

/// Limits of connections.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct TcpSettings {
    /// The most at once.
    pub max_connections: Option<u32>,
    /// How long opening one may take, as a duration.
    #[schemars(length(max = 64))]
    pub connect_timeout: Option<String>,
}

/// Limits of requests.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "the names are those of the API")]
pub struct HttpSettings {
    /// The most at once.
    pub max_requests: Option<u32>,
    /// The most over one connection; zero means any number.
    pub max_requests_per_connection: Option<u32>,
    /// The most that wait for a connection.
    pub max_pending_requests: Option<u32>,
    /// The most retries at once.
    pub max_retries: Option<u32>,
}

/// Limits of rates.
#[derive(Debug, JsonSchema)]
pub struct RateLimit {
    /// Counted by each sidecar of the service.
    pub local: Option<LocalRateLimit>,
    /// Counted by a rate limit service. Not enforced yet.
    pub global: Option<global::RateLimit>,
}

/// Limits that each sidecar counts.
#[derive(Debug, JsonSchema)]
pub struct LocalRateLimit {
    /// Of connections, whatever they carry.
    pub tcp: Option<TcpRate>,
    /// Of requests.
    pub http: Option<HttpRate>,
}

/// A rate of connections.
#[derive(Debug, JsonSchema)]
pub struct TcpRate {
    /// How many in a unit of time.
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// `second`, `minute` or `hour`.
    #[schemars(extend("enum" = ["second", "minute", "hour"]))]
    pub unit: Option<String>,
    /// How many more for a moment.
    pub burst: Option<u32>,
}

/// A rate of requests.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct HttpRate {
    /// How many in a unit of time.
    #[schemars(range(min = 1))]
    pub requests: Option<u32>,
    /// `second`, `minute` or `hour`.
    #[schemars(extend("enum" = ["second", "minute", "hour"]))]
    pub unit: Option<String>,
    /// How many more for a moment.
    pub burst: Option<u32>,
    /// The status of the answer to a request above the limit; 429 without it.
    #[schemars(range(min = 400, max = 599))]
    pub response_status_code: Option<u32>,
    /// Headers of its response.
    #[schemars(length(max = MAX_HEADERS))]
    pub response_headers_to_add: Option<Vec<Header>>,
}

/// A header.
#[derive(Debug, JsonSchema)]
pub struct Header {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its value.
    #[schemars(length(min = 1, max = 4096))]
    pub value: String,
}

/// A limit of rates for some requests.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct RouteSetting {
    /// A regular expression (RE2) for the start of the path.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The limit.
    pub rate_limit: Option<RouteRateLimit>,
}

/// A limit of rates for some requests.
#[derive(Debug, JsonSchema)]
pub struct RouteRateLimit {
    /// Counted by each sidecar of the service.
    pub local: Option<HttpRate>,
    /// Counted by a rate limit service. Not enforced yet.
    pub global: Option<global::RouteRateLimit>,
}

/// An object as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTrafficSetting {
    /// Its own name.
    pub id: NamespacedName,
    /// What it is about.
    pub host: UpstreamHost,
    /// What each caller's sidecar may ask of it at a time.
    pub connections: ConnectionSettings,
    /// How many connections and requests each sidecar of it lets in over time.
    pub rate_limits: Arc<LocalRateLimits>,
    /// The paths of the fields that say something and are not enforced.
    pub not_enforced: BTreeSet<&'static str>,
}

/// What an UpstreamTrafficSetting is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamHost {
    /// A service of the object's namespace.
    Service {
        /// The service.
        id: ServiceId,
        /// The domain of its full name, other than Kubernetes' usual `cluster.local`. The object has an
        /// effect only if it is the mesh's own.
        domain: Option<String>,
    },
    /// Another name.
    Outside(String),
}

/// How long a connection may take to come to be, at least and at most. Envoy refuses zero.
const SHORTEST_CONNECT: Duration = Duration::from_millis(1);
const LONGEST_CONNECT: Duration = Duration::from_hours(1);

/// Reads the `spec` of an UpstreamTrafficSetting.
pub fn read_upstream_traffic_setting(id: &NamespacedName, spec: Value) -> Reading<UpstreamTrafficSetting> {
    let mut findings = Findings::new(Kind::UpstreamTrafficSetting, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<UpstreamTrafficSetting> {
    let mut spec = spec.object(findings)?;
    let host = host(id, &mut spec, findings);
    let mut connections = ConnectionSettings::default();
    if let Some(settings) = section(&mut spec, "connectionSettings", findings) {
        read_connections(settings, &mut connections, findings);
    }
    let mut not_enforced = BTreeSet::new();
    let mut rate_limits = LocalRateLimits::default();
    if let Some(mut limit) = section(&mut spec, "rateLimit", findings) {
        if let Some(mut local) = section(&mut limit, "local", findings) {
            if let Some(tcp) = section(&mut local, "tcp", findings) {
                rate_limits.connections = request_limit::of_connections(tcp, findings);
            }
            rate_limits.requests = request_limit::read(&mut local, "http", findings);
            local.finish(findings);
        }
        if limit.take("global").is_some() {
            not_enforced.insert("spec.rateLimit.global");
        }
        limit.finish(findings);
    }
    for node in entries(&mut spec, "httpRoutes", MAX_SETTINGS, false, findings) {
        let at = format!("{}.path", node.path);
        let Some(route) = read_route(node, &mut not_enforced, findings) else { continue };
        if rate_limits.routes.iter().any(|earlier| earlier.path == route.path) {
            findings.warning(&at, "is that of an earlier entry, which counts its requests; left out");
        } else {
            rate_limits.routes.push(route);
        }
    }
    fit(&mut rate_limits, findings);
    spec.finish(findings);
    let (id, rate_limits) = (id.clone(), Arc::new(rate_limits));
    Some(UpstreamTrafficSetting { id, host: host?, connections, rate_limits, not_enforced })
}

fn read_connections(mut settings: Fields, connections: &mut ConnectionSettings, findings: &mut Findings) {
    if let Some(mut tcp) = section(&mut settings, "tcp", findings) {
        let within = SHORTEST_CONNECT..=LONGEST_CONNECT;
        connections.max_connections = limit(&mut tcp, "maxConnections", findings);
        connections.connect_timeout = duration_within(&mut tcp, "connectTimeout", within, findings);
        tcp.finish(findings);
    }
    if let Some(mut http) = section(&mut settings, "http", findings) {
        connections.max_requests = limit(&mut http, "maxRequests", findings);
        connections.max_pending_requests = limit(&mut http, "maxPendingRequests", findings);
        let any = 0..=u32::MAX;
        connections.max_retries = number(&mut http, "maxRetries", any.clone(), findings);
        let over_one = number(&mut http, "maxRequestsPerConnection", any, findings);
        connections.max_requests_per_connection = over_one.filter(|most| *most > 0);
        http.finish(findings);
    }
    settings.finish(findings);
}

fn limit(fields: &mut Fields, name: &str, findings: &mut Findings) -> Option<u32> {
    let most = number(fields, name, 0..=u32::MAX, findings);
    if most == Some(0) {
        findings.warning(&fields.path(name), "is 0: nothing passes. Leave the field out for no limit");
    }
    most
}

/// A limit for a path; `None` for one that only a rate limit service counts, and where the path cannot be
/// read.
fn read_route(
    node: Node,
    not_enforced: &mut BTreeSet<&'static str>,
    findings: &mut Findings,
) -> Option<RouteLimit> {
    let mut route = node.object(findings)?;
    let at = route.path("path");
    let path = route.require("path", findings).and_then(|node| node.text(findings));
    let path = path
        .and_then(|text| Pattern::prefix(&text).map_err(|error| findings.error(&at, error.to_string())).ok());
    let mut local = None;
    if let Some(mut limit) = section(&mut route, "rateLimit", findings) {
        local = request_limit::read(&mut limit, "local", findings);
        if limit.take("global").is_some() {
            not_enforced.insert("spec.httpRoutes[].rateLimit.global");
        }
        limit.finish(findings);
    }
    route.finish(findings);
    Some(RouteLimit { path: path?, limit: local? })
}

/// Leaves out the limits of paths, from the last, that are more than an object may have.
fn fit(limits: &mut LocalRateLimits, findings: &mut Findings) {
    let (before, mut bytes) = (limits.routes.len(), limits.bytes(true));
    while bytes > MAX_BYTES
        && let Some(last) = limits.routes.pop()
    {
        bytes -= last.bytes();
    }
    let (kept, left_out) = (limits.routes.len(), before - limits.routes.len());
    if left_out > 0 {
        let message = format!(
            "the limits of paths after the first {kept} are left out ({left_out} of them): with them, the limits of \
             this object would take more than {MAX_BYTES} bytes"
        );
        findings.error("spec.httpRoutes", message);
    }
}

/// A host name with a domain: a service's, or for an Egress of the namespace one outside of the mesh.
fn host(id: &NamespacedName, spec: &mut Fields, findings: &mut Findings) -> Option<UpstreamHost> {
    let path = spec.path("host");
    let host = spec.require("host", findings).and_then(|node| node.text(findings))?;
    if let Err(error) = check_subdomain("host", &host) {
        findings.error(&path, error.to_string());
        return None;
    }
    if !host.contains('.') {
        findings.error(&path, format!("is {:?}, without a domain", truncated(&host, 80)));
        return None;
    }
    let own = FullName::parse(&host).filter(|full| full.namespace == id.namespace());
    let Some(full) = own else { return Some(UpstreamHost::Outside(host)) };
    let service = ServiceId::new(full.namespace, full.name);
    let service = service.map_err(|error| findings.error(&path, error.to_string())).ok()?;
    Some(UpstreamHost::Service { id: service, domain: full.domain.map(str::to_owned) })
}

#[cfg(test)]
mod tests;
