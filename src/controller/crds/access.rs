//! `access.smi-spec.io`: TrafficTarget.
//!
//! Owns the schema. [`smc_api::smi::read_traffic_target`] reads the objects; the bounds are its.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::ObjectStatus;

/// Any of the sources may reach the destination, by any of the rules.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "access.smi-spec.io",
    version = "v1alpha3",
    kind = "TrafficTarget",
    plural = "traffictargets",
    shortname = "tt",
    category = "smi",
    namespaced,
    status = "ObjectStatus",
    printcolumn(name = "Destination", type_ = "string", json_path = ".spec.destination.name")
)]
pub struct TrafficTargetSpec {
    /// The identity that is reached, in the namespace of the target itself.
    pub destination: Account,
    /// The identities that may connect, in any namespace.
    #[schemars(length(min = 1, max = 1024))]
    pub sources: Vec<Account>,
    /// The routes by which they may.
    #[schemars(length(min = 1, max = 64))]
    pub rules: Vec<Rule>,
}

/// A reference to a service account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.kind == 'ServiceAccount'", "message": "kind must be ServiceAccount", "fieldPath": ".kind"},
]))]
pub struct Account {
    /// `ServiceAccount`.
    #[schemars(length(max = 64))]
    pub kind: String,
    /// The name of the service account.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; the object's own where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// A reference to a route of the object's own namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.kind == 'HTTPRouteGroup' || !has(self.matches)",
    "message": "matches belongs to an HTTPRouteGroup only",
    "fieldPath": ".matches",
}]))]
pub struct Rule {
    /// `HTTPRouteGroup`, `TCPRoute` or `UDPRoute`.
    pub kind: RouteKind,
    /// The name of the route.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The names of matches of an HTTPRouteGroup. Left out, all of them; an empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub matches: Option<Vec<String>>,
}

/// What a rule refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RouteKind {
    /// HTTP routes.
    #[serde(rename = "HTTPRouteGroup")]
    HttpRouteGroup,
    /// TCP ports.
    #[serde(rename = "TCPRoute")]
    TcpRoute,
    /// UDP ports, which are not enforced.
    #[serde(rename = "UDPRoute")]
    UdpRoute,
}
