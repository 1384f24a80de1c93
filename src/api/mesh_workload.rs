//! `mesh.smc.dev/v1alpha1` MeshWorkload: a machine without a pod.
//!
//! Owns its fields. A machine is a [`Workload`] like a pod: it has an identity, addresses and a sidecar. Two
//! things differ. Its author states what a platform says of a pod, so every statement is read strictly. It is
//! behind the services that it names, and behind no other: a selector that was written for pods does not
//! match it, since its labels are no promise about the machine, and its certificate names the first service.
//!
//! A machine is an endpoint from its declaration on, until it is declared `drained`. Whether its proxy is
//! connected does not count: each replica knows the connections to itself alone, and the endpoints of a mesh
//! must not differ between replicas, or go when one restarts. Callers try another endpoint when it refuses
//! their connections.

pub mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use smc_model::topology::{Readiness, Workload};
use smc_types::ids::{NamespacedName, ProxyUuid, ServiceAccountId, ServiceId, WorkloadId, check_label};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use crate::address::{check_port_name, read_host_address};
use crate::kind::{Column, CustomKind, effective, schema as schema_of};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema_of::<schema::MeshWorkloadSpec>],
    example: |_| json!({"serviceAccountName": "web", "addresses": ["192.0.2.7"], "services": ["web"]}),
    read: |object| {
        let meta = MeshWorkloadMeta { proxy_uuid: object.proxy_uuid, terminating: object.terminating };
        effective(read_mesh_workload(object.id, meta, object.spec), Object::from)
    },
    short_name: Some("mwl"),
    columns: &[Column::text("Addresses", ".spec.addresses"), Column::text("Services", ".spec.services")],
    ..CustomKind::new(Kind::MeshWorkload)
};

/// One address of each family.
const MAX_ADDRESSES: usize = 2;
/// The most services of one machine: each costs its callers an endpoint, and the machine an inbound port.
const MAX_SERVICES: usize = 32;
/// The most named ports of one machine.
const MAX_PORTS: usize = 64;

/// What the metadata of a MeshWorkload says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeshWorkloadMeta<'a> {
    /// The label `osm-proxy-uuid`; without it, the UUID is derived from the name.
    pub proxy_uuid: Option<&'a str>,
    /// Whether it has a deletion timestamp.
    pub terminating: bool,
}

/// Reads a MeshWorkload.
///
/// One whose identity or proxy is uncertain is refused: its service account, its first service or its UUID
/// could otherwise be another's. A single address, further service or port that cannot be used is left out.
/// Without an address it is known, and no endpoint.
pub fn read_mesh_workload(id: NamespacedName, meta: MeshWorkloadMeta<'_>, spec: Value) -> Reading<Workload> {
    let mut findings = Findings::new(Kind::MeshWorkload, id.clone());
    let workload = read(&WorkloadId::machine(id), meta, spec, &mut findings);
    findings.into_reading(workload)
}

fn read(
    id: &WorkloadId,
    meta: MeshWorkloadMeta<'_>,
    spec: Value,
    findings: &mut Findings,
) -> Option<Workload> {
    let proxy = read_uuid(id, meta.proxy_uuid, findings);
    let mut spec = Node::spec(spec).object(findings)?;
    let account = spec.require("serviceAccountName", findings);
    let account = account.and_then(|node| read_account(id, node, findings));
    let services = spec.require("services", findings).and_then(|node| read_services(id, node, findings));
    let addresses = spec.require("addresses", findings);
    let ips = addresses.map(|node| read_addresses(node, findings)).unwrap_or_default();
    let ports = spec.take("ports").map(|node| read_ports(node, findings)).unwrap_or_default();
    // What cannot be read takes the machine out of its services, and never into them.
    let drained = spec.take("drained").is_some_and(|node| node.boolean(findings).unwrap_or(true));
    spec.finish(findings);
    let serves = !ips.is_empty() && !drained;
    Some(Workload {
        id: id.clone(),
        proxy: proxy?,
        service_account: account?,
        labels: BTreeMap::new(),
        services: services?,
        ips,
        ports,
        readiness: Readiness::of(serves, meta.terminating),
        // Its declaration asks for a proxy; whether it gets one is its namespace's decision.
        injection: Some(true),
    })
}

fn read_uuid(id: &WorkloadId, label: Option<&str>, findings: &mut Findings) -> Option<ProxyUuid> {
    let Some(text) = label else { return Some(ProxyUuid::derived(id)) };
    let uuid = text.parse::<ProxyUuid>().ok().filter(|uuid| !uuid.0.is_nil());
    if uuid.is_none() {
        let message = format!("{:?} is not a UUID; the machine is left out", truncated(text, 63));
        findings.error("metadata.labels[osm-proxy-uuid]", message);
    }
    uuid
}

