//! What is wrong between MeshWorkloads, namespaces and Services.

use crate::catalog::Catalog;
use smc_model::topology::Workload;
use smc_types::ids::WorkloadId;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, id: &WorkloadId, problems: &mut Vec<Problem>) {
    let Some(machine) = catalog.workload(id) else { return };
    let object = ObjectRef::from(id);
    if catalog.in_mesh(machine) {
        check_services(catalog, machine, &object, problems);
        return;
    }
    let message = format!(
        "is {}, which is not in the mesh: without its label openservicemesh.io/monitored-by the machine has no effect",
        id.namespace()
    );
    problems.push(Problem::warning(object, "metadata.namespace", message));
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
