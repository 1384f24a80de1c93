//! `policy.openservicemesh.io/v1alpha1`: Egress, IngressBackend, Retry, Telemetry, UpstreamTrafficSetting.
//!
//! Owns what such an object must be like to mean anything. The mesh does not enforce these kinds yet, so a
//! reader returns only what is wrong, and that the object has no effect.

#![expect(clippy::needless_pass_by_value, reason = "the readers of all kinds have one signature")]

use serde_json::Value;

use crate::reading::{Fields, Findings, Node};
use smc_model::regex::Pattern;
use smc_types::duration;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId, check_subdomain};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

/// The most entries of a list in one object. They bound what reading it may cost.
const MAX_ENTRIES: usize = 1024;

/// The message of every such object.
pub const NOT_ENFORCED: &str = "is checked, and not enforced yet: it has no effect";

/// The protocols of a port that traffic leaves the mesh by.
const EGRESS_PROTOCOLS: [&str; 4] = ["http", "https", "tcp", "tcp-server-first"];
/// The protocols that an ingress may speak.
const INGRESS_PROTOCOLS: [&str; 2] = ["http", "https"];
const HTTP_ROUTE_GROUP: &str = "HTTPRouteGroup";
const UPSTREAM_TRAFFIC_SETTING: &str = "UpstreamTrafficSetting";
const RATE_UNITS: [&str; 3] = ["second", "minute", "hour"];

/// Reads the `spec` of an Egress.
pub fn read_egress(id: NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::Egress, &id, spec, |_, spec, findings| {
        for node in entries(spec, "sources", true, findings) {
            account(node, None, findings);
        }
        for node in entries(spec, "hosts", false, findings) {
            node.text(findings);
        }
        for node in entries(spec, "ipAddresses", false, findings) {
            range(node, findings);
        }
        for node in entries(spec, "ports", true, findings) {
            port(node, &EGRESS_PROTOCOLS, findings);
        }
        let kinds = [HTTP_ROUTE_GROUP, UPSTREAM_TRAFFIC_SETTING];
        let path = spec.path("matches");
        let settings = matches(spec, &kinds, findings).into_iter().filter(|kind| kind == kinds[1]).count();
        if settings > 1 {
            findings.error(&path, format!("names {settings} UpstreamTrafficSettings; one is the most"));
        }
    })
}

/// Reads the `spec` of an IngressBackend.
pub fn read_ingress_backend(id: NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::IngressBackend, &id, spec, |id, spec, findings| {
        let mut principals = false;
        for node in entries(spec, "sources", true, findings) {
            principals |= ingress_source(node, findings);
        }
        for node in entries(spec, "backends", true, findings) {
            ingress_port(id, node, principals, findings);
        }
        matches(spec, &[HTTP_ROUTE_GROUP], findings);
    })
}

/// Reads the `spec` of a Retry.
pub fn read_retry(id: NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::Retry, &id, spec, |id, spec, findings| {
        if let Some(node) = spec.require("source", findings) {
            account(node, Some(id.namespace()), findings);
        }
        for node in entries(spec, "destinations", true, findings) {
            reference(node, &["Service"], findings);
        }
        let policy = spec.require("retryPolicy", findings).and_then(|node| node.object(findings));
        let Some(mut policy) = policy else { return };
        if let Some(node) = policy.require("retryOn", findings) {
            node.text(findings);
        }
        for name in ["perTryTimeout", "retryBackoffBaseInterval"] {
            duration_of(&mut policy, name, findings);
        }
        number(&mut policy, "numRetries", 0, u64::from(u32::MAX), findings);
        policy.finish(findings);
    })
}

