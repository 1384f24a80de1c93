//! The ids of objects of one kind each, so that no service stands where a workload belongs.
//!
//! Owns services, service accounts, workloads, the name of the mesh, and the namespace of the control plane.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::name::{InvalidName, NamespacedName, check_label};

macro_rules! namespaced {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(NamespacedName);

        impl $type {
            /// Takes a namespace and a name; see [`NamespacedName::new`].
            pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidName> {
                NamespacedName::new(namespace, name).map(Self)
            }

            /// The namespace.
            pub fn namespace(&self) -> &str {
                self.0.namespace()
            }

            /// The name within the namespace.
            pub fn name(&self) -> &str {
                self.0.name()
            }

            /// The same, as the name of an object of any kind.
            pub fn as_name(&self) -> &NamespacedName {
                &self.0
            }
        }

        impl From<NamespacedName> for $type {
            fn from(name: NamespacedName) -> Self {
                Self(name)
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

namespaced!(
    /// A Kubernetes Service.
    ServiceId
);
namespaced!(
    /// A Kubernetes ServiceAccount: the identity in policies and service certificates.
    ServiceAccountId
);
namespaced!(
    /// A running workload: a Pod, later also a machine outside Kubernetes.
    WorkloadId
);

impl ServiceId {
    /// The fully qualified host name, `NAME.NAMESPACE.svc.cluster.local`; also the SNI of mesh
    /// traffic.
    pub fn fqdn(&self) -> String {
        format!("{}.{}.svc.cluster.local", self.name(), self.namespace())
    }
}

/// The namespace of the control plane. Only its MeshConfig counts, so that the right to write objects in
/// another namespace does not open the mesh. The default is OSM's, which existing YAML names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshNamespace(Arc<str>);

impl MeshNamespace {
    /// Checks that the text is a namespace (a DNS-1123 label).
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_label("namespace", text)?;
        Ok(Self(text.into()))
    }

    /// The namespace's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for MeshNamespace {
    fn default() -> Self {
        Self("osm-system".into())
    }
}

impl fmt::Display for MeshNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a mesh: the value of a Namespace's label `openservicemesh.io/monitored-by` that puts the
/// namespace into this mesh. Several meshes may share a cluster. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshName(Arc<str>);

impl MeshName {
    /// Checks that the text is a DNS-1123 label: it is a label's value and a part of objects' names.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_label("mesh name", text)?;
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for MeshName {
    fn default() -> Self {
        Self("smc".into())
    }
}

impl fmt::Display for MeshName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
