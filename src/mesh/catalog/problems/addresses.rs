//! What is wrong with the workloads that have one address.

use std::net::IpAddr;

use super::named;
use crate::catalog::Catalog;
use smc_model::topology::Workload;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, ip: IpAddr, problems: &mut Vec<Problem>) {
    for workloads in catalog.index.workloads_at(ip) {
        // A pod that ends may keep its address in its status: only those that run are in conflict.
        let pods = workloads.iter().filter(|id| !id.is_machine());
        let running = pods.filter_map(|id| catalog.workloads.get(id)).filter(|pod| pod.readiness.is_ready());
        let running: Vec<_> = running.filter(|pod| catalog.in_mesh(pod)).collect();
        if running.len() > 1 {
            for pod in running {
                let message = format!("has {ip}, which another ready pod has too");
                let object = named(Kind::Pod, pod.id.as_name());
                problems.push(Problem::warning(object, "status.podIPs", message));
            }
        }
    }
    let machines = catalog.index.workloads_at(ip).flatten().filter(|id| id.is_machine());
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
    let workloads = catalog.index.workloads_at(ip).flatten().filter(|id| **id != machine.id);
    services.chain(workloads.map(ObjectRef::from)).next()
}
