//! What is wrong with the MeshRootCertificates together.

use super::named;
use crate::catalog::Catalog;
use smc_authority::rules::contradiction;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, problems: &mut Vec<Problem>) {
    let own = &catalog.mesh_namespace;
    let ignored = catalog.mesh_config().ignores_root_certificates;
    let contradiction = contradiction(catalog.counted_root_certificates().map(|object| object.role));
    for object in catalog.mesh_root_certificates.values() {
        let subject = named(Kind::MeshRootCertificate, &object.id);
        if !catalog.is_own(object.id.namespace()) {
            let message = format!("has no effect: only those of the mesh's own namespace, {own}, count");
            problems.push(Problem::warning(subject, "metadata.namespace", message));
            continue;
        }
        if ignored {
            let message = "has no effect: featureFlags.enableMeshRootCertificate of the MeshConfig is false";
            problems.push(Problem::error(subject, "", message));
            continue;
        }
        if let Some(domain) = catalog.foreign_trust_domain(object) {
            let message = format!(
                "is {domain:?}, and the trust domain of the mesh is another one, which it keeps: declares no root"
            );
            problems.push(Problem::error(&subject, "spec.trustDomain", message));
            continue;
        }
        if let Some(found) = contradiction.filter(|found| found.is_of(object.role)) {
            problems.push(Problem::error(&subject, "spec.role", found.to_string()));
        }
    }
}
