//! `policy.openservicemesh.io` Telemetry: what the sidecars of pods log.
//!
//! Owns its fields, and the bounds on them. A selector that cannot be read selects nothing; a format that
//! cannot be read is left out, so that SMC's own fields are logged.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use smc_model::log_format::{LogFormat, LogLine, MAX_FORMAT};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use crate::kind::{CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<TelemetrySpec>],
    example: |_| json!({"accessLog": {"format": "%RESPONSE_CODE%"}}),
    read: |object| effective(read_telemetry(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::Telemetry)
};

/// The most labels of a selector. Each is looked for at each pod of the namespace.
const MAX_LABELS: usize = 16;

/// The most attributes of a log, and the longest value, in characters.
const MAX_ATTRIBUTES: usize = 128;
const MAX_ATTRIBUTE: usize = 4096;

/// Access logs.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct TelemetrySpec {
    /// Labels of the pods that are meant, which have all of them; left out, all of the namespace that no
    /// other Telemetry selects. In the namespace of the control plane, pods of all namespaces are meant that
    /// have no Telemetry of their own.
    #[schemars(default, schema_with = "selector")]
    pub selector: Option<BTreeMap<String, String>>,
    /// The access log of their sidecars.
    pub access_log: AccessLog,
}

/// An access log.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct AccessLog {
    /// Envoy's format: a text with operators, or a JSON object whose values are such texts. Left out, SMC's
    /// own fields.
    #[schemars(length(min = 1, max = 2 * MAX_FORMAT))]
    pub format: Option<String>,
    /// A collector of OpenTelemetry. Not enforced yet.
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

/// Values of labels have 63 characters.
fn selector(_: &mut SchemaGenerator) -> Schema {
    let value = json!({"type": "string", "maxLength": 63});
    json_schema!({"type": "object", "additionalProperties": value, "maxProperties": MAX_LABELS})
}

fn attributes(_: &mut SchemaGenerator) -> Schema {
    let value = json!({"type": "string", "maxLength": MAX_ATTRIBUTE});
    json_schema!({"type": "object", "additionalProperties": value, "maxProperties": MAX_ATTRIBUTES})
}

/// An object as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// Its own name.
    pub id: NamespacedName,
    /// The labels of the pods of its namespace that are meant. Empty means all that no other one selects.
    pub selector: BTreeMap<String, String>,
    /// How a line is made; `None` for SMC's own fields.
    pub format: Option<LogFormat>,
}

