//! `policy.openservicemesh.io` Telemetry.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use super::policy::read;
use crate::kind::{CustomKind, schema, without_effect};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<TelemetrySpec>],
    example: |_| json!({"accessLog": {"format": "%RESPONSE_CODE%"}}),
    read: |object| without_effect(read_telemetry(&object.id, object.spec)),
    ..CustomKind::new(Kind::Telemetry)
};

/// The most attributes of a log, and the longest value, in characters.
const MAX_ATTRIBUTES: usize = 128;
const MAX_ATTRIBUTE: usize = 4096;

/// Access logs. Not enforced yet.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct TelemetrySpec {
    /// Labels of the pods that are meant; left out, all of the namespace.
    pub selector: Option<BTreeMap<String, String>>,
    /// The access log of their sidecars.
    pub access_log: Option<AccessLog>,
}

/// An access log.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct AccessLog {
    /// Envoy's format.
    #[schemars(length(min = 1))]
    pub format: Option<String>,
    /// A collector of OpenTelemetry.
    pub open_telemetry: Option<OpenTelemetry>,
}

/// A collector of OpenTelemetry.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct OpenTelemetry {
    /// Where it is: an object of a kind that SMC does not read.
    pub extension_service: Option<ExtensionService>,
    /// What each line says besides.
    #[schemars(default, schema_with = "attributes")]
    pub attributes: Option<BTreeMap<String, String>>,
}

/// An object of the kind ExtensionService.
#[derive(Debug, JsonSchema)]
pub struct ExtensionService {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: Option<String>,
}

fn attributes(_: &mut SchemaGenerator) -> Schema {
    let value = json!({"type": "string", "maxLength": MAX_ATTRIBUTE});
    json_schema!({"type": "object", "additionalProperties": value, "maxProperties": MAX_ATTRIBUTES})
}

/// Reads the `spec` of a Telemetry.
pub fn read_telemetry(id: &NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::Telemetry, id, spec, |_, spec, findings| {
        if let Some(labels) = spec.take("selector").and_then(|node| node.object(findings)) {
            for (_, value) in labels.rest() {
                value.text(findings);
            }
        }
        let log = spec.take("accessLog").and_then(|node| node.object(findings));
        let Some(mut log) = log else { return };
        if let Some(node) = log.take("format") {
            node.text(findings);
        }
        // Its fields are those of a kind that the mesh does not read.
        log.take("openTelemetry");
        log.finish(findings);
    })
}
