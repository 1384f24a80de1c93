//! The CustomResourceDefinitions, made of the rows of the kinds.
//!
//! Owns the columns and rules that all kinds share, and the conversion of TrafficSplit.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube_core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};
use smc_api::kind::{Column, CustomKind, schema};
use smc_api::kinds;
use smc_types::ids::MeshNamespace;
use smc_types::kind::KindSpec;
use thiserror::Error;

use super::schema::corrected;
use super::status::ObjectStatus;
use crate::names::CONVERSION_SERVICE;

/// The port of the webhooks' Services, and the path of conversion.
const SERVICE_PORT: u16 = 443;
const CONVERSION_PATH: &str = "/convert";

/// A definition cannot be written as JSON or YAML.
#[derive(Debug, Error)]
pub enum DefinitionError {
    /// As JSON.
    #[error("the definition of {kind} has no JSON form")]
    Json {
        /// The kind.
        kind: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// As YAML.
    #[error("the definition {name} has no YAML form")]
    Yaml {
        /// The name of the definition.
        name: String,
        /// The cause.
        #[source]
        source: serde_saphyr::ser::Error,
    },
}

/// One CustomResourceDefinition, with its fields in alphabetical order.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    name: String,
    value: Value,
}

impl Definition {
    /// The name, such as `trafficsplits.split.smi-spec.io`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its file in the chart.
    pub fn file(&self) -> String {
        format!("{}.yaml", self.name)
    }

    /// The definition as JSON.
    pub fn as_json(&self) -> &Value {
        &self.value
    }

    /// The definition as a YAML document, the same for every call.
    pub fn to_yaml(&self) -> Result<String, DefinitionError> {
        let yaml = serde_saphyr::to_string(&self.value);
        yaml.map_err(|source| DefinitionError::Yaml { name: self.name.clone(), source })
    }
}

/// All definitions, in the order of their names. The API server has TrafficSplits converted by the control
/// plane in `namespace`.
pub fn definitions(namespace: &MeshNamespace) -> Result<Vec<Definition>, DefinitionError> {
    let mut all = kinds().map(|kind| definition(kind, namespace)).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// The definition of a kind. The first of its versions is stored.
fn definition(kind: &CustomKind, namespace: &MeshNamespace) -> Result<Definition, DefinitionError> {
    let KindSpec { name, group, plural, versions, .. } = kind.kind.spec();
    let mut columns: Vec<Value> = kind.columns.iter().map(column).collect();
    columns.extend(shared_columns());
    let mut all = Vec::new();
    for (index, (version, spec)) in versions.iter().zip(kind.schemas).enumerate() {
        all.push(json!({
            "name": version,
            "schema": {"openAPIV3Schema": object_schema(kind, *spec)?},
            "additionalPrinterColumns": columns,
            "subresources": {"status": {}},
            "storage": index == 0,
            "served": true,
        }));
    }
    let mut names = json!({
        "categories": [kind.category],
        "kind": name,
        "plural": plural,
        "singular": name.to_lowercase(),
    });
    if let Some(short) = kind.short_name {
        names["shortNames"] = json!([short]);
    }
    let mut spec = json!({"group": group, "names": names, "scope": "Namespaced", "versions": all});
    if kind.is_converted {
        spec["conversion"] = conversion(namespace);
    }
    let name = format!("{plural}.{group}");
    let value = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "smc"},
            // Without it, `helm uninstall` would delete all objects of the kind.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": spec,
    });
    Ok(Definition { name, value })
}

/// The schema of an object of the kind whose `spec` has this one.
fn object_schema(kind: &CustomKind, spec: fn(SchemaGenerator) -> Schema) -> Result<Value, DefinitionError> {
    let (spec, status) = (structural(kind, spec)?, structural(kind, schema::<ObjectStatus>)?);
    let mut object = json!({
        "type": "object",
        "description": spec["description"],
        "properties": {"spec": spec, "status": status},
        "required": ["spec"],
    });
    // Only the one name has an effect, so an object of another name would be a mistake that is not noticed.
    if let Some(only) = kind.only_name {
        object["x-kubernetes-validations"] = json!([{
            "rule": format!("self.metadata.name == '{only}'"),
            "message": format!("the name of a {} must be {only}", kind.kind),
        }]);
    }
    Ok(object)
}

/// A schema in the form that the API server takes: `kube` knows which that is.
fn structural(kind: &CustomKind, of: fn(SchemaGenerator) -> Schema) -> Result<Value, DefinitionError> {
    let settings = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString);
    let generated = of(settings.into_generator()).to_value();
    let typed = serde_json::from_value::<JSONSchemaProps>(generated);
    let json = typed.and_then(serde_json::to_value);
    let json = json.map_err(|source| DefinitionError::Json { kind: kind.kind.to_string(), source })?;
    let mut schema = corrected(json);
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
    }
    Ok(schema)
}

fn column(column: &Column) -> Value {
    json!({"name": column.name, "type": column.of, "jsonPath": column.path})
}

/// What `kubectl get` shows of every kind.
fn shared_columns() -> [Value; 4] {
    let condition = |name: &str, field: &str| format!(".status.conditions[?(@.type==\"{name}\")].{field}");
    let column = |name: &str, path: String, priority: u8| json!({"name": name, "type": "string", "jsonPath": path, "priority": priority});
    [
        column("Accepted", condition("Accepted", "status"), 0),
        column("Programmed", condition("Programmed", "status"), 0),
        column("Reason", condition("Programmed", "reason"), 0),
        json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
    ]
}

/// The webhook that converts TrafficSplits. The leader writes the CA that is trusted. Until then only the
/// stored version can be used, which is better than a split whose weights or matches were misread.
fn conversion(namespace: &MeshNamespace) -> Value {
    let service = json!({
        "namespace": namespace.as_str(),
        "name": CONVERSION_SERVICE,
        "path": CONVERSION_PATH,
        "port": SERVICE_PORT,
    });
    json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}},
    })
}
