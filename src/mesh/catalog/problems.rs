//! Problems between objects: dangling references, conflicts, objects without effect.
//!
//! Owns the checks that need more than one object; an object's reader reports the others. Each message says
//! how the mesh behaves in spite of the problem. `check` says which checks there are, `found` keeps what they
//! found and which are due; `candidate` checks an object that is about to be declared.

mod access;
mod addresses;
mod candidate;
pub(super) mod check;
mod egress;
mod endpoints;
mod extension_service;
pub(super) mod found;
mod identities;
mod ingress;
mod machines;
mod mesh_config;
mod mesh_root_certificates;
mod outside;
mod retries;
mod services;
mod splits;
mod telemetry;
#[cfg(test)]
mod tests;
mod upstream;

use super::Catalog;
use smc_model::outside_server::OutsideServer;
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

impl Catalog {
    /// The service of the mesh that a server has the full name of, although it is to be outside of the mesh.
    fn service_of_mesh(&self, server: &OutsideServer) -> Option<ServiceId> {
        server.service().filter(|id| self.service(id).is_some() && self.monitors(id.namespace()))
    }

    /// All problems between objects, sorted, errors first. Costs the checks that changes have made due since
    /// [`Self::recheck`].
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.found();
        problems.extend(self.route_groups.problems().cloned());
        problems.sort_unstable();
        problems.dedup();
        problems
    }
}

fn named(kind: Kind, name: &NamespacedName) -> ObjectRef {
    ObjectRef::Namespaced(kind, name.clone())
}
