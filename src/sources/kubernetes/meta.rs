//! Object metadata: the names everything else hangs on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use smc_mesh::catalog::{Kind, ObjectRef};
use smc_mesh::ids::{InvalidName, NamespacedName, ServiceAccountId, check_label};
use smc_mesh::problem::Problem;
use smc_mesh::smi::Reading;

/// The namespace of an object that names none, as `kubectl` without a context would place it.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// They do not.
    Cluster,
    /// They do.
    Namespaced(Kind),
}

/// Which object `meta` names, or why it names none.
pub(crate) fn object_ref(scope: Scope, meta: &ObjectMeta) -> Result<ObjectRef, InvalidName> {
    let name = meta.name.as_deref().unwrap_or_default();
    match scope {
        Scope::Cluster => {
            check_label("namespace", name)?;
            Ok(ObjectRef::Namespace(name.to_owned()))
        }
        Scope::Namespaced(kind) => Ok(ObjectRef::Namespaced(kind, namespaced_name(meta)?)),
    }
}

fn namespaced_name(meta: &ObjectMeta) -> Result<NamespacedName, InvalidName> {
    // An empty namespace means the same as none in the Kubernetes API.
    let namespace = meta.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    NamespacedName::new(namespace.unwrap_or(DEFAULT_NAMESPACE), meta.name.as_deref().unwrap_or_default())
}

/// The name of a namespaced object and how problems call it, or the reading that reports why it has none.
pub(super) fn namespaced<T>(kind: Kind, meta: &ObjectMeta) -> Result<(NamespacedName, String), Reading<T>> {
    match namespaced_name(meta) {
        Ok(id) => {
            let label = ObjectRef::Namespaced(kind, id.clone()).to_string();
            Ok((id, label))
        }
        Err(error) => {
            let name = meta.name.as_deref().unwrap_or_default();
            let problem = Problem::error(format!("{kind:?} {name:?}"), "metadata", error.to_string());
            Err(Reading { object: None, problems: vec![problem] })
        }
    }
}

/// The identity a ServiceAccount declares: it has nothing but its name.
pub fn service_account(meta: &ObjectMeta) -> Reading<ServiceAccountId> {
    match namespaced(Kind::ServiceAccount, meta) {
        Ok((id, _)) => Reading { object: Some(id.into()), problems: Vec::new() },
        Err(unusable) => unusable,
    }
}