/// Reads the `spec` of a Telemetry.
pub fn read_telemetry(id: &NamespacedName, spec: Value) -> Reading<Telemetry> {
    let mut findings = Findings::new(Kind::Telemetry, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<Telemetry> {
    let mut spec = spec.object(findings)?;
    let selector = match spec.take("selector") {
        Some(node) => read_selector(node, findings),
        None => Some(BTreeMap::new()),
    };
    let log = spec.require("accessLog", findings).and_then(|node| node.object(findings));
    let format = log.map(|mut log| {
        let format = log.take("format").and_then(|node| read_format(node, findings));
        let path = log.path("openTelemetry");
        // Its fields are those of a kind that the mesh does not read.
        if log.take("openTelemetry").is_some() {
            findings.warning(&path, "is not enforced yet: no collector is sent what is logged");
        }
        log.finish(findings);
        format
    });
    spec.finish(findings);
    Some(Telemetry { id: id.clone(), selector: selector?, format: format? })
}

/// The labels. `None` if one of them cannot be read: fewer would select more.
fn read_selector(node: Node, findings: &mut Findings) -> Option<BTreeMap<String, String>> {
    let path = node.path.clone();
    let labels: Vec<_> = node.object(findings)?.rest().collect();
    if labels.len() > MAX_LABELS {
        findings.error(&path, format!("has {} labels; {MAX_LABELS} are the most", labels.len()));
        return None;
    }
    let labels: Vec<_> =
        labels.into_iter().map(|(name, value)| Some((name, value.text(findings)?))).collect();
    labels.into_iter().collect()
}

fn read_format(node: Node, findings: &mut Findings) -> Option<LogFormat> {
    let path = node.path.clone();
    let text = node.text(findings)?;
    let format = match LogFormat::parse(&text) {
        Ok(format) => format,
        Err(error) => {
            findings.error(&path, format!("{error}; SMC's own fields are logged"));
            return None;
        }
    };
    let line = format.line();
    if let Some(header) = line.as_ref().and_then(LogLine::logged_credentials) {
        findings
            .warning(&path, format!("logs the header {header}: a reader of the log can use its credentials"));
    }
    if line.is_some_and(|line| line.is_nearly_json()) {
        findings.warning(&path, "begins with a brace and is no JSON object: it is logged as text");
    }
    Some(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: Value) -> Reading<Telemetry> {
        read_telemetry(&"shop/logs".parse().unwrap(), spec)
    }

    fn fields(reading: &Reading<Telemetry>) -> Vec<&str> {
        reading.problems.iter().map(|problem| problem.field.as_str()).collect()
    }

    #[test]
    fn a_telemetry_is_read_as_it_is() {
        let text = "[%START_TIME%] %RESPONSE_CODE%\n";
        let spec = json!({"selector": {"app": "httpbin"}, "accessLog": {"format": text}});
        let expected = Telemetry {
            id: "shop/logs".parse().unwrap(),
            selector: [("app".to_owned(), "httpbin".to_owned())].into(),
            format: Some(LogFormat::parse(text).unwrap()),
        };
        assert_eq!(read(spec), Reading { object: Some(expected), problems: vec![] });
    }

    #[test]
    fn a_format_that_cannot_be_read_is_left_out() {
        const FORMAT: &str = "spec.accessLog.format";
        for (log, has_format, problems) in [
            (json!({}), false, vec![]),
            (json!({"format": "%PROTOCOL%"}), true, vec![]),
            (json!({"format": "{\"a\": \"%PROTOCOL%\"}"}), true, vec![]),
            (json!({"format": "{a: %PROTOCOL%}"}), true, vec![FORMAT]),
            (json!({"format": "%REQ(COOKIE)%"}), true, vec![FORMAT]),
            (json!({"format": "%BOGUS%"}), false, vec![FORMAT]),
            (json!({"format": "{\"a\": \"%ENVIRONMENT(A)%\"}"}), false, vec![FORMAT]),
            (json!({"format": ""}), false, vec![FORMAT]),
            (json!({"format": 5}), false, vec![FORMAT]),
            (json!({"openTelemetry": {}}), false, vec!["spec.accessLog.openTelemetry"]),
            (json!({"formt": "x"}), false, vec!["spec.accessLog.formt"]),
        ] {
            let reading = read(json!({"accessLog": log}));
            let object = reading.object.as_ref().unwrap();
            assert_eq!(object.format.is_some(), has_format, "{log}");
            assert!(object.selector.is_empty());
            assert_eq!(fields(&reading), problems, "{log}");
        }
    }

    #[test]
    fn what_selects_or_says_nothing_that_can_be_read_has_no_effect() {
        let many: BTreeMap<_, _> = (0..=MAX_LABELS).map(|n| (n.to_string(), "x")).collect();
        for (spec, field) in [
            (json!({"accessLog": {}, "selector": {"app": 5}}), "spec.selector.app"),
            (json!({"accessLog": {}, "selector": {"app": null, "b": "c"}}), "spec.selector.app"),
            (json!({"accessLog": {}, "selector": "app=web"}), "spec.selector"),
            (json!({"accessLog": {}, "selector": many}), "spec.selector"),
            (json!({}), "spec.accessLog"),
            (json!({"accessLog": "all"}), "spec.accessLog"),
            (json!("all"), "spec"),
        ] {
            let reading = read(spec.clone());
            assert_eq!((reading.object.as_ref(), fields(&reading)), (None, vec![field]), "{spec}");
        }
    }
}
