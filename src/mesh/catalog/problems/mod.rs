//! What is wrong with the declared mesh as a whole: references that lead nowhere, conflicts, things without
//! effect.
//!
//! Owns the findings that no single object shows. Refuses those of one object alone, which its reader
//! reports, and refuses to mend: each finding says how the catalog and the policy read it all the same.
//! Worked out when asked for, over the whole mesh.

mod access;
mod endpoints;
mod services;
mod splits;
#[cfg(test)]
mod tests;

use super::{Catalog, Kind, ObjectRef};
use crate::ids::NamespacedName;
use crate::problem::Problem;

impl Catalog {
    /// All that is wrong, sorted, errors first.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        access::check(self, &mut problems);
        splits::check(self, &mut problems);
        services::check(self, &mut problems);
        endpoints::check(self, &mut problems);
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
