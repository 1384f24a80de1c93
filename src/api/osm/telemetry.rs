//! `policy.openservicemesh.io` Telemetry: what the sidecars of pods log.
//!
//! Owns its fields, and the bounds on them. A selector that cannot be read selects nothing; a format that
//! cannot be read is left out, so that SMC's own fields are logged. A collector that cannot be read is none,
//! and an attribute that cannot be read is left out.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use smc_model::log_format::{Line, LogAttributes, LogFormat, LogLine, MAX_FORMAT};
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

/// The most attributes of a record, and the longest value, in characters. All of them together have
/// [`MAX_FORMAT`] bytes.
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
    /// A collector of OpenTelemetry, to which all that is logged is sent as well.
    pub open_telemetry: Option<OpenTelemetry>,
}

/// A collector of OpenTelemetry.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct OpenTelemetry {
    /// Where it is.
    pub extension_service: ExtensionServiceReference,
    /// What each record says besides: names and texts with operators, as in a format.
    #[schemars(default, schema_with = "attributes")]
    pub attributes: Option<BTreeMap<String, String>>,
}

/// An object of the kind ExtensionService.
#[derive(Debug, JsonSchema)]
pub struct ExtensionServiceReference {
    /// Its namespace: that of the Telemetry, or the control plane's.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
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
    /// The collector that is sent what is logged.
    pub collector: Option<Collector>,
}

/// A collector of OpenTelemetry as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// The ExtensionService that says where it is.
    pub service: NamespacedName,
    /// The attributes of each record.
    pub attributes: LogAttributes,
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
    let log = log.map(|mut log| {
        let format = log.take("format").and_then(|node| read_format(node, findings));
        let collector = log.take("openTelemetry").and_then(|node| read_collector(node, findings));
        log.finish(findings);
        (format, collector)
    });
    spec.finish(findings);
    let (selector, (format, collector)) = (selector?, log?);
    Some(Telemetry { id: id.clone(), selector, format, collector })
}

fn read_collector(node: Node, findings: &mut Findings) -> Option<Collector> {
    let mut fields = node.object(findings)?;
    let service = fields.require("extensionService", findings);
    let service = service.and_then(|node| read_reference(node, findings));
    let attributes = fields.take("attributes").and_then(|node| read_attributes(node, findings));
    fields.finish(findings);
    Some(Collector { service: service?, attributes: attributes.unwrap_or_default() })
}

fn read_reference(node: Node, findings: &mut Findings) -> Option<NamespacedName> {
    let path = node.path.clone();
    let mut fields = node.object(findings)?;
    let mut part = |name| fields.require(name, findings).and_then(|node| node.text(findings));
    let (namespace, name) = (part("namespace"), part("name"));
    fields.finish(findings);
    NamespacedName::new(&namespace?, &name?).map_err(|error| findings.error(&path, error.to_string())).ok()
}

/// What of the attributes can be read. `None` if they are too many.
fn read_attributes(node: Node, findings: &mut Findings) -> Option<LogAttributes> {
    let path = node.path.clone();
    let attributes: Vec<_> = node.object(findings)?.rest().collect();
    if attributes.len() > MAX_ATTRIBUTES {
        let message = format!("are {}; {MAX_ATTRIBUTES} are the most, and none is sent", attributes.len());
        findings.error(&path, message);
        return None;
    }
    let read = attributes.into_iter().filter_map(|(name, node)| {
        let path = node.path.clone();
        let text = node.text(findings)?;
        match Line::parse(&text) {
            Ok(line) => warn_of_credentials(line.logged_credentials(), &path, findings),
            Err(error) => {
                findings.error(&path, format!("{error}; the attribute is left out"));
                return None;
            }
        }
        Some((name, text))
    });
    let read = read.collect();
    match LogAttributes::of(read) {
        Ok(attributes) => Some(attributes),
        Err(error) => {
            findings.error(&path, format!("{error}; none is sent"));
            None
        }
    }
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
    warn_of_credentials(line.as_ref().and_then(LogLine::logged_credentials), &path, findings);
    if line.is_some_and(|line| line.is_nearly_json()) {
        findings.warning(&path, "begins with a brace and is no JSON object: it is logged as text");
    }
    Some(format)
}

