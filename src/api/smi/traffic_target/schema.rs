//! The schema of TrafficTarget.

use schemars::JsonSchema;

use super::{MAX_MATCHES, MAX_RULES, MAX_SOURCES};

/// Any of the sources may reach the destination, by any of the rules.
#[derive(Debug, JsonSchema)]
pub struct TrafficTargetSpec {
    /// The identity that is reached, in the namespace of the target itself.
    pub destination: Account,
    /// The identities that may connect, in any namespace.
    #[schemars(length(min = 1, max = MAX_SOURCES))]
    pub sources: Vec<Account>,
    /// The routes by which they may.
    #[schemars(length(min = 1, max = MAX_RULES))]
    pub rules: Vec<Rule>,
}

/// A reference to a service account.
#[derive(Debug, JsonSchema)]
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
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// A reference to a route of the object's own namespace.
#[derive(Debug, JsonSchema)]
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
    #[schemars(length(max = MAX_MATCHES), inner(length(max = 253)))]
    pub matches: Option<Vec<String>>,
}

/// What a rule refers to.
#[derive(Debug, JsonSchema)]
pub enum RouteKind {
    /// HTTP routes.
    #[schemars(rename = "HTTPRouteGroup")]
    HttpRouteGroup,
    /// TCP ports.
    #[schemars(rename = "TCPRoute")]
    TcpRoute,
    /// UDP ports, which are not enforced.
    #[schemars(rename = "UDPRoute")]
    UdpRoute,
}
