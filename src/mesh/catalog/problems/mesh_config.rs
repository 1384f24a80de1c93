//! What is wrong between the MeshConfig and the rest of the mesh.

use super::named;
use crate::catalog::Catalog;
use smc_api::osm::MeshConfig;
use smc_model::external_authorization::ServerHost;
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
    let in_mesh = |id: &ServiceId| catalog.service(id).is_some() && catalog.monitors(id.namespace());
    if let Some(service) = authorization_service(config).filter(in_mesh) {
        let open = config.external_authorization.as_ref().is_some_and(|asked| asked.failure_mode_allow);
        let effect = if open { "passes without an answer" } else { "is denied" };
        let message = format!(
            "names Service {service} of the mesh. Its sidecars refuse what is asked without a certificate, and every \
             request {effect}. A server outside of the mesh can be asked"
        );
        problems.push(Problem::error(&subject, "spec.traffic.inboundExternalAuthorization.address", message));
    }
}

/// The service whose full name is that of the server that sidecars ask.
pub(in crate::catalog) fn authorization_service(config: &MeshConfig) -> Option<ServiceId> {
    let server = config.external_authorization.as_ref()?.server.as_ref()?;
    let ServerHost::Name(name) = &server.host else { return None };
    let (service, namespace) = name.strip_suffix(ServiceId::DOMAIN)?.split_once('.')?;
    ServiceId::new(namespace, service).ok()
}
