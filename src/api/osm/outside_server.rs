//! `address` and `port` of a server outside of the mesh that sidecars themselves call.
//!
//! Owns these two fields. What names no server that could be called is refused as a whole.

use std::net::IpAddr;

use smc_model::outside_server::{OutsideServer, ServerHost};
use smc_types::ids::ServiceId;
use smc_types::ports::is_of_sidecars;
use smc_types::text::truncated;

use crate::osm::policy::{is_address, is_host_name};
use crate::reading::{Fields, Findings, Node};
use crate::service_name::FullName;

/// Reads both fields.
pub(super) fn read(fields: &mut Fields, findings: &mut Findings) -> Option<OutsideServer> {
    let host = fields.require("address", findings).and_then(|node| host(node, findings));
    let port = fields.require("port", findings).and_then(|node| port(node, findings));
    Some(OutsideServer { host: host?, port: port? })
}

/// Warns, at this field, of what can be read `on the way` to the server.
pub(super) fn warn_of_clear_text(
    server: &OutsideServer,
    path: &str,
    on_the_way: &str,
    findings: &mut Findings,
) {
    if !matches!(server.host, ServerHost::Address(ip) if ip.is_loopback()) {
        findings.warning(path, format!("is called in clear text: on the way, {on_the_way}"));
    }
}

/// Reads `port`. At those of sidecars, which the name of a server may turn out to mean, a path could stop
/// every sidecar by its own admin interface.
pub(super) fn port(node: Node, findings: &mut Findings) -> Option<u16> {
    let path = node.path.clone();
    let port = node.port(findings)?;
    if is_of_sidecars(port) {
        findings.error(&path, format!("is {port}, a port of sidecars"));
        return None;
    }
    Some(port)
}

/// Reads `address`.
pub(super) fn host(node: Node, findings: &mut Findings) -> Option<ServerHost> {
    let path = node.path.clone();
    let text = node.text(findings)?;
    if let Ok(ip) = text.parse::<IpAddr>() {
        let can_be_dialled = !ip.is_unspecified() && !ip.is_multicast();
        if !can_be_dialled {
            findings.error(&path, format!("is {ip}, at which no server is"));
        }
        return can_be_dialled.then_some(ServerHost::Address(ip));
    }
    let name = text.to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    if !is_host_name(name) || is_address(name) {
        let shown = truncated(&text, 60);
        findings.error(&path, format!("is {shown:?}, which is neither a DNS name nor an IP address"));
        return None;
    }
    // Sidecars append no search domain.
    let service = FullName::parse(name).filter(|name| name.domain.is_none());
    let service = service.and_then(|name| ServiceId::new(name.namespace, name.name).ok());
    Some(ServerHost::Name(service.map_or_else(|| name.to_owned(), |service| service.fqdn())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_types::object_ref::Kind;

    use super::*;

    /// What is read, and how many problems are found.
    fn reading(fields: Value) -> (Option<OutsideServer>, usize) {
        let mut findings = Findings::new(Kind::MeshConfig, "smc-system/config".parse().unwrap());
        let mut fields = Node::spec(fields).object(&mut findings).unwrap();
        let server = read(&mut fields, &mut findings);
        (server, findings.into_reading(Some(())).problems.len())
    }

    #[test]
    fn no_server_is_at_a_port_of_sidecars() {
        for (port, expected) in
            [(15000, None), (15001, None), (15003, None), (15010, None), (15020, Some(15020))]
        {
            let (found, _) = reading(json!({"address": "192.0.2.7", "port": port}));
            assert_eq!(found.map(|server| server.port), expected, "{port}");
        }
    }

    #[test]
    fn an_address_is_one_of_ip_or_a_full_name() {
        let name = |name: &str| Some(ServerHost::Name(name.to_owned()));
        let ip = |ip: &str| Some(ServerHost::Address(ip.parse().unwrap()));
        for (address, expected) in [
            ("opa.example.com", name("opa.example.com")),
            ("OPA.example.com.", name("opa.example.com")),
            ("opa.opa.svc", name("opa.opa.svc.cluster.local")),
            ("opa.opa", name("opa.opa")),
            ("192.0.2.7", ip("192.0.2.7")),
            ("2001:db8::7", ip("2001:db8::7")),
            ("0.0.0.0", None),
            ("::", None),
            ("224.0.0.1", None),
            ("127.1", None),
            ("0x7f000001", None),
            ("*.example.com", None),
            ("opa.example.com:9191", None),
            ("", None),
        ] {
            let (found, problems) = reading(json!({"address": address, "port": 9191}));
            assert_eq!(problems, usize::from(expected.is_none()), "{address}");
            assert_eq!(found.map(|server| server.host), expected, "{address}");
        }
    }
}
