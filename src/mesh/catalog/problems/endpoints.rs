//! What is wrong with EndpointSlices, and with the sidecars that workloads claim.

use std::collections::BTreeSet;

use super::named;
use crate::catalog::Catalog;
use smc_types::ids::{NamespacedName, ProxyName};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

/// Reports each workload that claims this sidecar, if there are several.
pub(super) fn check_proxy(catalog: &Catalog, proxy: &ProxyName, problems: &mut Vec<Problem>) {
    let claimants = catalog.index.by_proxy.get(proxy).filter(|claimants| claimants.len() > 1);
    for workload in claimants.into_iter().flatten() {
        let message = format!(
            "is {}, which another workload of the namespace claims too; neither sidecar is served",
            proxy.uuid
        );
        problems.push(Problem::error(ObjectRef::from(workload), "metadata.labels.osm-proxy-uuid", message));
    }
}

pub(super) fn check_slice(catalog: &Catalog, id: &NamespacedName, problems: &mut Vec<Problem>) {
    let Some(slice) = catalog.slices.get(id) else { return };
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
