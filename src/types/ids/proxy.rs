//! The names of sidecars.
//!
//! Owns their UUIDs and the Common Names of their certificates.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::name::{InvalidName, check_label};
use super::object::{ServiceId, WorkloadId};

/// A sidecar's UUID. A pod carries it as its label `osm-proxy-uuid`, and a MeshWorkload may. Any author
/// in a namespace may set it freely: it identifies a sidecar only together with the namespace, as a
/// [`ProxyName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProxyUuid(pub uuid::Uuid);

impl ProxyUuid {
    /// The UUID of a workload without the label: version 5 of its name ([`WorkloadId`]), so that every
    /// replica derives the same.
    pub fn derived(workload: &WorkloadId) -> Self {
        // A fixed, arbitrary name space (RFC 9562 §5.5).
        const SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x7f3a_9c1e_52d4_4b0a_9a6d_3e0f_1c58_d7b2);
        Self(uuid::Uuid::new_v5(&SPACE, workload.to_string().as_bytes()))
    }

    /// The UUID of these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes))
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl fmt::Display for ProxyUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for ProxyUuid {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        uuid::Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| InvalidName::new("proxy UUID", text, "is not a UUID"))
    }
}

/// One sidecar: the Common Name of its certificate. `<proxy-uuid>.<namespace>` for a pod's sidecar,
/// `<proxy-uuid>.<service>.<namespace>` for one on a machine without a pod: a machine has no
/// labels, so the name itself states its service. A UUID copied to another namespace or service is
/// thus another name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProxyName {
    /// The sidecar.
    pub uuid: ProxyUuid,
    /// The namespace of its pod or machine.
    pub namespace: Arc<str>,
    /// The service of a machine without a pod; `None` for a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
}

impl ProxyName {
    /// Names the sidecar `uuid` of a pod in `namespace` (a DNS-1123 label).
    pub fn new(uuid: ProxyUuid, namespace: &str) -> Result<Self, InvalidName> {
        check_label("namespace", namespace)?;
        Ok(Self { uuid, namespace: namespace.into(), service: None })
    }

    /// Names the sidecar `uuid` of a pod.
    pub fn of(uuid: ProxyUuid, workload: &WorkloadId) -> Self {
        Self { uuid, namespace: workload.namespace().into(), service: None }
    }

    /// Names the sidecar `uuid` of a machine without a pod, behind a service whose name is a
    /// DNS-1123 label.
    pub fn of_machine(uuid: ProxyUuid, service: &ServiceId) -> Result<Self, InvalidName> {
        check_label("service", service.name())?;
        Ok(Self { uuid, namespace: service.namespace().into(), service: Some(service.name().into()) })
    }
}

impl fmt::Display for ProxyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.service {
            None => write!(f, "{}.{}", self.uuid, self.namespace),
            Some(service) => write!(f, "{}.{service}.{}", self.uuid, self.namespace),
        }
    }
}

impl FromStr for ProxyName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let form =
            || InvalidName::new("proxy common name", text, "is not UUID.NAMESPACE or UUID.SERVICE.NAMESPACE");
        let (uuid, place) = text.split_once('.').ok_or_else(form)?;
        let uuid = uuid.parse()?;
        match place.split_once('.') {
            None => Self::new(uuid, place),
            // A namespace with a dot is not a label, and is refused.
            Some((service, namespace)) => Self::of_machine(uuid, &ServiceId::new(namespace, service)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_name_round_trips_and_a_derived_uuid_is_stable() {
        let uuid = ProxyUuid::derived(&WorkloadId::new("bookstore", "v1").unwrap());
        assert_eq!(uuid, ProxyUuid::derived(&"bookstore/v1".parse().unwrap()));
        let name = ProxyName::new(uuid, "bookstore").unwrap();
        assert_eq!(name.to_string().parse::<ProxyName>().unwrap(), name);
        assert!("not-a-uuid.ns".parse::<ProxyName>().is_err());
    }

    #[test]
    fn a_machine_without_a_pod_has_its_service_in_its_own_unique_name() {
        let uuid = ProxyUuid::derived(&WorkloadId::new("bookstore", "v1").unwrap());
        let name = ProxyName::of_machine(uuid, &"bookstore/books".parse().unwrap()).unwrap();
        assert_eq!(name.to_string(), format!("{uuid}.books.bookstore"));
        assert_eq!(name.to_string().parse::<ProxyName>().unwrap(), name);
        assert_ne!(name, ProxyName::new(uuid, "bookstore").unwrap());
        assert_ne!(name, ProxyName::of_machine(uuid, &"bookstore/other".parse().unwrap()).unwrap());
        for bad in ["", ".", "..", ".a", "a.", "a..b", "A.b", "a.B", "a.b.c", &"x.".repeat(100)] {
            assert!(format!("{uuid}.{bad}").parse::<ProxyName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_stored_form_of_a_proxy_name_from_before_machines_is_unchanged() {
        let uuid = ProxyUuid::derived(&WorkloadId::new("bookstore", "v1").unwrap());
        let written = format!("{{\"uuid\":\"{uuid}\",\"namespace\":\"bookstore\"}}");
        let name: ProxyName = serde_json::from_str(&written).unwrap();
        assert_eq!(name, ProxyName::new(uuid, "bookstore").unwrap());
        assert_eq!(serde_json::to_string(&name).unwrap(), written);
    }
}
