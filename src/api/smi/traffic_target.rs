//! `access.smi-spec.io/v1alpha3` TrafficTarget: the identities that may connect to another, by which routes.
//!
//! Owns its fields. What cannot be read must narrow: a source that cannot be read is left out, but a rule
//! that cannot be read takes the whole target out of effect, since it might have been the one that
//! restricts the ports.

pub mod schema;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use smc_types::ids::{NamespacedName, ServiceAccountId};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use crate::kind::{Column, CustomKind, effective, schema as schema_of};
use crate::object::Object;
use crate::reading::{Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema_of::<schema::TrafficTargetSpec>],
    example: |namespace| {
        let account = |name| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let rules = json!([{"kind": "HTTPRouteGroup", "name": "all"}]);
        json!({"destination": account("web"), "sources": [account("caller")], "rules": rules})
    },
    read: |object| effective(read_traffic_target(object.id, object.spec), Object::from),
    short_name: Some("tt"),
    category: "smi",
    columns: &[Column::text("Destination", ".spec.destination.name")],
    ..CustomKind::new(Kind::TrafficTarget)
};

/// The most sources of one target. Like the bounds that follow, it bounds what one object can make every
/// sidecar of its destination hold.
pub const MAX_SOURCES: usize = 1024;
/// The most rules of one target, and names in one rule's `matches`.
const MAX_RULES: usize = 64;
const MAX_MATCHES: usize = 256;

/// An access rule: any of `sources` may reach `destination` by any of `rules`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficTarget {
    /// Its own name; rules are looked up in its namespace.
    pub id: NamespacedName,
    /// The identity that the target grants access to.
    pub destination: ServiceAccountId,
    /// The identities that may connect. Never empty.
    pub sources: BTreeSet<ServiceAccountId>,
    /// The routes by which they may. Never empty.
    pub rules: Vec<Rule>,
}

/// A reference to a route object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The kind of the route object.
    pub kind: RuleKind,
    /// Its name, in the TrafficTarget's namespace.
    pub name: NamespacedName,
    /// For an HTTPRouteGroup, the names of its matches; `None` (the field is absent) means all.
    /// An empty list that was written down means none.
    pub matches: Option<BTreeSet<String>>,
}

/// What a rule refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    /// HTTP routes.
    HttpRouteGroup,
    /// TCP ports.
    TcpRoute,
    /// UDP ports: read and reported, never enforced.
    UdpRoute,
}

/// Reads the `spec` of a TrafficTarget.
pub fn read_traffic_target(id: NamespacedName, spec: Value) -> Reading<TrafficTarget> {
    let mut findings = Findings::new(Kind::TrafficTarget, id.clone());
    let target = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(target)
}

fn read(id: NamespacedName, spec: Node, findings: &mut Findings) -> Option<TrafficTarget> {
    let mut spec = spec.object(findings)?;
    let destination = spec.require("destination", findings);
    let destination = destination.and_then(|node| read_account(&id, node, findings));

    let sources = spec.require("sources", findings).and_then(|node| node.list(MAX_SOURCES, findings));
    let sources_path = spec.path("sources");
    let mut accounts = BTreeSet::new();
    for node in sources.into_iter().flatten() {
        let path = node.path.clone();
        if let Some(account) = read_account(&id, node, findings)
            && !accounts.insert(account)
        {
            findings.warning(&path, "names a source a second time");
        }
    }
    if accounts.is_empty() {
        findings.error(&sources_path, "names no source that can be used; the target allows no one");
    }

    let rules_path = spec.path("rules");
    let rules = spec.require("rules", findings).and_then(|node| node.list(MAX_RULES, findings));
    let rules = rules.and_then(|nodes| {
        if nodes.is_empty() {
            findings.error(&rules_path, "names no route; the target allows nothing");
            return None;
        }
        // All are read before any failure counts, so that all are reported.
        let rules: Vec<_> = nodes.into_iter().map(|node| read_rule(&id, node, findings)).collect();
        rules.into_iter().collect::<Option<Vec<Rule>>>()
    });
    spec.finish(findings);
    if accounts.is_empty() {
        return None;
    }
    Some(TrafficTarget { destination: destination?, sources: accounts, rules: rules?, id })
}

