//! What TrafficTargets grant, as a message of the administration API.
//!
//! Owns the bound on the answer: it repeats a target for each of its sources, and its routes with it, so that
//! a few short objects could make an answer of gigabytes, on the task that publishes the mesh. The answer
//! says what it has no room for.

use smc_api::smi::TrafficTarget;
use smc_mesh::catalog::Catalog;
use smc_mesh::policy::{self, GrantSizes};
use smc_model::http_match::{HttpMatch, MethodSet};
use smc_model::inbound_intent::HttpAccess;
use smc_model::regex::Pattern;
use smc_proto::admin::v1 as pb;

/// The most bytes of routes and ports in an answer. More is for a program to read, from the declared objects.
const MAX_ROUTE_BYTES: u64 = 16 << 20;

/// The most bytes of the rules without their routes and ports: some 40,000 of them.
const MAX_RULE_BYTES: u64 = 8 << 20;

/// What a rule takes beside the text of its names, in memory.
const RULE: usize = 150;

/// The TrafficTargets that are named of those with rules that are left out.
const MAX_LEFT_OUT: usize = 10;

/// What stands in place of the routes and ports that do not fit.
const TOO_LONG: &str = "too long to list here: see the TrafficTarget";

/// Every permission that TrafficTargets grant, one row per source and target.
pub(super) fn policy(catalog: &Catalog) -> pb::ListPolicyResponse {
    let mut answer = pb::ListPolicyResponse {
        permissive: catalog.mesh_config().permissive,
        permissive_namespaces: catalog.permissive_namespaces().map(str::to_owned).collect(),
        ..pb::ListPolicyResponse::default()
    };
    let mut sizes = GrantSizes::default();
    let (mut left, mut room) = (MAX_ROUTE_BYTES, MAX_RULE_BYTES);
    let granting = |target: &&TrafficTarget| policy::allows_something(catalog, target);
    for target in catalog.traffic_targets().filter(granting) {
        let sources = u64::try_from(target.sources.len()).unwrap_or(u64::MAX);
        let Some(rest) = room.checked_sub(rule_bytes(target).saturating_mul(sources)) else {
            answer.rules_left_out += sources;
            if answer.targets_left_out.len() < MAX_LEFT_OUT {
                answer.targets_left_out.push(target.id.to_string());
            }
            continue;
        };
        room = rest;
        let rest = left.checked_sub(sizes.of(catalog, target).saturating_mul(sources));
        left = rest.unwrap_or(left);
        let row = rest
            .and_then(|_| row(catalog, target))
            .unwrap_or_else(|| pb::Rule { http: vec![TOO_LONG.to_owned()], ..headed(target) });
        answer.rules.extend(
            target.sources.iter().map(|source| pb::Rule { source: source.to_string(), ..row.clone() }),
        );
    }
    answer
        .rules
        .sort_by(|a, b| (&a.source, &a.destination, &a.target).cmp(&(&b.source, &b.destination, &b.target)));
    answer
}

/// What a rule of the target takes without its routes and ports, in bytes: that of its longest source.
fn rule_bytes(target: &TrafficTarget) -> u64 {
    let source = target.sources.iter().map(|source| source.to_string().len()).max().unwrap_or_default();
    let names = source + target.destination.to_string().len() + target.id.to_string().len();
    u64::try_from(names + TOO_LONG.len() + RULE).unwrap_or(u64::MAX)
}

/// What a target grants, without a source.
fn row(catalog: &Catalog, target: &TrafficTarget) -> Option<pb::Rule> {
    let grant = policy::grant(catalog, target)?;
    let (any_http, http) = match &grant.http {
        HttpAccess::Any => (true, Vec::new()),
        HttpAccess::Only(matches) => (false, matches.iter().map(http_match).collect()),
    };
    Some(pb::Rule {
        ports: grant.ports.iter().flatten().map(|&port| port.into()).collect(),
        all_ports: grant.ports.is_none(),
        http,
        any_http,
        ..headed(target)
    })
}

fn headed(target: &TrafficTarget) -> pb::Rule {
    pb::Rule {
        destination: target.destination.to_string(),
        target: target.id.to_string(),
        ..pb::Rule::default()
    }
}

