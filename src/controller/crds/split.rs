//! `split.smi-spec.io`: TrafficSplit, v1alpha1 to v1alpha4.
//!
//! Owns the schemas. [`smc_api::smi::read_traffic_split`] reads the objects; the bounds are its. The
//! versions differ, so the API server asks the webhook to convert; v1alpha4 is stored.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{any_objects, quantity};
use super::status::ObjectStatus;

/// The traffic to a root service goes to the backends by weight.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "split.smi-spec.io",
    version = "v1alpha4",
    kind = "TrafficSplit",
    plural = "trafficsplits",
    shortname = "ts",
    category = "smi",
    namespaced,
    status = "ObjectStatus",
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.service")
)]
pub struct TrafficSplitSpec {
    /// The service that clients speak to, of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Where the traffic goes.
    #[schemars(length(min = 1, max = 256))]
    pub backends: Vec<Backend>,
    /// Only requests that match any of these groups are split; left out or empty, all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub matches: Option<Vec<GroupReference>>,
}

/// A share of the traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backend {
    /// A service of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Its weight, relative to the sum of all: a whole number.
    #[schemars(range(min = 0, max = 10_000_000), extend("multipleOf" = 1))]
    pub weight: f64,
}

/// A reference to an HTTPRouteGroup of the split's namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.kind == 'HTTPRouteGroup'", "message": "kind must be HTTPRouteGroup", "fieldPath": ".kind"},
]))]
pub struct GroupReference {
    /// `specs.smi-spec.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "split.smi-spec.io",
    version = "v1alpha2",
    kind = "TrafficSplit",
    root = "TrafficSplitV1Alpha2",
    plural = "trafficsplits",
    namespaced,
    status = "ObjectStatus",
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.service")
)]
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
    #[schemars(length(min = 1, max = 256))]
    pub backends: Vec<Backend>,
    /// No field of this version. It is known so that the API server refuses it: were it dropped, all requests
    /// would be split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub matches: Option<Vec<Value>>,
}

/// The traffic to a root service goes to the backends by weight.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "split.smi-spec.io",
    version = "v1alpha1",
    kind = "TrafficSplit",
    root = "TrafficSplitV1Alpha1",
    plural = "trafficsplits",
    namespaced,
    status = "ObjectStatus",
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.service")
)]
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
    #[schemars(length(min = 1, max = 256))]
    pub backends: Vec<QuantityBackend>,
    /// No field of this version. It is known so that the API server refuses it: were it dropped, all requests
    /// would be split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub matches: Option<Vec<Value>>,
}

/// A share of the traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantityBackend {
    /// A service of the split's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Its weight, relative to the sum of all: a quantity such as `500m` or `1`.
    #[schemars(schema_with = "quantity")]
    pub weight: Value,
}
