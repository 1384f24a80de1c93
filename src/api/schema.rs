//! Schemas that no Rust type has.
//!
//! Owns what a definition says of values of more than one type. Such a schema has no type, so the API server
//! drops nothing of the value; its bounds say what lists, maps and text may hold.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use smc_model::quantity::MAX_QUANTITY;

/// The most resources of a container. Kubernetes has a handful, devices some more.
pub(crate) const MAX_RESOURCES: usize = 64;

/// A quantity as Kubernetes reads one that is not negative.
const QUANTITY: &str = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// A map, or a list of maps, with the same type of values.
pub(crate) fn map_or_maps(most: usize, values: &Value) -> Schema {
    json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "maxProperties": most,
        "additionalProperties": values,
        "maxItems": most,
        "items": {"type": "object", "maxProperties": most, "additionalProperties": values},
        // Neither is text, and the reader refuses it.
        "maxLength": 0,
    })
}

/// Resources by name. Each is a number, whole or not, or text such as `500m`.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let amount = json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "maxProperties": 0,
        "maxItems": 0,
        "maxLength": MAX_QUANTITY,
        "pattern": QUANTITY,
    });
    json_schema!({"type": "object", "additionalProperties": amount, "maxProperties": MAX_RESOURCES})
}

/// A Kubernetes quantity: a number, or text such as `500m`. The pattern is that of the weights which
/// [`crate::smi::read_traffic_split`] reads.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^[0-9]{1,9}(\.[0-9]{0,9})?[mk]?$",
        "x-kubernetes-int-or-string": true,
    })
}