/// Reads the `spec` of a Telemetry.
pub fn read_telemetry(id: NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::Telemetry, &id, spec, |_, spec, findings| {
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

/// Reads the `spec` of an UpstreamTrafficSetting.
pub fn read_upstream_traffic_setting(id: NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::UpstreamTrafficSetting, &id, spec, |_, spec, findings| {
        host(spec, findings);
        if let Some(mut settings) = section(spec, "connectionSettings", findings) {
            if let Some(mut tcp) = section(&mut settings, "tcp", findings) {
                number(&mut tcp, "maxConnections", 0, u64::from(u32::MAX), findings);
                duration_of(&mut tcp, "connectTimeout", findings);
                tcp.finish(findings);
            }
            if let Some(mut http) = section(&mut settings, "http", findings) {
                for name in ["maxRequests", "maxRequestsPerConnection", "maxPendingRequests", "maxRetries"] {
                    number(&mut http, name, 0, u64::from(u32::MAX), findings);
                }
                http.finish(findings);
            }
            settings.finish(findings);
        }
        if let Some(mut limit) = section(spec, "rateLimit", findings) {
            if let Some(mut local) = section(&mut limit, "local", findings) {
                rate(&mut local, "tcp", "connections", findings);
                rate(&mut local, "http", "requests", findings);
                local.finish(findings);
            }
            limit.take("global");
            limit.finish(findings);
        }
        for node in entries(spec, "httpRoutes", false, findings) {
            let Some(mut route) = node.object(findings) else { continue };
            let path = route.path("path");
            if let Some(text) = route.require("path", findings).and_then(|node| node.text(findings))
                && let Err(error) = Pattern::prefix(&text)
            {
                findings.error(&path, error.to_string());
            }
            if let Some(mut limit) = section(&mut route, "rateLimit", findings) {
                rate(&mut limit, "local", "requests", findings);
                limit.take("global");
                limit.finish(findings);
            }
            route.finish(findings);
        }
    })
}

fn read(
    kind: Kind,
    id: &NamespacedName,
    spec: Value,
    fields: impl FnOnce(&NamespacedName, &mut Fields, &mut Findings),
) -> Reading<()> {
    let mut findings = Findings::new(kind, id.clone());
    // First, so that no number of findings leaves it out.
    findings.warning("", NOT_ENFORCED);
    if let Some(mut spec) = Node::spec(spec).object(&mut findings) {
        fields(id, &mut spec, &mut findings);
        spec.finish(&mut findings);
    }
    findings.into_reading(Some(()))
}

/// The entries of a list, which must be there and not empty if it is `needed`.
fn entries(spec: &mut Fields, name: &str, needed: bool, findings: &mut Findings) -> Vec<Node> {
    let path = spec.path(name);
    let node = if needed { spec.require(name, findings) } else { spec.take(name) };
    let Some(nodes) = node.and_then(|node| node.list(MAX_ENTRIES, findings)) else { return Vec::new() };
    if needed && nodes.is_empty() {
        findings.error(&path, "is empty, so the object can have no effect");
    }
    nodes
}

fn section(fields: &mut Fields, name: &str, findings: &mut Findings) -> Option<Fields> {
    fields.take(name).and_then(|node| node.object(findings))
}

/// The kind, name and namespace of a reference of one of these kinds.
fn reference(
    node: Node,
    kinds: &[&str],
    findings: &mut Findings,
) -> Option<(String, String, Option<String>)> {
    let mut fields = node.object(findings)?;
    let kind = one_of(&mut fields, "kind", kinds, findings);
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let namespace = match fields.take("namespace") {
        Some(node) => Some(node.text(findings)?),
        None => None,
    };
    fields.finish(findings);
    Some((kind?, name?, namespace))
}

fn one_of(fields: &mut Fields, name: &str, wanted: &[&str], findings: &mut Findings) -> Option<String> {
    let path = fields.path(name);
    let text = fields.require(name, findings).and_then(|node| node.text(findings))?;
    if wanted.contains(&text.as_str()) {
        return Some(text);
    }
    findings.error(&path, format!("must be {}, not {:?}", wanted.join(" or "), truncated(&text, 40)));
    None
}

/// A service account, whose namespace must be `own` if that is given.
fn account(node: Node, own: Option<&str>, findings: &mut Findings) {
    let path = node.path.clone();
    let Some((_, name, namespace)) = reference(node, &["ServiceAccount"], findings) else { return };
    let Some(namespace) = namespace else {
        findings.error(&format!("{path}.namespace"), "is missing");
        return;
    };
    if let Err(error) = ServiceAccountId::new(&namespace, &name) {
        findings.error(&path, error.to_string());
    } else if own.is_some_and(|own| own != namespace) {
        findings.error(&format!("{path}.namespace"), "must be the namespace of the object itself");
    }
}

/// Whether the source is an identity in a client's certificate.
fn ingress_source(node: Node, findings: &mut Findings) -> bool {
    let path = node.path.clone();
    let kinds = ["Service", "IPRange", "AuthenticatedPrincipal"];
    let Some((kind, name, namespace)) = reference(node, &kinds, findings) else { return false };
    match kind.as_str() {
        "Service" => match namespace {
            None => findings.error(&format!("{path}.namespace"), "is missing, which a Service needs"),
            Some(namespace) => {
                if let Err(error) = ServiceId::new(&namespace, &name) {
                    findings.error(&path, error.to_string());
                }
            }
        },
        "IPRange" => range(Node { path: format!("{path}.name"), value: name.into() }, findings),
        _ => return true,
    }
    false
}

fn ingress_port(id: &NamespacedName, node: Node, principals: bool, findings: &mut Findings) {
    let Some(mut fields) = node.object(findings) else { return };
    let path = fields.path("name");
    if let Some(name) = fields.require("name", findings).and_then(|node| node.text(findings))
        && let Err(error) = ServiceId::new(id.namespace(), &name)
    {
        findings.error(&path, error.to_string());
    }
    let node = fields.require("port", findings);
    let protocol = node.and_then(|node| port(node, &INGRESS_PROTOCOLS, findings));
    let mut any_client = false;
    if let Some(mut tls) = section(&mut fields, "tls", findings) {
        let skip = tls.require("skipClientCertValidation", findings);
        any_client = skip.and_then(|node| node.boolean(findings)).unwrap_or_default();
        for node in entries(&mut tls, "sniHosts", false, findings) {
            node.text(findings);
        }
        tls.finish(findings);
    }
    if protocol.as_deref() == Some("https") && !any_client && !principals {
        let message = "checks the certificates of clients, and no source is an AuthenticatedPrincipal: none could connect";
        findings.error(&fields.path("tls"), message);
    }
    fields.finish(findings);
}

/// The protocol of a port.
fn port(node: Node, protocols: &[&str], findings: &mut Findings) -> Option<String> {
    let mut fields = node.object(findings)?;
    if let Some(node) = fields.require("number", findings) {
        node.port(findings);
    }
    let protocol = one_of(&mut fields, "protocol", protocols, findings);
    fields.finish(findings);
    protocol
}

fn range(node: Node, findings: &mut Findings) {
    let path = node.path.clone();
    let Some(text) = node.text(findings) else { return };
    if text.parse::<ipnet::IpNet>().is_err() {
        let text = truncated(&text, 60);
        findings.error(&path, format!("is {text:?}, which is no address range such as 10.0.0.0/8"));
    }
}

/// The kinds that `matches` refers to.
fn matches(spec: &mut Fields, kinds: &[&str], findings: &mut Findings) -> Vec<String> {
    let nodes = entries(spec, "matches", false, findings);
    let read = |node: Node| {
        let mut fields = node.object(findings)?;
        if let Some(node) = fields.take("apiGroup") {
            node.text(findings);
        }
        let kind = one_of(&mut fields, "kind", kinds, findings);
        if let Some(node) = fields.require("name", findings) {
            node.text(findings);
        }
        fields.finish(findings);
        kind
    };
    nodes.into_iter().filter_map(read).collect()
}

/// A host name with a domain: a service's, or for an Egress of the namespace one outside of the mesh.
fn host(spec: &mut Fields, findings: &mut Findings) {
    let path = spec.path("host");
    let Some(host) = spec.require("host", findings).and_then(|node| node.text(findings)) else { return };
    if let Err(error) = check_subdomain("host", &host) {
        findings.error(&path, error.to_string());
    } else if !host.contains('.') {
        findings.error(&path, format!("is {:?}, without a domain", truncated(&host, 80)));
    }
}

fn duration_of(fields: &mut Fields, name: &str, findings: &mut Findings) {
    let Some(node) = fields.take(name) else { return };
    let path = node.path.clone();
    if let Some(text) = node.text(findings)
        && let Err(error) = duration::parse(&text)
    {
        findings.error(&path, error.to_string());
    }
}

fn number(fields: &mut Fields, name: &str, least: u64, most: u64, findings: &mut Findings) {
    let Some(node) = fields.take(name) else { return };
    if !node.value.as_u64().is_some_and(|number| (least..=most).contains(&number)) {
        findings.error(&node.path, format!("must be a whole number from {least} to {most}"));
    }
}

/// A local rate limit of `counted` things.
fn rate(fields: &mut Fields, name: &str, counted: &str, findings: &mut Findings) {
    let Some(mut limit) = section(fields, name, findings) else { return };
    number(&mut limit, counted, 1, u64::from(u32::MAX), findings);
    if limit.has("unit") {
        one_of(&mut limit, "unit", &RATE_UNITS, findings);
    }
    number(&mut limit, "burst", 0, u64::from(u32::MAX), findings);
    if counted == "requests" {
        number(&mut limit, "responseStatusCode", 400, 599, findings);
        for node in entries(&mut limit, "responseHeadersToAdd", false, findings) {
            let Some(mut header) = node.object(findings) else { continue };
            for name in ["name", "value"] {
                if let Some(node) = header.require(name, findings) {
                    node.text(findings);
                }
            }
            header.finish(findings);
        }
    }
    limit.finish(findings);
}

#[cfg(test)]
mod tests;
