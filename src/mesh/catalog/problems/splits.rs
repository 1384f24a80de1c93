//! What is wrong between TrafficSplits, services and HTTPRouteGroups.

use super::named;
use crate::catalog::Catalog;
use smc_api::smi::TrafficSplit;
use smc_model::topology::{Service, SessionAffinity};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, split: &TrafficSplit, problems: &mut Vec<Problem>) {
    check_split(catalog, split, problems);
    let first = catalog.splits_of(&split.root).into_iter().find(|other| other.matches.is_empty());
    if split.matches.is_empty()
        && catalog.foreign_domain(split).is_none()
        && let Some(other) = first
        && other.id != split.id
    {
        let message = format!(
            "is {}, whose traffic TrafficSplit {} takes already; only what that one cannot split is left",
            split.root, other.id
        );
        problems.push(Problem::error(named(Kind::TrafficSplit, &split.id), "spec.service", message));
    }
}

/// What is wrong with a split apart from other splits.
pub(super) fn check_split(catalog: &Catalog, split: &TrafficSplit, problems: &mut Vec<Problem>) {
    let object = named(Kind::TrafficSplit, &split.id);
    if let Some(domain) = catalog.foreign_domain(split) {
        let message = format!(
            "names services of the domain {domain}, which is not this mesh's; the split has no effect, and \
             the traffic goes where it would without it"
        );
        problems.push(Problem::error(&object, "spec", message));
        return;
    }
    check_groups(catalog, split, &object, problems);
    if split.backends.iter().all(|backend| backend.weight == 0) {
        let message = "have no weight between them; the traffic goes where it would without the split";
        problems.push(Problem::error(&object, "spec.backends", message));
    }
    if let Some(root) = catalog.services.get(&split.root) {
        check_backends(catalog, split, root, &object, problems);
    } else {
        let message = format!("is {}, which does not exist; there is nothing to split", split.root);
        problems.push(Problem::error(&object, "spec.service", message));
    }
}

fn check_groups(catalog: &Catalog, split: &TrafficSplit, object: &ObjectRef, problems: &mut Vec<Problem>) {
    for name in split.matches.iter().filter(|name| !catalog.route_groups.contains(name)) {
        let message = format!("names HTTPRouteGroup {name}, which does not exist or cannot be read");
        problems.push(Problem::error(object, "spec.matches", message));
    }
}

fn check_backends(
    catalog: &Catalog,
    split: &TrafficSplit,
    root: &Service,
    object: &ObjectRef,
    problems: &mut Vec<Problem>,
) {
    if let Some(port) = root.ports.iter().find(|port| catalog.too_large(&root.id, port).contains(&split.id)) {
        let message = format!(
            "names too many matches and backends for the {} ports of {}, such as {}; the split has no effect \
             there: together, the splits of a service may take {} bytes here",
            root.ports.len(),
            root.id,
            port.port,
            catalog.share_of_a_root(root.id.namespace())
        );
        problems.push(Problem::error(object, "spec", message));
    }
    for port in root.ports.iter().filter(|port| !split.matches.is_empty() && !port.protocol.is_http()) {
        let message = format!("cannot be applied to port {} of {}, which is not HTTP", port.port, root.id);
        problems.push(Problem::warning(object, "spec.matches", message));
    }
    for (index, backend) in split.backends.iter().enumerate() {
        let (field, leaf) = (format!("spec.backends[{index}].service"), &backend.service);
        let Some(service) = catalog.services.get(leaf) else {
            let message = format!("is {leaf}, which does not exist (yet); it gets no traffic");
            problems.push(Problem::warning(object, field, message));
            continue;
        };
        let keeps = |service: &Service| service.affinity == SessionAffinity::ClientIp;
        if backend.weight > 0 && keeps(root) && !keeps(service) {
            let message = format!(
                "is {leaf}, which has no sessionAffinity, and {} has: its share of a caller's requests goes to any \
                 of its pods",
                root.id
            );
            problems.push(Problem::warning(object, field.clone(), message));
        }
        for port in &root.ports {
            let message = match service.ports.iter().find(|own| own.port == port.port) {
                None => {
                    format!("is {leaf}, which lacks port {} of {}: none of its traffic", port.port, root.id)
                }
                Some(own) if own.protocol != port.protocol => format!(
                    "is {leaf}, where port {} is not the same protocol as on {}: requests may fail",
                    port.port, root.id
                ),
                Some(_) => continue,
            };
            problems.push(Problem::warning(object, field.clone(), message));
        }
    }
}
