//! Problems between objects: dangling references, conflicts, objects without effect.
//!
//! Owns the checks that need more than one object; an object's reader reports the others. Each message says
//! how the mesh behaves in spite of the problem. A call checks the whole mesh, or one object that is about to
//! be declared.

mod access;
mod candidate;
mod endpoints;
mod identities;
mod machines;
mod outside;
mod services;
mod splits;
#[cfg(test)]
mod tests;

use super::Catalog;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

impl Catalog {
    /// All problems between objects, sorted, errors first.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        access::check(self, &mut problems);
        splits::check(self, &mut problems);
        services::check(self, &mut problems);
        endpoints::check(self, &mut problems);
        identities::check(self, &mut problems);
        machines::check(self, &mut problems);
        outside::check(self, &mut problems);
        problems.extend(self.route_groups.problems().cloned());
        let own = &self.mesh_namespace;
        for name in self.mesh_configs.keys().filter(|name| name.namespace() != own.as_str()) {
            let message =
                format!("has no effect: only the MeshConfig of the mesh's own namespace, {own}, counts");
            problems.push(Problem::warning(named(Kind::MeshConfig, name), "metadata.namespace", message));
        }
        problems.sort_unstable();
        problems.dedup();
        problems
    }
}

fn named(kind: Kind, name: &NamespacedName) -> ObjectRef {
    ObjectRef::Namespaced(kind, name.clone())
}
