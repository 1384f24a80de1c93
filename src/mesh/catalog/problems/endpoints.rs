//! What is wrong with EndpointSlices and Pods.

use std::collections::BTreeSet;

use super::named;
use crate::catalog::Catalog;
use smc_model::topology::EndpointSlice;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, problems: &mut Vec<Problem>) {
    for slice in catalog.slices.values() {
        check_slice(catalog, slice, problems);
    }
    for (proxy, claimants) in catalog.index.by_proxy.iter().filter(|(_, claimants)| claimants.len() > 1) {
        for workload in claimants {
            let message = format!(
                "is {}, which another workload of the namespace claims too; neither sidecar is served",
                proxy.uuid
            );
            problems.push(Problem::error(
                ObjectRef::from(workload),
                "metadata.labels.osm-proxy-uuid",
                message,
            ));
        }
    }
    for ((ip, _), workloads) in catalog.index.at_address.iter().filter(|(_, workloads)| workloads.len() > 1) {
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
}

fn check_slice(catalog: &Catalog, slice: &EndpointSlice, problems: &mut Vec<Problem>) {
    let object = named(Kind::EndpointSlice, &slice.id);
    let label = "metadata.labels.kubernetes.io/service-name";
    if slice.service.namespace() != slice.id.namespace() {
        let message = format!("is {}, in another namespace; the slice has no effect", slice.service);
        problems.push(Problem::error(&object, label, message));
        return;
    }
    let Some(service) = catalog.services.get(&slice.service) else {
        let message = format!("is {}, which does not exist", slice.service);
        problems.push(Problem::warning(&object, label, message));
        return;
    };
    for (index, port) in slice.ports.iter().enumerate() {
        if !service.ports.iter().any(|own| own.name == port.name) {
            let message = format!("is {:?}, which no port of {} is named", port.name, service.id);
            problems.push(Problem::warning(&object, format!("ports[{index}].name"), message));
        }
    }
    let strangers: BTreeSet<_> = slice
        .endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.iter().map(move |&ip| (endpoint, ip)))
        .filter(|&(endpoint, ip)| catalog.workload_at(slice, endpoint, ip).is_none())
        .map(|(_, ip)| ip)
        .collect();
    if let Some(ip) = strangers.first() {
        let message = format!(
            "hold {} addresses, such as {ip}, that are those of no pod of the namespace in the mesh: no endpoint",
            strangers.len()
        );
        problems.push(Problem::warning(&object, "endpoints", message));
    }
}
