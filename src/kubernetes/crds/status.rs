//! The `status` that SMC writes to the objects it reads.
//!
//! Owns its fields, the names of SMC's conditions and the printer columns' paths. [`crate::status`] decides
//! the contents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The condition of the object alone.
pub(crate) const ACCEPTED: &str = "Accepted";

/// The condition of the object in the mesh.
pub(crate) const PROGRAMMED: &str = "Programmed";

/// What SMC makes of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// The generation of the object that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the object can be read and is free of errors. `Programmed`: it is part of what the
    /// sidecars are sent, and no sidecar refused it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Of an IngressBackend, as in Open Service Mesh: `committed` or `error`. SMC leaves that of others
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_status: Option<String>,
    /// Why, of an IngressBackend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One thing that holds or does not hold of the object, in the form that all Kubernetes conditions have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Accepted` or `Programmed`.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The generation of the object that was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` changed last, as RFC 3339 has it.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Why, in one word.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Why, in full: the problems of the object.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// What [`ObjectStatus::current_status`] says of an object that is in effect.
pub(crate) const COMMITTED: &str = "committed";

/// What it says of one that is not.
pub(crate) const ERROR: &str = "error";

impl Condition {
    /// Whether SMC writes this condition.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.kind.as_str(), ACCEPTED | PROGRAMMED)
    }
}
