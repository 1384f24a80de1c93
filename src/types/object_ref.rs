//! References to the objects of the mesh.
//!
//! Owns how an object is named in problems and events.

use std::fmt;

pub use crate::kind::Kind;

use crate::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};

/// The kind and the name of an object. Prints as `Kind namespace/name`, or `Namespace name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectRef {
    /// A Namespace, the only kind without a namespace of its own.
    Namespace(String),
    /// An object of any other kind.
    Namespaced(Kind, NamespacedName),
}

impl ObjectRef {
    /// The namespace that the object belongs to; of a Namespace, itself.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Namespace(name) => name,
            Self::Namespaced(_, name) => name.namespace(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "Namespace {name}"),
            Self::Namespaced(kind, name) => write!(f, "{kind} {name}"),
        }
    }
}

impl From<&ServiceId> for ObjectRef {
    fn from(service: &ServiceId) -> Self {
        Self::Namespaced(Kind::Service, service.as_name().clone())
    }
}

impl From<&ServiceAccountId> for ObjectRef {
    fn from(account: &ServiceAccountId) -> Self {
        Self::Namespaced(Kind::ServiceAccount, account.as_name().clone())
    }
}

impl From<&WorkloadId> for ObjectRef {
    fn from(workload: &WorkloadId) -> Self {
        let kind = if workload.is_machine() { Kind::MeshWorkload } else { Kind::Pod };
        Self::Namespaced(kind, workload.as_name().clone())
    }
}
