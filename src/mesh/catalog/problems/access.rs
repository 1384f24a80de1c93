//! What is wrong between TrafficTargets, routes and service accounts.

use std::collections::BTreeMap;

use super::named;
use crate::catalog::Catalog;
use smc_api::smi::{RuleKind, TrafficTarget};
use smc_types::ids::{NamespacedName, ServiceAccountId};
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

/// Reports each target that grants the same as another one of this destination.
pub(super) fn check_destination(
    catalog: &Catalog,
    destination: &ServiceAccountId,
    problems: &mut Vec<Problem>,
) {
    let mut seen = BTreeMap::new();
    for target in catalog.traffic_targets_for(destination) {
        let rules: Vec<_> = target.rules.iter().map(|rule| (rule.kind, &rule.name, &rule.matches)).collect();
        if let Some(first) = seen.insert((&target.sources, rules), &target.id) {
            let message = format!("grants the same as TrafficTarget {first}");
            problems.push(Problem::warning(named(Kind::TrafficTarget, &target.id), "", message));
        }
    }
}

/// The problem of each UDPRoute.
pub(super) fn not_enforced(route: &NamespacedName) -> Problem {
    let message = "is not enforced: the mesh does not carry UDP";
    Problem::warning(named(Kind::UdpRoute, route), "", message)
}

pub(super) fn check_target(catalog: &Catalog, target: &TrafficTarget, problems: &mut Vec<Problem>) {
    let object = named(Kind::TrafficTarget, &target.id);
    let (own, destination) = (target.id.namespace(), &target.destination);
    if own != destination.namespace() {
        let message = format!(
            "is {}, but a target grants access only within its own namespace {own}; it has no effect",
            destination.namespace()
        );
        problems.push(Problem::error(&object, "spec.destination.namespace", message));
    }
    let unknown = |account: &ServiceAccountId| {
        !catalog.service_accounts.contains(account) && !catalog.runs_in_mesh(account)
    };
    if unknown(destination) {
        let message = format!("names ServiceAccount {destination}, which does not exist");
        problems.push(Problem::warning(&object, "spec.destination", message));
    }
    for source in target.sources.iter().filter(|source| unknown(source)) {
        let message = format!("names ServiceAccount {source}, which does not exist");
        problems.push(Problem::warning(&object, "spec.sources", message));
    }
    for (index, rule) in target.rules.iter().enumerate() {
        let (field, name) = (format!("spec.rules[{index}]"), &rule.name);
        let missing = |kind: Kind| {
            let message =
                format!("names {kind} {name}, which does not exist or cannot be read: it allows nothing");
            Problem::error(&object, format!("{field}.name"), message)
        };
        match rule.kind {
            RuleKind::HttpRouteGroup => {
                let Some(group) = catalog.route_groups.get(name) else {
                    problems.push(missing(Kind::HttpRouteGroup));
                    continue;
                };
                let wanted = rule.matches.iter().flatten();
                for wanted in wanted.filter(|wanted| !group.matches.contains_key(*wanted)) {
                    let message = format!("names {wanted:?}, which HTTPRouteGroup {name} does not have");
                    problems.push(Problem::error(&object, format!("{field}.matches"), message));
                }
            }
            RuleKind::TcpRoute if !catalog.tcp_routes.contains_key(name) => {
                problems.push(missing(Kind::TcpRoute));
            }
            RuleKind::TcpRoute => {}
            RuleKind::UdpRoute => {
                let message = "names a UDPRoute, which is not enforced: the mesh does not carry UDP";
                problems.push(Problem::warning(&object, field, message));
            }
        }
    }
}
