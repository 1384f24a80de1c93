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

/// A running workload: a Pod, or a machine without a pod, which a MeshWorkload declares. A Pod and a machine
/// of one name are two workloads. Prints as `NAMESPACE/POD` or `machine/NAMESPACE/NAME`, and is read from the
/// same; no other text has two slashes, so a pod of the namespace `machine` is no exception.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId {
    /// First, so that pods sort before machines.
    is_machine: bool,
    name: NamespacedName,
}

/// The beginning of the text of a machine's id.
const MACHINE: &str = "machine/";

impl WorkloadId {
    /// The Pod of this namespace and name; see [`NamespacedName::new`].
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        NamespacedName::new(namespace, name).map(Self::from)
    }

    /// The machine that the MeshWorkload of this name declares.
    pub fn machine(name: NamespacedName) -> Self {
        Self { is_machine: true, name }
    }

    /// Whether it is a machine; otherwise it is a Pod.
    pub fn is_machine(&self) -> bool {
        self.is_machine
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.name.namespace()
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.name.name()
    }

    /// The same, as the name of an object of any kind.
    pub fn as_name(&self) -> &NamespacedName {
        &self.name
    }
}

/// A Pod of this name.
impl From<NamespacedName> for WorkloadId {
    fn from(name: NamespacedName) -> Self {
        Self { is_machine: false, name }
    }
}

impl FromStr for WorkloadId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.strip_prefix(MACHINE).filter(|rest| rest.contains('/')) {
            Some(machine) => machine.parse().map(Self::machine),
            None => text.parse::<NamespacedName>().map(Self::from),
        }
    }
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_machine { MACHINE } else { "" }, self.name)
    }
}

impl fmt::Debug for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ServiceId {
    /// What every [`Self::fqdn`] ends in.
    pub const DOMAIN: &str = ".svc.cluster.local";

    /// The fully qualified host name, `NAME.NAMESPACE.svc.cluster.local`; also the SNI of mesh
    /// traffic.
    pub fn fqdn(&self) -> String {
        format!("{}.{}{}", self.name(), self.namespace(), Self::DOMAIN)
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
        Self("smc-system".into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_and_a_machine_of_one_name_are_two_workloads() {
        let pod: WorkloadId = "shop/web".parse().unwrap();
        let machine: WorkloadId = "machine/shop/web".parse().unwrap();
        assert_ne!(pod, machine);
        assert_eq!(pod.as_name(), machine.as_name());
        assert!(machine.is_machine() && !pod.is_machine());
        for (id, text) in [(&pod, "shop/web"), (&machine, "machine/shop/web")] {
            assert_eq!(id.to_string(), text);
            assert_eq!(id.to_string().parse::<WorkloadId>().unwrap(), *id);
        }
        let in_a_namespace_of_that_name: WorkloadId = "machine/web".parse().unwrap();
        assert!(!in_a_namespace_of_that_name.is_machine());
        for bad in ["", "/", "machine/", "machine//", "machine/a/", "machine/a/b/c", "pod/a/b"] {
            assert!(bad.parse::<WorkloadId>().is_err(), "{bad:?}");
        }
    }
}
