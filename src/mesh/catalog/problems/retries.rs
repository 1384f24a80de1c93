//! What is wrong between Retries, services and splits.

use super::named;
use crate::catalog::Catalog;
use smc_api::osm::Retry;
use smc_types::ids::ServiceId;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

const FIELD: &str = "spec.destinations";

/// The most splits that are looked at, of all destinations together. An object may name a thousand services,
/// each of which may be in a thousand splits. What would be wrong beyond is not found.
const MAX_SPLITS: usize = 1024;

/// Names the first service for each reason: an object may name a thousand.
pub(super) fn check(catalog: &Catalog, retry: &Retry, problems: &mut Vec<Problem>) {
    let subject = named(Kind::Retry, &retry.id);
    if catalog.mesh_config().ignores_retries {
        let message = "has no effect: featureFlags.enableRetryPolicy of the MeshConfig is false";
        problems.push(Problem::error(&subject, "", message));
        return;
    }
    let first = |is_wrong: &dyn Fn(&ServiceId) -> bool| retry.destinations.iter().find(|id| is_wrong(id));
    if let Some(id) = first(&|id| without_http(catalog, id)) {
        let message = format!(
            "names Service {id}, none of whose ports carries HTTP: nothing is sent again. Name the port http, or set \
             its appProtocol"
        );
        problems.push(Problem::error(&subject, FIELD, message));
    }
    let earlier =
        |id: &ServiceId| catalog.retry_for(&retry.source, id).filter(|other| **other < retry.id).cloned();
    if let Some((id, other)) = retry.destinations.iter().find_map(|id| Some((id, earlier(id)?))) {
        let message = format!(
            "names Service {id}, for which Retry {other} of the same source holds: the first by name does"
        );
        problems.push(Problem::error(&subject, FIELD, message));
    }
    if let Some(id) = first(&|id| catalog.service(id).is_none() || !catalog.monitors(id.namespace())) {
        let message =
            format!("names Service {id}, which does not exist (yet), or whose namespace is not in the mesh");
        problems.push(Problem::warning(&subject, FIELD, message));
    }
    let split = |id| catalog.splits_into(id).map(move |split| (id, &split.root));
    let mut splits = retry.destinations.iter().flat_map(split).take(MAX_SPLITS);
    if let Some((id, root)) = splits.find(|(_, root)| !retry.destinations.contains(root)) {
        let message = format!(
            "names Service {id}, to which a TrafficSplit sends calls of {root}: these are meant by the name of {root} \
             alone"
        );
        problems.push(Problem::warning(&subject, FIELD, message));
    }
}

/// Whether a service that exists has no port for HTTP.
pub(super) fn without_http(catalog: &Catalog, id: &ServiceId) -> bool {
    catalog.service(id).is_some_and(|service| !service.ports.iter().any(|port| port.protocol.is_http()))
}
