//! Schemas that no Rust type has.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any value. Such a field keeps what it holds, and its reader judges it.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// An object with any fields, for parts of other APIs that SMC does not obey.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of objects with any fields. Unlike [`any_value`], a CEL rule can speak of it.
pub(crate) fn any_objects(_: &mut SchemaGenerator) -> Schema {
    let object = json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json_schema!({"type": "array", "items": object, "maxItems": 1024})
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
