//! `specs.smi-spec.io`: HTTPRouteGroup, TCPRoute and UDPRoute.
//!
//! Owns the schemas. [`smc_api::smi`] reads the objects; the bounds are its.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::any_value;
use super::status::ObjectStatus;

/// Named matches of HTTP requests.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "specs.smi-spec.io",
    version = "v1alpha4",
    kind = "HTTPRouteGroup",
    plural = "httproutegroups",
    shortname = "htr",
    category = "smi",
    namespaced,
    status = "ObjectStatus"
)]
pub struct HttpRouteGroupSpec {
    /// The matches. TrafficTargets and TrafficSplits refer to them by name.
    #[schemars(length(max = 256))]
    pub matches: Vec<HttpMatch>,
}

/// One match: all that it names must hold, and what it leaves out matches everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// The name, once in the group.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// A regular expression (RE2) for the path, anchored at its start only. It does not see the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path_regex: Option<String>,
    /// HTTP methods; `*`, or the field left out, means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub methods: Option<Vec<Method>>,
    /// Header names, each with a regular expression for its value: a list of maps of one header each, or one
    /// map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_value")]
    pub headers: Option<Value>,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// All methods.
    #[serde(rename = "*")]
    Any,
    /// `CONNECT`.
    Connect,
    /// `DELETE`.
    Delete,
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
    /// `PATCH`.
    Patch,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `TRACE`.
    Trace,
}

/// TCP ports of a destination's pods.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "specs.smi-spec.io",
    version = "v1alpha4",
    kind = "TCPRoute",
    plural = "tcproutes",
    shortname = "tr",
    category = "smi",
    namespaced,
    status = "ObjectStatus"
)]
pub struct TcpRouteSpec {
    /// What the route matches; left out, all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<PortMatch>,
}

/// UDP ports of a destination's pods. The mesh carries no UDP: the object has no effect, and says so.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "specs.smi-spec.io",
    version = "v1alpha4",
    kind = "UDPRoute",
    plural = "udproutes",
    shortname = "ur",
    category = "smi",
    namespaced,
    status = "ObjectStatus"
)]
pub struct UdpRouteSpec {
    /// What the route matches; left out, all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<PortMatch>,
}

/// Ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortMatch {
    /// Ports of the pod; empty or left out, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), inner(range(min = 1, max = 65535)))]
    pub ports: Option<Vec<u16>>,
}