fn warn_of_credentials(header: Option<&str>, path: &str, findings: &mut Findings) {
    if let Some(header) = header {
        let message = format!("logs the header {header}: a reader of the log can use its credentials");
        findings.warning(path, message);
    }
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
            collector: None,
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
            (json!({"formt": "x"}), false, vec!["spec.accessLog.formt"]),
        ] {
            let reading = read(json!({"accessLog": log}));
            let object = reading.object.as_ref().unwrap();
            assert_eq!(object.format.is_some(), has_format, "{log}");
            assert!(object.selector.is_empty());
            assert_eq!(fields(&reading), problems, "{log}");
        }
    }

    /// OSM's own shape.
    #[test]
    fn a_collector_is_named_with_the_attributes_of_a_record() {
        const FIELD: &str = "spec.accessLog.openTelemetry";
        let service = json!({"namespace": "osm-system", "name": "otel"});
        let many: BTreeMap<_, _> = (0..=MAX_ATTRIBUTES).map(|n| (n.to_string(), "x")).collect();
        for (sentence, attributes, expected, problems) in [
            ("none", json!({}), Some(&[][..]), vec![]),
            (
                "operators and texts",
                json!({"code": "%RESPONSE_CODE%", "zone": "a"}),
                Some(&["code", "zone"]),
                vec![],
            ),
            ("credentials", json!({"who": "%REQ(COOKIE)%"}), Some(&["who"]), vec![".attributes.who"]),
            ("one cannot be read", json!({"a": "%BOGUS%", "b": "c"}), Some(&["b"]), vec![".attributes.a"]),
            ("one is no text", json!({"a": 5, "b": "c"}), Some(&["b"]), vec![".attributes.a"]),
            ("too many", json!(many), Some(&[]), vec![".attributes"]),
            ("too long", json!({"a": "x".repeat(MAX_FORMAT)}), Some(&[]), vec![".attributes"]),
            ("a list", json!([]), Some(&[]), vec![".attributes"]),
        ] {
            let collector = json!({"extensionService": service, "attributes": attributes});
            let reading = read(json!({"accessLog": {"openTelemetry": collector}}));
            let found = reading.object.as_ref().unwrap().collector.as_ref();
            let names = found.map(|read| read.attributes.lines().map(|(name, _)| name).collect::<Vec<_>>());
            assert_eq!(names.as_deref(), expected, "{sentence}");
            assert_eq!(found.unwrap().service.to_string(), "osm-system/otel");
            let problems: Vec<_> = problems.iter().map(|field| format!("{FIELD}{field}")).collect();
            assert_eq!(fields(&reading), problems, "{sentence}");
        }
    }

    #[test]
    fn a_collector_without_a_name_is_none() {
        const FIELD: &str = "spec.accessLog.openTelemetry";
        for (collector, field) in [
            (json!({}), ".extensionService"),
            (json!({"extensionService": {"name": "otel"}}), ".extensionService.namespace"),
            (json!({"extensionService": {"namespace": "shop"}}), ".extensionService.name"),
            (json!({"extensionService": {"namespace": "a b", "name": "otel"}}), ".extensionService"),
            (json!({"extensionService": "shop/otel"}), ".extensionService"),
            (json!([]), ""),
        ] {
            let reading = read(json!({"accessLog": {"format": "%PROTOCOL%", "openTelemetry": collector}}));
            let object = reading.object.as_ref().unwrap();
            assert_eq!((&object.collector, object.format.is_some()), (&None, true), "{collector}");
            assert_eq!(fields(&reading), [format!("{FIELD}{field}")], "{collector}");
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