/// A match as text: methods, path, headers.
pub(super) fn http_match(route: &HttpMatch) -> String {
    let methods = match &route.methods {
        MethodSet::Any => "*".to_owned(),
        MethodSet::Only(methods) => methods.iter().map(String::as_str).collect::<Vec<_>>().join(","),
    };
    let path = route.path.as_ref().map_or("*", Pattern::as_prefix);
    let mut parts = vec![methods, path.to_owned()];
    parts.extend(route.headers.iter().map(|(name, value)| format!("{name}~{}", value.matching().as_str())));
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use prost::Message;
    use smc_api::object::{Object, SourceEvent};
    use smc_model::topology::Namespace;

    use super::*;
    use smc_decode::manifest;

    /// The answer for a mesh with so many targets of so many sources, by a group of 256 matches.
    fn answer(targets: usize, sources: usize) -> pb::ListPolicyResponse {
        let long = "x".repeat(890);
        let matches = (0..256).map(|i| format!("{{name: m{i}, pathRegex: /{i}/{long}}}")).collect::<Vec<_>>();
        let mut text = format!(
            "{{apiVersion: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, metadata: {{name: g, namespace: \
             shop}}, spec: {{matches: [{}]}}}}\n",
            matches.join(", ")
        );
        let sources = (0..sources).map(|i| format!("{{kind: ServiceAccount, name: c{i}, namespace: shop}}"));
        let sources = sources.collect::<Vec<_>>().join(", ");
        for i in 0..targets {
            writeln!(
                text,
                "---\n{{apiVersion: access.smi-spec.io/v1alpha3, kind: TrafficTarget, metadata: {{name: t{i}, \
                 namespace: shop}}, spec: {{destination: {{kind: ServiceAccount, name: server, namespace: shop}}, \
                 rules: [{{kind: HTTPRouteGroup, name: g}}], sources: [{sources}]}}}}"
            )
            .unwrap();
        }
        let read = manifest::read("a.yaml", text.as_bytes());
        assert_eq!(read.problems, []);
        let mut catalog = Catalog::default();
        for declaration in read.declarations {
            catalog.apply(SourceEvent::Upsert(declaration.object.clone().unwrap()));
        }
        policy(&catalog)
    }

    #[test]
    fn a_short_policy_is_listed_with_all_of_its_routes() {
        let answer = answer(1, 2);
        assert_eq!(answer.rules.len(), 2);
        assert_eq!(answer.rules[0].source, "shop/c0");
        assert!(answer.rules.iter().all(|rule| rule.http.len() == 256 && rule.all_ports && !rule.any_http));
        let declared = format!("* /7/{}", "x".repeat(890));
        assert!(answer.rules[0].http.contains(&declared), "{}", answer.rules[0].http[0]);
    }

    #[test]
    fn permissive_namespaces_are_listed_if_they_are_in_the_mesh() {
        let mut catalog = Catalog::default();
        for (name, monitored, permissive) in
            [("open", true, true), ("closed", true, false), ("outside", false, true)]
        {
            let name = name.to_owned();
            let namespace =
                Namespace { name, monitored, injection: None, metrics: false, permissive, access_log: None };
            catalog.apply(SourceEvent::Upsert(Object::Namespace(namespace)));
        }
        assert_eq!(policy(&catalog).permissive_namespaces, ["open"]);
    }

    #[test]
    fn rules_beyond_the_room_are_counted_and_the_first_targets_named() {
        let answer = answer(400, 256);
        let bytes = answer.encoded_len();
        assert!(bytes < 25 << 20, "{bytes} bytes");
        assert_eq!(answer.rules.len() as u64 + answer.rules_left_out, 400 * 256);
        assert!(answer.rules_left_out > 0 && answer.rules.len() > 20_000, "{}", answer.rules.len());
        assert_eq!(answer.targets_left_out.len(), MAX_LEFT_OUT);
        assert!(answer.rules.iter().all(|rule| !answer.targets_left_out.contains(&rule.target)));
    }

    #[test]
    fn a_few_objects_do_not_make_an_answer_of_gigabytes() {
        let answer = answer(40, 8);
        assert_eq!(answer.rules.len(), 40 * 8, "every permission has its row");
        let bytes = answer.encoded_len();
        assert!(bytes < 17 << 20, "{bytes} bytes");
        let (listed, left_out): (Vec<_>, Vec<_>) =
            answer.rules.iter().partition(|rule| rule.http.len() == 256);
        assert!(!listed.is_empty());
        assert!(left_out.iter().all(|rule| rule.http == [TOO_LONG]), "none seems to allow less than it does");
    }
}
