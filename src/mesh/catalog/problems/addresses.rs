//! What is wrong with the workloads that have one address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::named;
use crate::catalog::Catalog;
use smc_model::topology::Workload;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, ip: IpAddr, problems: &mut Vec<Problem>) {
    // A pod that ends may keep its address in its status: only those that run are in conflict.
    let pods = catalog.index.workloads_at(ip).filter(|id| !id.is_machine());
    let running = pods.filter_map(|id| catalog.workload(id)).filter(|pod| pod.readiness.is_ready());
    let mut by_namespace: BTreeMap<&str, Vec<&Workload>> = BTreeMap::new();
    for pod in running.filter(|pod| catalog.in_mesh(pod)) {
        by_namespace.entry(pod.id.namespace()).or_default().push(pod);
    }
    for pod in by_namespace.into_values().filter(|pods| pods.len() > 1).flatten() {
        let message = format!("has {ip}, which another ready pod has too");
        problems.push(Problem::warning(named(Kind::Pod, pod.id.as_name()), "status.podIPs", message));
    }
    let machines = catalog.index.workloads_at(ip).filter(|id| id.is_machine());
    let machines = machines.filter_map(|id| catalog.workload(id)).filter(|machine| catalog.in_mesh(machine));
    for machine in machines {
        if let Some(holder) = holder(catalog, machine, ip) {
            let message = format!(
                "has {ip}, which {holder} has too; callers accept there only the identities behind the services \
                 that they call"
            );
            problems.push(Problem::warning(ObjectRef::from(&machine.id), "spec.addresses", message));
        }
    }
}

/// Another object that has an address of a machine: a Service, or a workload of any namespace.
fn holder(catalog: &Catalog, machine: &Workload, ip: IpAddr) -> Option<ObjectRef> {
    let services = catalog.index.services_at.get(&ip).into_iter().flatten().map(ObjectRef::from);
    let workloads = catalog.index.workloads_at(ip).filter(|id| **id != machine.id);
    services.chain(workloads.map(ObjectRef::from)).next()
}
