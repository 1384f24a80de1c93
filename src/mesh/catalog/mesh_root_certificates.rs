//! MeshRootCertificates: the roots of the mesh that a person declares.
//!
//! Owns which of them count. What follows from their roles is decided beside the ledger
//! ([`smc_authority::rules::DeclaredRoots`]); no sidecar's configuration depends on them.

use super::Catalog;
use super::problems::check::Check;
use smc_api::osm::MeshRootCertificate;
use smc_authority::rules::DeclaredRoots;
use smc_types::ids::NamespacedName;

impl Catalog {
    pub(super) fn set_mesh_root_certificate(
        &mut self,
        id: &NamespacedName,
        new: Option<MeshRootCertificate>,
    ) {
        self.found.due(Check::MeshRootCertificates);
        match new {
            Some(new) => self.mesh_root_certificates.insert(id.clone(), new),
            None => self.mesh_root_certificates.remove(id),
        };
    }

    /// What is declared of the mesh's roots.
    pub fn declared_roots(&self) -> DeclaredRoots {
        if self.mesh_config().ignores_root_certificates {
            return DeclaredRoots::none();
        }
        let counted = self.counted_root_certificates();
        DeclaredRoots::of(counted.map(|object| (object.id.clone(), object.role)).collect())
    }

    /// The objects that count: those of the control plane's namespace and of the mesh's trust domain.
    pub(super) fn counted_root_certificates(&self) -> impl Iterator<Item = &MeshRootCertificate> + Clone {
        let own = self.mesh_root_certificates.values().filter(|object| self.is_own(object.id.namespace()));
        own.filter(|object| self.foreign_trust_domain(object).is_none())
    }

    /// The trust domain of an object, if it is not the mesh's.
    pub(super) fn foreign_trust_domain<'a>(&self, object: &'a MeshRootCertificate) -> Option<&'a str> {
        let own = self.domain.as_ref()?.as_str();
        object.trust_domain.as_deref().filter(|domain| *domain != own)
    }
}

#[cfg(test)]
mod tests;