/// A `ServiceAccount` reference; its namespace is the target's own where it is left out.
fn read_account(target: &NamespacedName, node: Node, findings: &mut Findings) -> Option<ServiceAccountId> {
    let path = node.path.clone();
    let mut fields = node.object(findings)?;
    let kind = fields.require("kind", findings).and_then(|node| node.text(findings));
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let namespace = match fields.take("namespace") {
        Some(node) => node.text(findings)?,
        None => target.namespace().to_owned(),
    };
    fields.finish(findings);
    let (kind, name) = (kind?, name?);
    if kind != "ServiceAccount" {
        findings.error(&format!("{path}.kind"), format!("must be ServiceAccount, not {kind:?}"));
        return None;
    }
    match ServiceAccountId::new(&namespace, &name) {
        Ok(account) => Some(account),
        Err(error) => {
            findings.error(&path, error.to_string());
            None
        }
    }
}

fn read_rule(target: &NamespacedName, node: Node, findings: &mut Findings) -> Option<Rule> {
    let path = node.path.clone();
    let mut fields = node.object(findings)?;
    let kind = fields.require("kind", findings).and_then(|node| node.text(findings));
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    let matches = match fields.take("matches") {
        Some(node) => Some(read_match_names(node, findings)?),
        None => None,
    };
    fields.finish(findings);
    let (kind, name) = (kind?, name?);
    let kind = match kind.as_str() {
        "HTTPRouteGroup" => RuleKind::HttpRouteGroup,
        "TCPRoute" => RuleKind::TcpRoute,
        "UDPRoute" => RuleKind::UdpRoute,
        _ => {
            let message = format!("must be HTTPRouteGroup, TCPRoute or UDPRoute, not {kind:?}");
            findings.error(&format!("{path}.kind"), message);
            return None;
        }
    };
    if kind != RuleKind::HttpRouteGroup && matches.is_some() {
        // The author meant to restrict, which a route of ports cannot.
        findings.error(&format!("{path}.matches"), "belongs to an HTTPRouteGroup only");
        return None;
    }
    let name = match NamespacedName::new(target.namespace(), &name) {
        Ok(name) => name,
        Err(error) => {
            findings.error(&format!("{path}.name"), error.to_string());
            return None;
        }
    };
    Some(Rule { kind, name, matches })
}

