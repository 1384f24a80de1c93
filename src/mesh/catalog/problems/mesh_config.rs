//! What is wrong between the MeshConfig and the rest of the mesh.

use super::named;
use crate::catalog::Catalog;
use smc_api::osm::MeshConfig;
use smc_model::outside_server::OutsideServer;
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

pub(super) fn check(
    catalog: &Catalog,
    name: &NamespacedName,
    config: &MeshConfig,
    problems: &mut Vec<Problem>,
) {
    let subject = named(Kind::MeshConfig, name);
    let own = &catalog.mesh_namespace;
    if name.namespace() != own.as_str() {
        let message =
            format!("has no effect: only the MeshConfig of the mesh's own namespace, {own}, counts");
        problems.push(Problem::warning(subject, "metadata.namespace", message));
        return;
    }
    if let Some(service) = asked(config).and_then(|server| catalog.service_of_mesh(server)) {
        let open = config.external_authorization.as_ref().is_some_and(|asked| asked.failure_mode_allow);
        let effect = if open { "passes without an answer" } else { "is denied" };
        let message = format!(
            "names Service {service} of the mesh. Its sidecars refuse what is asked without a certificate, and every \
             request {effect}. A server outside of the mesh can be asked"
        );
        problems.push(Problem::error(&subject, "spec.traffic.inboundExternalAuthorization.address", message));
    }
    if let Some(service) = collector(config).and_then(|server| catalog.service_of_mesh(server)) {
        let message = format!(
            "names Service {service} of the mesh. Where its pods have sidecars, these refuse what comes without a \
             certificate, and all traces are lost. A collector outside of the mesh can be used"
        );
        problems.push(Problem::warning(&subject, "spec.observability.tracing.address", message));
    }
}

/// The services whose full names are those of servers that sidecars call.
pub(in crate::catalog) fn servers(config: &MeshConfig) -> impl Iterator<Item = ServiceId> {
    asked(config).into_iter().chain(collector(config)).filter_map(OutsideServer::service)
}

/// The server that is asked whether requests may pass.
fn asked(config: &MeshConfig) -> Option<&OutsideServer> {
    config.external_authorization.as_ref()?.server.as_ref()
}

/// The server that takes traces.
fn collector(config: &MeshConfig) -> Option<&OutsideServer> {
    Some(&config.tracing.as_ref()?.collector)
}
