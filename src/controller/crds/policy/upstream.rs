//! `policy.openservicemesh.io` UpstreamTrafficSetting.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crds::schema::any_object;
use crate::crds::status::ObjectStatus;

/// Limits of connections and rates to a service. Not enforced yet.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.openservicemesh.io",
    version = "v1alpha1",
    kind = "UpstreamTrafficSetting",
    plural = "upstreamtrafficsettings",
    category = "smc",
    namespaced,
    status = "ObjectStatus",
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.host")
)]
pub struct UpstreamTrafficSettingSpec {
    /// The host name of the service.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Limits of connections and requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_settings: Option<ConnectionSettings>,
    /// Limits of rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Limits of rates by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub http_routes: Option<Vec<RouteSetting>>,
}

/// Limits of connections and requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionSettings {
    /// Of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSettings>,
    /// Of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSettings>,
}

/// Limits of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpSettings {
    /// The most at once.
    pub max_connections: Option<u32>,
    /// How long opening one may take, as a duration.
    pub connect_timeout: Option<String>,
}

/// Limits of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateLimit {
    /// Counted by each sidecar of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalRateLimit>,
    /// Counted by a rate limit service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub global: Option<Value>,
}

/// Limits that each sidecar counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalRateLimit {
    /// Of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpRate>,
    /// Of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpRate>,
}

/// A rate of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
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
    #[schemars(length(max = 32))]
    pub response_headers_to_add: Option<Vec<Header>>,
}

/// A header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its value.
    #[schemars(length(min = 1, max = 4096))]
    pub value: String,
}

/// A limit of rates for some requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSetting {
    /// A regular expression (RE2) for the path.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RouteRateLimit>,
}

/// A limit of rates for some requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteRateLimit {
    /// Counted by each sidecar of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<HttpRate>,
    /// Counted by a rate limit service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub global: Option<Value>,
}
