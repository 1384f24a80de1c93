//! What is wrong between ExtensionServices and the services of the mesh.

use super::named;
use crate::catalog::Catalog;
use smc_api::osm::ExtensionService;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, object: &ExtensionService, problems: &mut Vec<Problem>) {
    if let Some(service) = catalog.service_of_mesh(&object.server.server) {
        let message = format!(
            "names Service {service} of the mesh. Where its pods have sidecars, these refuse what comes without a \
             certificate, and all that is sent is lost. A server outside of the mesh can be used"
        );
        problems.push(Problem::warning(named(Kind::ExtensionService, &object.id), "spec.host", message));
    }
}
