//! Object metadata: names and namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use smc_types::ids::{InvalidName, NamespacedName, ServiceAccountId, check_label};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading, Subject};

/// The namespace of an object that names none, as `kubectl` without a context would place it.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The object of this kind that `meta` names, or why it names none.
pub(crate) fn object_ref(kind: Kind, meta: &ObjectMeta) -> Result<ObjectRef, InvalidName> {
    if kind != Kind::Namespace {
        return Ok(ObjectRef::Namespaced(kind, namespaced_name(meta)?));
    }
    let name = meta.name.as_deref().unwrap_or_default();
    check_label("namespace", name)?;
    Ok(ObjectRef::Namespace(name.to_owned()))
}

fn namespaced_name(meta: &ObjectMeta) -> Result<NamespacedName, InvalidName> {
    // An empty namespace is equivalent to none in the Kubernetes API.
    let namespace = meta.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    NamespacedName::new(namespace.unwrap_or(DEFAULT_NAMESPACE), meta.name.as_deref().unwrap_or_default())
}

/// The name of a namespaced object and its label in problems, or the reading that reports why it has none.
pub(super) fn namespaced<T>(
    kind: Kind,
    meta: &ObjectMeta,
) -> Result<(NamespacedName, ObjectRef), Reading<T>> {
    match namespaced_name(meta) {
        Ok(id) => {
            let object = ObjectRef::Namespaced(kind, id.clone());
            Ok((id, object))
        }
        Err(error) => {
            let subject = Subject::Misnamed { kind, name: meta.name.clone().unwrap_or_default() };
            let problem = Problem::error(subject, "metadata", error.to_string());
            Err(Reading { object: None, problems: vec![problem] })
        }
    }
}

/// The identity that a ServiceAccount declares, which is only its name.
pub fn service_account(meta: &ObjectMeta) -> Reading<ServiceAccountId> {
    match namespaced(Kind::ServiceAccount, meta) {
        Ok((id, _)) => Reading { object: Some(id.into()), problems: Vec::new() },
        Err(unusable) => unusable,
    }
}
