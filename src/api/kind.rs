//! A custom kind: how its objects are read, and what its definition says.
//!
//! Owns the row that each kind has beside its reader. What the API server calls the kind is in
//! [`Kind::spec`]; from both follow its definition, the rights of the control plane, the watches, validation
//! and status.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;
use smc_types::ids::NamespacedName;
use smc_types::kind::Kind;
use smc_types::problem::Reading;

use crate::object::Object;

/// What there is to a custom kind, beside its names ([`Kind::spec`]).
#[derive(Debug, Clone, Copy)]
pub struct CustomKind {
    /// Which kind.
    pub kind: Kind,
    /// Reads an object. It gives none of a kind that has no effect.
    pub read: fn(Declared<'_>) -> Reading<Object>,
    /// A `spec` as an author writes it, for an object of this namespace: one without a mistake, in the
    /// version that is stored. Tests declare objects of every kind by it.
    pub example: fn(&str) -> Value,
    /// The schema of `spec` in each version of the kind, in their order. The first is stored.
    pub schemas: &'static [fn(SchemaGenerator) -> Schema],
    /// What the API server lets people call it, too.
    pub short_name: Option<&'static str>,
    /// The category of which it is.
    pub category: &'static str,
    /// What `kubectl get` shows of it, beside the columns that all kinds have.
    pub columns: &'static [Column],
    /// Whether the control plane converts its objects between the versions.
    pub is_converted: bool,
    /// The only name that an object may have.
    pub only_name: Option<&'static str>,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Its type, as a definition spells it.
    pub of: &'static str,
    /// Where its value is in an object.
    pub path: &'static str,
}

impl Column {
    /// A column of text.
    pub const fn text(name: &'static str, path: &'static str) -> Self {
        Self { name, of: "string", path }
    }
}

/// An object of a custom kind, as its author declared it.
#[derive(Debug)]
pub struct Declared<'a> {
    /// The name of the object.
    pub id: NamespacedName,
    /// The version that it is written in: one of the kind's.
    pub version: &'static str,
    /// The UUID of a proxy that the object is labelled with.
    pub proxy_uuid: Option<&'a str>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Its `spec`; `null` where it has none.
    pub spec: Value,
}

impl CustomKind {
    /// A row to fill in, of SMC's own category. Its reader reads nothing, and it has no schema.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            read: |_| Reading { object: None, problems: Vec::new() },
            example: |_| Value::Null,
            schemas: &[],
            short_name: None,
            category: "smc",
            columns: &[],
            is_converted: false,
            only_name: None,
        }
    }
}

/// The schema of a type, for [`CustomKind::schemas`].
pub fn schema<Spec: JsonSchema>(generator: SchemaGenerator) -> Schema {
    generator.into_root_schema_for::<Spec>()
}

/// The reading of an object that takes effect.
pub(crate) fn effective<T>(reading: Reading<T>, object: impl FnOnce(T) -> Object) -> Reading<Object> {
    Reading { object: reading.object.map(object), problems: reading.problems }
}
