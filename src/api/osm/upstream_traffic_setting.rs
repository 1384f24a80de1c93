//! `policy.openservicemesh.io` UpstreamTrafficSetting.

pub mod global;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_model::regex::Pattern;
use smc_types::ids::{NamespacedName, check_subdomain};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use super::policy::{MAX_HEADERS, MAX_SETTINGS, duration_of, entries, number, one_of, read, section};
use crate::kind::{Column, CustomKind, schema, without_effect};
use crate::reading::{Fields, Findings};

const RATE_UNITS: [&str; 3] = ["second", "minute", "hour"];

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
    read: |object| without_effect(read_upstream_traffic_setting(&object.id, object.spec)),
    ..CustomKind::new(Kind::UpstreamTrafficSetting)
};

/// Limits of connections and rates to a service. Not enforced yet.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct UpstreamTrafficSettingSpec {
    /// The host name of the service.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Limits of connections and requests.
    pub connection_settings: Option<ConnectionSettings>,
    /// Limits of rates.
    pub rate_limit: Option<RateLimit>,
    /// Limits of rates by path.
    #[schemars(length(max = MAX_SETTINGS))]
    pub http_routes: Option<Vec<RouteSetting>>,
}

/// Limits of connections and requests.
#[derive(Debug, JsonSchema)]
pub struct ConnectionSettings {
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
    pub connect_timeout: Option<String>,
}

/// Limits of requests.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "the names are those of the API")]
pub struct HttpSettings {
    /// The most at once.
    pub max_requests: Option<u32>,
    /// The most over one connection.
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
    /// Counted by a rate limit service.
    pub global: Option<global::RateLimit>,
}

/// Limits that each sidecar counts.
#[derive(Debug, JsonSchema)]
pub struct LocalRateLimit {
    /// Of connections.
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
    /// The status of a request above the limit.
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
    /// A regular expression (RE2) for the path.
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
    /// Counted by a rate limit service.
    pub global: Option<global::RouteRateLimit>,
}

/// Reads the `spec` of an UpstreamTrafficSetting.
pub fn read_upstream_traffic_setting(id: &NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::UpstreamTrafficSetting, id, spec, |_, spec, findings| {
        host(spec, findings);
        if let Some(mut settings) = section(spec, "connectionSettings", findings) {
            if let Some(mut tcp) = section(&mut settings, "tcp", findings) {
                number(&mut tcp, "maxConnections", 0, u64::from(u32::MAX), findings);
                duration_of(&mut tcp, "connectTimeout", findings);
                tcp.finish(findings);
            }
            if let Some(mut http) = section(&mut settings, "http", findings) {
                for name in ["maxRequests", "maxRequestsPerConnection", "maxPendingRequests", "maxRetries"] {
                    number(&mut http, name, 0, u64::from(u32::MAX), findings);
                }
                http.finish(findings);
            }
            settings.finish(findings);
        }
        if let Some(mut limit) = section(spec, "rateLimit", findings) {
            if let Some(mut local) = section(&mut limit, "local", findings) {
                rate(&mut local, "tcp", "connections", findings);
                rate(&mut local, "http", "requests", findings);
                local.finish(findings);
            }
            limit.take("global");
            limit.finish(findings);
        }
        for node in entries(spec, "httpRoutes", MAX_SETTINGS, false, findings) {
            let Some(mut route) = node.object(findings) else { continue };
            let path = route.path("path");
            if let Some(text) = route.require("path", findings).and_then(|node| node.text(findings))
                && let Err(error) = Pattern::prefix(&text)
            {
                findings.error(&path, error.to_string());
            }
            if let Some(mut limit) = section(&mut route, "rateLimit", findings) {
                rate(&mut limit, "local", "requests", findings);
                limit.take("global");
                limit.finish(findings);
            }
            route.finish(findings);
        }
    })
}

/// A host name with a domain: a service's, or for an Egress of the namespace one outside of the mesh.
fn host(spec: &mut Fields, findings: &mut Findings) {
    let path = spec.path("host");
    let Some(host) = spec.require("host", findings).and_then(|node| node.text(findings)) else { return };
    if let Err(error) = check_subdomain("host", &host) {
        findings.error(&path, error.to_string());
    } else if !host.contains('.') {
        findings.error(&path, format!("is {:?}, without a domain", truncated(&host, 80)));
    }
}

/// A local rate limit of `counted` things.
fn rate(fields: &mut Fields, name: &str, counted: &str, findings: &mut Findings) {
    let Some(mut limit) = section(fields, name, findings) else { return };
    number(&mut limit, counted, 1, u64::from(u32::MAX), findings);
    if limit.has("unit") {
        one_of(&mut limit, "unit", &RATE_UNITS, findings);
    }
    number(&mut limit, "burst", 0, u64::from(u32::MAX), findings);
    if counted == "requests" {
        number(&mut limit, "responseStatusCode", 400, 599, findings);
        for node in entries(&mut limit, "responseHeadersToAdd", MAX_HEADERS, false, findings) {
            let Some(mut header) = node.object(findings) else { continue };
            for name in ["name", "value"] {
                if let Some(node) = header.require(name, findings) {
                    node.text(findings);
                }
            }
            header.finish(findings);
        }
    }
    limit.finish(findings);
}
