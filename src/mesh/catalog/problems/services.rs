//! What is wrong with Services and what is, or is not, behind them.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::named;
use crate::catalog::Catalog;
use crate::catalog::index::conflicts;
use smc_model::topology::{Service, TargetPort};
use smc_types::ids::ServiceId;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, id: &ServiceId, problems: &mut Vec<Problem>) {
    let Some(service) = catalog.service(id) else { return };
    check_service(catalog, service, problems);
    check_addresses(catalog, service, problems);
    check_pods_addresses(catalog, service, problems);
    check_protocols(catalog, service, problems);
    if catalog.index.selection_budgets.is_cut(id) {
        // How many it may match is left out: that changes with pods which change nothing else of the service.
        let message = format!(
            "matches no pod: the services of a namespace may match {} pods together, and those that may match \
             the fewest have theirs",
            catalog.index.selection_budgets.most()
        );
        problems.push(Problem::error(named(Kind::Service, id.as_name()), "spec.selector", message));
    }
    if let Some(endpoints) = catalog.index.endpoint_budgets.cost_if_cut(id) {
        let message = format!(
            "stands for {endpoints} endpoints, a workload's port each, and the services of a namespace may have {} \
             together: it has none, and callers are refused",
            catalog.index.endpoint_budgets.most()
        );
        problems.push(Problem::error(named(Kind::Service, id.as_name()), "spec.ports", message));
    }
}

fn check_addresses(catalog: &Catalog, service: &Service, problems: &mut Vec<Problem>) {
    for &ip in &service.cluster_ips {
        let holders = catalog.index.services_at.get(&ip);
        let before = (Bound::Unbounded, Bound::Excluded(&service.id));
        let first = holders.and_then(|holders| holders.range::<ServiceId, _>(before).next_back());
        let message = match (catalog.rival_of_address(&service.id, ip), first) {
            (Some(rival), _) => {
                format!("has {ip}, which is Service {rival}'s too: callers reach neither there")
            }
            (None, Some(other)) => {
                format!("has {ip}, which is Service {other}'s: callers cannot tell them apart")
            }
            (None, None) => continue,
        };
        let object = named(Kind::Service, service.id.as_name());
        problems.push(Problem::error(object, "spec.clusterIPs", message));
    }
}

/// Reports that callers of a headless service do not reach a pod of it at the pod's address.
fn check_pods_addresses(catalog: &Catalog, service: &Service, problems: &mut Vec<Problem>) {
    let addresses = service.ports.iter().flat_map(|port| catalog.headless_addresses(&service.id, port));
    let mut rivals = addresses.filter_map(|at| Some((at.0, catalog.rival_of_pods(&service.id, at)?)));
    if let Some((ip, rival)) = rivals.next() {
        let message =
            format!("matches a pod at {ip}, which is an address of Service {rival}; it is not reached there");
        let object = named(Kind::Service, service.id.as_name());
        problems.push(Problem::error(object, "spec.selector", message));
    }
}

/// Reports a service that targets a port of a pod with another protocol. There is one report: workloads times
/// ports would be too many.
fn check_protocols(catalog: &Catalog, service: &Service, problems: &mut Vec<Problem>) {
    let classes = catalog.index.conflicts.get(&service.id).into_iter().flatten();
    let mut ports =
        classes.flat_map(|class| conflicts(class)).filter(|(own, _)| own.services.contains(&service.id));
    if let Some((own, other)) = ports.next()
        && let Some(rival) = other.services.first()
    {
        let message = format!(
            "lead to port {} of a pod as {:?}, but those of Service {rival} as {:?}",
            own.port, own.protocol, other.protocol
        );
        problems.push(Problem::warning(named(Kind::Service, service.id.as_name()), "spec.ports", message));
    }
}

fn check_service(catalog: &Catalog, service: &Service, problems: &mut Vec<Problem>) {
    let object = named(Kind::Service, service.id.as_name());
    let monitored = catalog.namespaces.get(service.id.namespace()).is_some_and(|ns| ns.monitored);
    let mut numbers = BTreeSet::new();
    for (index, port) in service.ports.iter().enumerate() {
        if !numbers.insert(port.port) {
            let message = format!("is {}, which another port of the service is already", port.port);
            problems.push(Problem::error(&object, format!("spec.ports[{index}].port"), message));
        }
    }
    if service.ports.is_empty() && monitored {
        problems.push(Problem::warning(&object, "spec.ports", "has none; the mesh carries nothing to it"));
    }

    let Some(backends) = catalog.index.backends.get(&service.id) else { return };
    let selected = catalog.index.selected.get(&service.id).map_or(0, BTreeSet::len);
    let mut outside = backends.outside();
    let count = outside.len();
    if count < selected
        && let Some(pod) = outside.next()
    {
        let message = format!(
            "matches {count} pods outside the mesh, such as {pod}; callers in the mesh do not reach them"
        );
        problems.push(Problem::warning(&object, "spec.selector", message));
    }
    for (index, port) in service.ports.iter().enumerate() {
        let TargetPort::Name(name) = &port.target else { continue };
        let mut lacking = backends.lacking(name);
        let count = lacking.len();
        if let Some(pod) = lacking.next() {
            let message = format!(
                "is a name that {count} of its pods do not have, such as {pod}; they get nothing on port {}",
                port.port
            );
            problems.push(Problem::warning(&object, format!("spec.ports[{index}].targetPort"), message));
        }
    }

    // The root of a split often has no pods of its own: its leaves have them.
    let root = catalog.index.splits_of.contains_key(&service.id);
    if monitored && !root && catalog.workloads_behind(&service.id).next().is_none() {
        let message = if catalog.mesh_config().egress {
            "has nothing in the mesh behind it; what callers send to it leaves the mesh, in clear text"
        } else {
            "has nothing in the mesh behind it; callers are refused"
        };
        problems.push(Problem::warning(&object, "spec.selector", message));
    }
}