/// The identity. There is no default: `default` is what pods have that say nothing, and a machine must not
/// get the access of those by an omission.
fn read_account(id: &WorkloadId, node: Node, findings: &mut Findings) -> Option<ServiceAccountId> {
    let path = node.path.clone();
    let name = node.text(findings)?;
    let account = ServiceAccountId::new(id.namespace(), &name);
    let refused = |error| findings.error(&path, format!("{error}; the machine is left out"));
    account.map_err(refused).ok()
}

fn read_services(id: &WorkloadId, node: Node, findings: &mut Findings) -> Option<Vec<ServiceId>> {
    let path = node.path.clone();
    let mut services: Vec<ServiceId> = Vec::new();
    for (index, node) in node.list(MAX_SERVICES, findings)?.into_iter().enumerate() {
        let path = node.path.clone();
        let service = node.text(findings).and_then(|name| {
            let checked = check_label("service name", &name);
            let service = checked.and_then(|()| ServiceId::new(id.namespace(), &name));
            service.map_err(|error| findings.error(&path, error.to_string())).ok()
        });
        match service {
            Some(service) if services.contains(&service) => {
                findings.warning(&path, format!("is {} again", service.name()));
            }
            Some(service) => services.push(service),
            None if index == 0 => {
                findings.error(&path, "is in the name of the machine's proxy, so the machine is left out");
                return None;
            }
            None => {}
        }
    }
    if services.is_empty() {
        findings.error(&path, "is empty, but the first service is in the name of the machine's proxy");
        return None;
    }
    Some(services)
}

fn read_addresses(node: Node, findings: &mut Findings) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for node in node.list(MAX_ADDRESSES, findings).unwrap_or_default() {
        let path = node.path.clone();
        let Some(text) = node.text(findings) else { continue };
        let refusal = match read_host_address(&text) {
            Ok(address) if addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) => {
                "is a second address of its family"
            }
            Ok(address) => {
                addresses.push(address);
                continue;
            }
            Err(refusal) => refusal,
        };
        findings.error(&path, format!("{:?} {refusal}; left out", truncated(&text, 60)));
    }
    addresses
}

/// The ports that services may target by name.
fn read_ports(node: Node, findings: &mut Findings) -> BTreeMap<String, u16> {
    let mut ports = BTreeMap::new();
    let mut names = BTreeSet::new();
    for node in node.list(MAX_PORTS, findings).unwrap_or_default() {
        let Some(mut fields) = node.object(findings) else { continue };
        let name = fields.require("name", findings).and_then(|node| read_port_name(node, findings));
        let number = fields.require("number", findings).and_then(|node| node.port(findings));
        let tcp = read_transport(&mut fields, findings);
        let path = fields.path("name");
        fields.finish(findings);
        let Some(name) = name else { continue };
        if !names.insert(name.clone()) {
            findings.error(&path, format!("is {name} again; only its first entry counts"));
        } else if let Some(number) = number.filter(|_| tcp) {
            ports.insert(name, number);
        }
    }
    ports
}

fn read_port_name(node: Node, findings: &mut Findings) -> Option<String> {
    let path = node.path.clone();
    let name = node.text(findings)?;
    match check_port_name(&name) {
        Ok(()) => Some(name),
        Err(reason) => {
            findings.error(&path, format!("{:?} {reason}; left out", truncated(&name, 60)));
            None
        }
    }
}

/// Whether the transport is TCP, the only one that the mesh carries. As in a Pod, it is TCP if not stated.
/// What is spoken over TCP, the Service says.
fn read_transport(fields: &mut Fields, findings: &mut Findings) -> bool {
    let Some(node) = fields.take("protocol") else { return true };
    let path = node.path.clone();
    let Some(protocol) = node.text(findings) else { return false };
    if protocol != "TCP" {
        let message =
            format!("is {:?}; the mesh carries only TCP, so the port is left out", truncated(&protocol, 40));
        findings.warning(&path, message);
    }
    protocol == "TCP"
}

#[cfg(test)]
mod tests {
    use smc_types::problem::Severity;

    use super::*;

    fn read_spec(spec: &Value) -> Reading<Workload> {
        let id = "bank/ledger-1".parse().unwrap();
        read_mesh_workload(id, MeshWorkloadMeta::default(), spec.clone())
    }

    fn spec() -> Value {
        json!({
            "addresses": ["192.0.2.10", "2001:db8::10"],
            "serviceAccountName": "ledger",
            "services": ["ledger", "audit"],
            "ports": [{"name": "http", "number": 8080}, {"name": "db", "number": 5432, "protocol": "TCP"}],
        })
    }

    fn with(field: &str, value: Value) -> Value {
        let mut spec = spec();
        spec[field] = value;
        spec
    }

    fn fields(reading: &Reading<Workload>) -> Vec<(Severity, &str)> {
        reading.problems.iter().map(|problem| (problem.severity, problem.field.as_str())).collect()
    }

