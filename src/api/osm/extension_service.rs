//! `config.openservicemesh.io` ExtensionService: a server outside of the mesh, which other objects name.
//!
//! Owns its fields. One that cannot be read as a whole is no server: nothing goes to an address that the
//! author did not name.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_model::outside_server::{ExtensionServer, OutsideServer, ServerHost};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use super::outside_server;
use super::policy::duration_within;
use crate::kind::{Column, CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<ExtensionServiceSpec>],
    columns: &[Column::text("Host", ".spec.host")],
    example: |_| json!({"host": "otel-collector.otel.svc.cluster.local", "port": 4317, "protocol": "h2c"}),
    read: |object| effective(read_extension_service(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::ExtensionService)
};

/// The protocols: names of OSM for HTTP/2 without TLS.
const PROTOCOLS: [&str; 2] = ["h2c", "http2"];

/// Envoy's default, and the bounds. Zero would mean none to Envoy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(1);

/// A server outside of the mesh.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct ExtensionServiceSpec {
    /// Its DNS name, in full, or its IP address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Its port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// What it speaks: `h2c` or `http2`, both HTTP/2 without TLS, which is also meant where this is left out.
    #[schemars(length(max = 32))]
    pub protocol: Option<String>,
    /// How long connecting may take, from 1ms to 1m; 5s if left out.
    #[schemars(length(max = 32))]
    pub connect_timeout: Option<String>,
}

/// An object as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionService {
    /// Its own name.
    pub id: NamespacedName,
    /// The server.
    pub server: Arc<ExtensionServer>,
}

/// Reads the `spec` of an ExtensionService.
pub fn read_extension_service(id: &NamespacedName, spec: Value) -> Reading<ExtensionService> {
    let mut findings = Findings::new(Kind::ExtensionService, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<ExtensionService> {
    let mut spec = spec.object(findings)?;
    let host = spec.require("host", findings).and_then(|node| host(node, findings));
    let port = spec.require("port", findings).and_then(|node| outside_server::port(node, findings));
    let known = is_known_protocol(&mut spec, findings);
    let timeout = duration_within(&mut spec, "connectTimeout", CONNECT_TIMEOUTS, findings);
    let address = spec.path("host");
    spec.finish(findings);
    let server = OutsideServer { host: host?, port: port? };
    if !known {
        return None;
    }
    outside_server::warn_of_clear_text(&server, &address, "what it is sent can be read", findings);
    let connect_timeout = timeout.unwrap_or(CONNECT_TIMEOUT);
    let server = Arc::new(ExtensionServer { server, connect_timeout });
    Some(ExtensionService { id: id.clone(), server })
}

/// Reads `host`. Tenants write it, and sidecars call it whatever Egress says: not the metadata service of a
/// cloud.
fn host(node: Node, findings: &mut Findings) -> Option<ServerHost> {
    let path = node.path.clone();
    let host = outside_server::host(node, findings)?;
    let ServerHost::Address(ip) = &host else { return Some(host) };
    let link_local = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if link_local {
        findings.error(&path, format!("is {ip}, which means another host on each node"));
        return None;
    }
    Some(host)
}

fn is_known_protocol(spec: &mut Fields, findings: &mut Findings) -> bool {
    let Some(node) = spec.take("protocol").filter(|node| node.value != "") else { return true };
    let path = node.path.clone();
    let Some(text) = node.text(findings) else { return false };
    let known = PROTOCOLS.iter().any(|protocol| text.eq_ignore_ascii_case(protocol));
    if !known {
        let (shown, wanted) = (truncated(&text, 40), PROTOCOLS[0]);
        findings.error(&path, format!("is {shown:?}: sidecars call such a server by {wanted} alone"));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: Value) -> (Option<ExtensionServer>, Vec<String>) {
        let Reading { object, problems } = read_extension_service(&"shop/otel".parse().unwrap(), spec);
        let fields = problems.into_iter().map(|problem| problem.field.replace("spec.", "")).collect();
        (object.map(|service| ExtensionServer::clone(&service.server)), fields)
    }

    fn at(host: ServerHost, port: u16, connect_timeout: Duration) -> ExtensionServer {
        ExtensionServer { server: OutsideServer { host, port }, connect_timeout }
    }

    #[test]
    fn a_server_is_read_as_it_is() {
        let name = ServerHost::Name("otel.otel.svc.cluster.local".to_owned());
        let ip = ServerHost::Address("127.0.0.1".parse().unwrap());
        let clear_text = vec!["host".to_owned()];
        for (sentence, spec, expected, problems) in [
            (
                "OSM's own shape",
                json!({"host": "otel.otel.svc.cluster.local", "port": 4317, "protocol": "h2c",
                    "connectTimeout": "2s"}),
                at(name.clone(), 4317, Duration::from_secs(2)),
                clear_text.clone(),
            ),
            (
                "a short name of a Service is made full",
                json!({"host": "otel.otel.svc", "port": 4317, "protocol": ""}),
                at(name, 4317, CONNECT_TIMEOUT),
                clear_text,
            ),
            (
                "what is beside the sidecar is reached within the pod",
                json!({"host": "127.0.0.1", "port": 4317, "protocol": "H2C"}),
                at(ip, 4317, CONNECT_TIMEOUT),
                vec![],
            ),
        ] {
            assert_eq!(read(spec), (Some(expected), problems), "{sentence}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_server() {
        for (name, value) in [
            ("host", json!("a b")),
            ("host", json!("")),
            ("host", json!(null)),
            ("host", json!("224.0.0.1")),
            ("host", json!("169.254.169.254")),
            ("host", json!("::ffff:169.254.169.254")),
            ("host", json!("fe80::1")),
            ("port", json!(0)),
            ("port", json!(65536)),
            ("port", json!("4317")),
            ("port", json!(15000)),
            ("protocol", json!("http")),
            ("protocol", json!("https")),
            ("protocol", json!(2)),
        ] {
            let mut spec = json!({"host": "192.0.2.7", "port": 4317});
            spec[name] = value.clone();
            assert_eq!(read(spec), (None, vec![name.to_owned()]), "{name} {value}");
        }
        for spec in
            [json!({}), json!({"port": 4317}), json!({"host": "192.0.2.7"}), json!("otel"), json!(null)]
        {
            assert_eq!(read(spec.clone()).0, None, "{spec}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_read_is_left_out() {
        for time in ["0s", "-1s", "61s", "8760h", "soon", ""] {
            let (server, fields) = read(json!({"host": "127.0.0.1", "port": 4317, "connectTimeout": time}));
            assert_eq!(server.map(|server| server.connect_timeout), Some(CONNECT_TIMEOUT), "{time:?}");
            assert_eq!(fields, ["connectTimeout"], "{time:?}");
        }
    }
}
