//! The schemas of TrafficSplit, v1alpha1 to v1alpha4.
//!
//! The versions differ, so the API server asks the webhook to convert; v1alpha4 is stored.

use schemars::JsonSchema;
use serde_json::Value;

use super::{MAX_BACKENDS, MAX_MATCHES, MAX_WEIGHT};
use crate::schema::quantity;

/// The traffic to a root service goes to the backends by weight.
#[derive(Debug, JsonSchema)]
pub struct TrafficSplitSpec {
    /// The service that clients speak to, of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Where the traffic goes.
    #[schemars(length(min = 1, max = MAX_BACKENDS))]
    pub backends: Vec<Backend>,
    /// Only requests that match any of these groups are split; left out or empty, all are.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<GroupReference>>,
}

/// A share of the traffic.
#[derive(Debug, JsonSchema)]
pub struct Backend {
    /// A service of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Its weight, relative to the sum of all: a whole number.
    #[schemars(range(min = 0, max = MAX_WEIGHT), extend("multipleOf" = 1))]
    pub weight: f64,
}

/// A reference to an HTTPRouteGroup of the split's namespace.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.kind == 'HTTPRouteGroup'", "message": "kind must be HTTPRouteGroup", "fieldPath": ".kind"},
]))]
pub struct GroupReference {
    /// `specs.smi-spec.io`.
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// `HTTPRouteGroup`.
    #[schemars(length(max = 64))]
    pub kind: String,
    /// The name of the group.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The traffic to a root service goes to the backends by weight.
#[derive(Debug, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.matches)",
    "message": "matches belongs to v1alpha3 and later",
    "fieldPath": ".matches",
}]))]
pub struct TrafficSplitV1Alpha2Spec {
    /// The service that clients speak to, of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Where the traffic goes.
    #[schemars(length(min = 1, max = MAX_BACKENDS))]
    pub backends: Vec<Backend>,
    /// No field of this version. It is known so that the API server refuses it: were it dropped, all requests
    /// would be split.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<GroupReference>>,
}

/// The traffic to a root service goes to the backends by weight.
#[derive(Debug, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.matches)",
    "message": "matches belongs to v1alpha3 and later",
    "fieldPath": ".matches",
}]))]
pub struct TrafficSplitV1Alpha1Spec {
    /// The service that clients speak to, of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Where the traffic goes.
    #[schemars(length(min = 1, max = MAX_BACKENDS))]
    pub backends: Vec<QuantityBackend>,
    /// No field of this version. It is known so that the API server refuses it: were it dropped, all requests
    /// would be split.
    #[schemars(length(max = MAX_MATCHES))]
    pub matches: Option<Vec<GroupReference>>,
}

/// A share of the traffic.
#[derive(Debug, JsonSchema)]
pub struct QuantityBackend {
    /// A service of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Its weight, relative to the sum of all: a quantity such as `500m` or `1`.
    #[schemars(schema_with = "quantity")]
    pub weight: Value,
}
