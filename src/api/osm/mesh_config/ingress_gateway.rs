//! `certificate.ingressGateway`: the certificate of the CA that a gateway shows to backends.
//!
//! Owns its fields. What cannot be read asks for nothing, and takes nothing away: the certificate that a
//! gateway has stays until it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use smc_authority::ledger::MAX_NAMES;
use smc_authority::rules::{IngressGateway, WantedGateway};
use smc_types::ids::NamespacedName;
use smc_types::text::truncated;

use super::{asks_for_nothing, lifetime as lifetime_of};
use crate::osm::policy::is_host_name;
use crate::reading::{Findings, Node};

pub(super) fn read(node: Option<Node>, findings: &mut Findings) -> IngressGateway {
    match node.filter(|node| !asks_for_nothing(&node.value)) {
        None => IngressGateway::Absent,
        Some(node) => match wanted(node, findings) {
            Some(wanted) => IngressGateway::Wanted(Arc::new(wanted)),
            None => IngressGateway::Unreadable,
        },
    }
}

/// All of its fields are read, also after one that cannot be.
fn wanted(node: Node, findings: &mut Findings) -> Option<WantedGateway> {
    let mut fields = node.object(findings)?;
    let names = fields.require("subjectAltNames", findings).and_then(|node| names(node, findings));
    let lifetime = fields.require("validityDuration", findings);
    let lifetime = lifetime.and_then(|node| lifetime_of(node, "", findings));
    let secret = fields.require("secret", findings).and_then(|node| secret(node, findings));
    fields.finish(findings);
    Some(WantedGateway { secret: secret?, names: names?, lifetime: lifetime? })
}

/// The names, of which each has to be one that an IngressBackend can name: Envoy takes a wildcard in a
/// certificate for every name that it covers.
fn names(node: Node, findings: &mut Findings) -> Option<BTreeSet<String>> {
    let list = node.path.clone();
    let mut names = BTreeSet::new();
    let mut readable = true;
    for node in node.list(MAX_NAMES, findings)? {
        let path = node.path.clone();
        match node.text(findings) {
            Some(name) if is_host_name(&name) => drop(names.insert(name)),
            Some(name) => {
                findings.error(&path, format!("is {:?}, which is no DNS name", truncated(&name, 60)));
                readable = false;
            }
            None => readable = false,
        }
    }
    if names.is_empty() && readable {
        findings.error(&list, "names nothing: a certificate needs a name");
        return None;
    }
    readable.then_some(names)
}

fn secret(node: Node, findings: &mut Findings) -> Option<NamespacedName> {
    let path = node.path.clone();
    let mut fields = node.object(findings)?;
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let namespace = fields.require("namespace", findings).and_then(|node| node.text(findings));
    fields.finish(findings);
    NamespacedName::new(&namespace?, &name?).map_err(|error| findings.error(&path, error.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use smc_types::object_ref::Kind;

    use super::*;

    /// What is asked for, and the fields of the problems.
    fn gateway(value: Value) -> (IngressGateway, Vec<String>) {
        let mut findings = Findings::new(Kind::MeshConfig, "smc-system/osm-mesh-config".parse().unwrap());
        let node = Node { path: "spec.certificate.ingressGateway".to_owned(), value };
        let read = read(Some(node), &mut findings);
        let problems = findings.into_reading::<()>(None).problems;
        let field = |field: &str| field.strip_prefix("spec.certificate.ingressGateway").unwrap().to_owned();
        (read, problems.iter().map(|problem| field(&problem.field)).collect())
    }

    fn complete() -> Value {
        json!({
            "subjectAltNames": ["nginx.ingress.cluster.local", "gateway.example"],
            "validityDuration": "24h",
            "secret": {"name": "osm-nginx-client-cert", "namespace": "osm-system"},
        })
    }

    #[test]
    fn a_certificate_is_asked_for_with_all_its_names() {
        let (read, problems) = gateway(complete());
        let expected = WantedGateway {
            secret: "osm-system/osm-nginx-client-cert".parse().unwrap(),
            names: ["gateway.example".to_owned(), "nginx.ingress.cluster.local".to_owned()].into(),
            lifetime: Duration::from_hours(24),
        };
        assert_eq!((read, problems), (IngressGateway::Wanted(Arc::new(expected)), vec![]));
    }

    #[test]
    fn what_asks_for_nothing_is_absent() {
        let empty =
            json!({"subjectAltNames": [], "validityDuration": "", "secret": {"name": "", "namespace": ""}});
        for value in [json!(null), json!({}), empty] {
            assert_eq!(gateway(value), (IngressGateway::Absent, vec![]));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_and_takes_nothing_away() {
        let long = vec!["a.example"; MAX_NAMES + 1];
        for (pointer, value, field) in [
            ("/subjectAltNames", json!([]), ".subjectAltNames"),
            ("/subjectAltNames", json!("a.example"), ".subjectAltNames"),
            ("/subjectAltNames", json!(long), ".subjectAltNames"),
            ("/subjectAltNames/1", json!("*.cluster.local"), ".subjectAltNames[1]"),
            ("/subjectAltNames/1", json!("spiffe://cluster.local/ns/a/sa/b"), ".subjectAltNames[1]"),
            ("/subjectAltNames/1", json!("a.example."), ".subjectAltNames[1]"),
            ("/subjectAltNames/1", json!(7), ".subjectAltNames[1]"),
            ("/validityDuration", json!("1s"), ".validityDuration"),
            ("/validityDuration", json!("-24h"), ".validityDuration"),
            ("/validityDuration", json!("8760h"), ".validityDuration"),
            ("/validityDuration", json!(24), ".validityDuration"),
            ("/secret", json!("osm-system/cert"), ".secret"),
            ("/secret/name", json!("UPPER"), ".secret"),
            ("/secret/namespace", json!("a.b"), ".secret"),
        ] {
            let mut changed = complete();
            *changed.pointer_mut(pointer).unwrap() = value.clone();
            assert_eq!(gateway(changed), (IngressGateway::Unreadable, vec![field.to_owned()]), "{value}");
        }
        for field in ["subjectAltNames", "validityDuration", "secret"] {
            let mut changed = complete();
            changed.as_object_mut().unwrap().remove(field);
            assert_eq!(gateway(changed), (IngressGateway::Unreadable, vec![format!(".{field}")]));
        }
    }
}