    #[test]
    fn a_machine_has_an_identity_a_proxy_services_and_addresses() {
        let reading = read_spec(&spec());
        assert_eq!(reading.problems, []);
        let machine = reading.object.unwrap();
        assert_eq!(machine.id.to_string(), "machine/bank/ledger-1");
        assert_eq!(machine.service_account.to_string(), "bank/ledger");
        let services: Vec<_> = machine.services.iter().map(ToString::to_string).collect();
        assert_eq!(services, ["bank/ledger", "bank/audit"]);
        assert_eq!(machine.ips.len(), 2);
        assert_eq!(machine.ports, [("db".to_owned(), 5432), ("http".to_owned(), 8080)].into());
        assert!(machine.readiness.is_ready() && machine.labels.is_empty());
        let uuid = ProxyUuid::derived(&machine.id);
        assert_eq!(machine.proxy_name().to_string(), format!("{uuid}.ledger.bank"));
        assert_eq!(machine.proxy_name().to_string().parse(), Ok(machine.proxy_name()));
    }

    #[test]
    fn a_machine_whose_identity_or_proxy_is_uncertain_is_left_out() {
        for (field, value, found) in [
            ("serviceAccountName", json!(null), "spec.serviceAccountName"),
            ("serviceAccountName", json!("../admin"), "spec.serviceAccountName"),
            ("services", json!([]), "spec.services"),
            ("services", json!("ledger"), "spec.services"),
            ("services", json!([7, "ledger"]), "spec.services[0]"),
            ("services", json!(["other/ledger"]), "spec.services[0]"),
            ("services", json!(["ledger.other"]), "spec.services[0]"),
            ("services", json!(vec!["a"; MAX_SERVICES + 1]), "spec.services"),
        ] {
            let reading = read_spec(&with(field, value.clone()));
            assert_eq!(reading.object, None, "{field} {value}");
            assert!(fields(&reading).contains(&(Severity::Error, found)), "{value}: {:?}", reading.problems);
        }
        for missing in ["serviceAccountName", "services"] {
            let mut spec = spec();
            spec.as_object_mut().unwrap().remove(missing);
            assert_eq!(read_spec(&spec).object, None, "{missing}");
        }
        for uuid in ["", "nonsense", "00000000-0000-0000-0000-000000000000"] {
            let meta = MeshWorkloadMeta { proxy_uuid: Some(uuid), terminating: false };
            let reading = read_mesh_workload("bank/ledger-1".parse().unwrap(), meta, spec());
            assert_eq!(reading.object, None, "{uuid:?}");
        }
    }

    #[test]
    fn a_part_that_cannot_be_used_is_left_out() {
        for (field, value, found, left) in [
            ("addresses", json!(["127.0.0.1", "192.0.2.1"]), "spec.addresses[0]", 1),
            ("addresses", json!(["192.0.2.1", "192.0.2.2"]), "spec.addresses[1]", 1),
            ("addresses", json!(["169.254.169.254"]), "spec.addresses[0]", 0),
            ("addresses", json!(["192.0.2.1", "192.0.2.2", "::2"]), "spec.addresses", 0),
            ("addresses", json!("192.0.2.1"), "spec.addresses", 0),
            ("ports", json!([{"name": "http", "number": 0}]), "spec.ports[0].number", 2),
            ("ports", json!([{"name": "HTTP", "number": 80}]), "spec.ports[0].name", 2),
            ("ports", json!([{"number": 80}]), "spec.ports[0].name", 2),
            ("services", json!(["ledger", "No"]), "spec.services[1]", 2),
            ("services", json!(["ledger", "ledger"]), "spec.services[1]", 2),
            ("prots", json!([]), "spec.prots", 2),
        ] {
            let reading = read_spec(&with(field, value.clone()));
            assert!(
                fields(&reading).iter().any(|(_, field)| *field == found),
                "{value} {:?}",
                reading.problems
            );
            let machine = reading.object.unwrap();
            assert_eq!(machine.ips.len(), left, "{value}");
            assert_eq!(machine.readiness.is_ready(), left > 0, "{value}");
            if field == "ports" {
                assert!(machine.ports.is_empty());
            }
        }
        let twice = json!([{"name": "a", "number": 1}, {"name": "a", "number": 2}]);
        let udp = json!([{"name": "a", "number": 1, "protocol": "UDP"}]);
        let port = |ports| read_spec(&with("ports", ports)).object.unwrap().ports;
        assert_eq!(port(twice), [("a".to_owned(), 1)].into());
        assert!(port(udp).is_empty());
    }

    #[test]
    fn drained_takes_it_out_of_its_services_and_so_does_nonsense() {
        for (value, readiness) in [
            (json!(false), Readiness::Ready),
            (json!(true), Readiness::NotReady),
            (json!("no"), Readiness::NotReady),
            (json!(null), Readiness::NotReady),
        ] {
            let machine = read_spec(&with("drained", value.clone())).object.unwrap();
            assert_eq!(machine.readiness, readiness, "{value}");
        }
        let meta = MeshWorkloadMeta { proxy_uuid: None, terminating: true };
        let machine = read_mesh_workload("bank/x".parse().unwrap(), meta, spec()).object.unwrap();
        assert_eq!(machine.readiness, Readiness::Draining);
    }
}