fn read_match_names(node: Node, findings: &mut Findings) -> Option<BTreeSet<String>> {
    let path = node.path.clone();
    let nodes = node.list(MAX_MATCHES, findings)?;
    if nodes.is_empty() {
        findings.warning(&path, "is an empty list, which means no match; leave it out to mean all");
    }
    let mut names = BTreeSet::new();
    for node in nodes {
        let path = node.path.clone();
        if let Some(name) = node.text(findings)
            && !names.insert(name)
        {
            findings.warning(&path, "names a match a second time");
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {

    use super::*;
    use smc_types::problem::Severity;

    fn read(spec: Value) -> Reading<TrafficTarget> {
        read_traffic_target("shop/target".parse().unwrap(), spec)
    }

    fn account(name: &str, namespace: Option<&str>) -> Value {
        match namespace {
            Some(namespace) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
            None => json!({"kind": "ServiceAccount", "name": name}),
        }
    }

    fn spec(rules: &Value) -> Value {
        json!({"destination": account("server", None), "sources": [account("client", Some("away"))], "rules": rules})
    }

    #[test]
    fn a_whole_target_is_read_without_a_complaint() {
        let reading = read(spec(&json!([
            {"kind": "HTTPRouteGroup", "name": "routes", "matches": ["a", "b"]},
            {"kind": "HTTPRouteGroup", "name": "all"},
            {"kind": "TCPRoute", "name": "ports"},
        ])));
        assert_eq!(reading.problems, []);
        let target = reading.object.unwrap();
        assert_eq!(target.destination, "shop/server".parse().unwrap());
        assert_eq!(target.sources, BTreeSet::from(["away/client".parse().unwrap()]));
        assert_eq!(target.rules[0].matches, Some(BTreeSet::from(["a".to_owned(), "b".to_owned()])));
        assert_eq!(target.rules[1].matches, None);
        assert_eq!(target.rules[2].name, "shop/ports".parse().unwrap());
    }

    #[test]
    fn a_source_that_cannot_be_read_is_left_out_and_named() {
        let mut spec = spec(&json!([{"kind": "TCPRoute", "name": "ports"}]));
        spec["sources"] =
            json!([account("client", None), {"kind": "Group", "name": "all"}, account("A B", None), 7]);
        let reading = read(spec);
        assert_eq!(reading.object.unwrap().sources, BTreeSet::from(["shop/client".parse().unwrap()]));
        let fields: Vec<_> = reading.problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["spec.sources[1].kind", "spec.sources[2]", "spec.sources[3]"]);
        assert!(reading.problems.iter().all(|p| p.subject.to_string() == "TrafficTarget shop/target"));
    }

    #[test]
    fn an_empty_list_of_matches_means_none_and_is_remarked_upon() {
        let reading = read(spec(&json!([{"kind": "HTTPRouteGroup", "name": "routes", "matches": []}])));
        assert_eq!(reading.object.unwrap().rules[0].matches, Some(BTreeSet::new()));
        assert_eq!(reading.problems[0].severity, Severity::Warning);
        assert_eq!(reading.problems[0].field, "spec.rules[0].matches");
    }

    /// The rule may have restricted the target.
    #[test]
    fn a_rule_that_cannot_be_read_takes_the_target_out_of_effect() {
        let good = json!({"kind": "HTTPRouteGroup", "name": "routes"});
        for (bad, field) in [
            (json!({"kind": "GRPCRoute", "name": "x"}), "spec.rules[1].kind"),
            (json!({"kind": "TCPRoute"}), "spec.rules[1].name"),
            (json!({"kind": "TCPRoute", "name": "A B"}), "spec.rules[1].name"),
            (json!({"kind": "TCPRoute", "name": 5}), "spec.rules[1].name"),
            (json!({"kind": "TCPRoute", "name": "x", "matches": ["a"]}), "spec.rules[1].matches"),
            (json!({"kind": "HTTPRouteGroup", "name": "x", "matches": null}), "spec.rules[1].matches"),
            (json!({"kind": "HTTPRouteGroup", "name": "x", "matches": "a"}), "spec.rules[1].matches"),
            (json!(null), "spec.rules[1]"),
        ] {
            let reading = read(spec(&json!([good, bad])));
            assert_eq!(reading.object, None, "{bad}");
            assert_eq!(reading.problems[0].field, field, "{bad}");
        }
    }

    #[test]
    fn a_target_without_destination_sources_or_rules_has_no_effect() {
        let whole = spec(&json!([{"kind": "TCPRoute", "name": "ports"}]));
        for field in ["destination", "sources", "rules"] {
            let mut spec = whole.clone();
            spec.as_object_mut().unwrap().remove(field);
            let reading = read(spec);
            assert_eq!(reading.object, None, "{field}");
            assert_eq!(reading.problems[0].field, format!("spec.{field}"));
        }
        for field in ["sources", "rules"] {
            let mut spec = whole.clone();
            spec[field] = json!([]);
            assert_eq!(read(spec).object, None, "{field}");
        }
        assert_eq!(read(json!(null)).object, None);
        assert_eq!(read(json!([])).problems[0].field, "spec");
    }

    #[test]
    fn unknown_fields_and_absurd_sizes_are_reported() {
        let mut odd = spec(&json!([{"kind": "TCPRoute", "name": "ports", "port": 80}]));
        odd["source"] = json!([]);
        let reading = read(odd);
        assert!(reading.object.is_some());
        let fields: Vec<_> = reading.problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["spec.rules[0].port", "spec.source"]);

        let mut huge = spec(&json!([{"kind": "TCPRoute", "name": "ports"}]));
        huge["sources"] = json!(vec![account("client", None); 1025]);
        let reading = read(huge);
        assert_eq!(reading.object, None);
        assert_eq!(reading.problems[0].field, "spec.sources");

        let garbage = read(spec(&json!(vec![json!(7); 60])));
        assert_eq!(garbage.problems.len(), 33, "problems are bounded");
    }
}
