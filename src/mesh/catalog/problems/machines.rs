//! What is wrong between MeshWorkloads, namespaces, Services and the addresses of others.

use std::net::IpAddr;

use crate::catalog::Catalog;
use smc_model::topology::Workload;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, problems: &mut Vec<Problem>) {
    for machine in catalog.workloads.values().filter(|workload| workload.id.is_machine()) {
        let object = ObjectRef::from(&machine.id);
        if !catalog.in_mesh(machine) {
            let message = format!(
                "is {}, which is not in the mesh: without its label openservicemesh.io/monitored-by the machine has \
                 no effect",
                machine.id.namespace()
            );
            problems.push(Problem::warning(object, "metadata.namespace", message));
            continue;
        }
        check_services(catalog, machine, &object, problems);
        for &ip in &machine.ips {
            if let Some(holder) = holder(catalog, machine, ip) {
                let message = format!(
                    "has {ip}, which {holder} has too; callers accept there only the identities behind the services \
                     that they call"
                );
                problems.push(Problem::warning(&object, "spec.addresses", message));
            }
        }
    }
}

fn check_services(catalog: &Catalog, machine: &Workload, object: &ObjectRef, problems: &mut Vec<Problem>) {
    for (index, id) in machine.services.iter().enumerate() {
        let message = match catalog.services.get(id) {
            None => format!("names Service {id}, which does not exist"),
            Some(service) if service.headless => format!(
                "names Service {id}, which is headless: its callers dial addresses of pods, and never one that a \
                 MeshWorkload states. Give the service a virtual address"
            ),
            Some(_) => continue,
        };
        problems.push(Problem::warning(object, format!("spec.services[{index}]"), message));
    }
}

/// Another object that has an address of a machine: a Service, or a workload of any namespace.
fn holder(catalog: &Catalog, machine: &Workload, ip: IpAddr) -> Option<ObjectRef> {
    let services = catalog.index.services_at.get(&ip).into_iter().flatten().map(ObjectRef::from);
    let held = catalog.index.at_address.range((ip, String::new())..).take_while(|((at, _), _)| *at == ip);
    let workloads = held.flat_map(|(_, workloads)| workloads).filter(|id| **id != machine.id);
    services.chain(workloads.map(ObjectRef::from)).next()
}
