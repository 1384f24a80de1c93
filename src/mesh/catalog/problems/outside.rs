//! What is declared in namespaces that are not in the mesh.

use super::named;
use crate::catalog::Catalog;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

/// Policy is about pods and services of its own namespace, so outside of the mesh it has no effect, but for
/// what means the whole mesh in the control plane's.
pub(super) fn check(catalog: &Catalog, kind: Kind, name: &NamespacedName, problems: &mut Vec<Problem>) {
    let namespace = name.namespace();
    if kind.spec().extent.reads(catalog.is_own(namespace), catalog.monitors(namespace)) {
        return;
    }
    let message = format!(
        "is {}, which is not in the mesh: without its label openservicemesh.io/monitored-by this has no effect",
        name.namespace()
    );
    problems.push(Problem::warning(named(kind, name), "metadata.namespace", message));
}
