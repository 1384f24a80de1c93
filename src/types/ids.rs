//! Names: services, service accounts, workloads, proxies, SPIFFE identities, replicas.
//!
//! Owns their parsing, their order and their printed form. Constructors check the names (DNS-1123
//! labels and subdomains, RFC 1123 and the Kubernetes API conventions), so every other part may
//! rely on them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::truncated;

/// A refused name, with the reason. The same text is always refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid {what} {text:?}: {reason}")]
pub struct InvalidName {
    /// The kind of name, for example `namespace`.
    pub what: &'static str,
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// The reason.
    pub reason: &'static str,
}

impl InvalidName {
    fn new(what: &'static str, text: &str, reason: &'static str) -> Self {
        Self { what, text: truncated(text, 80), reason }
    }
}

/// Checks a DNS-1123 label: 1 to 63 of `a-z`, `0-9`, `-`, with an alphanumeric at both ends.
pub fn check_label(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() || text.len() > 63 {
        return Err(InvalidName::new(what, text, "must have 1 to 63 characters"));
    }
    check_characters(what, text)
}

/// Checks a DNS-1123 subdomain: labels joined by dots, 253 characters at most.
pub fn check_subdomain(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() || text.len() > 253 {
        return Err(InvalidName::new(what, text, "must have 1 to 253 characters"));
    }
    text.split('.').try_for_each(|label| {
        if label.is_empty() {
            return Err(InvalidName::new(what, text, "has an empty label"));
        }
        check_characters(what, label).map_err(|e| InvalidName::new(what, text, e.reason))
    })
}

fn check_characters(what: &'static str, label: &str) -> Result<(), InvalidName> {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    if !bytes.iter().all(|&b| alphanumeric(b) || b == b'-') {
        return Err(InvalidName::new(what, label, "may hold only a-z, 0-9 and '-'"));
    }
    let ends = bytes.first().zip(bytes.last());
    if !ends.is_some_and(|(&first, &last)| alphanumeric(first) && alphanumeric(last)) {
        return Err(InvalidName::new(what, label, "must begin and end with a letter or a digit"));
    }
    Ok(())
}

/// The name of an object in a Kubernetes namespace. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamespacedName {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl NamespacedName {
    /// Takes a namespace (a DNS-1123 label) and a name (a DNS-1123 subdomain).
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        check_label("namespace", namespace)?;
        check_subdomain("name", name)?;
        Ok(Self { namespace: namespace.into(), name: name.into() })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NamespacedName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| InvalidName::new("namespaced name", text, "is not NAMESPACE/NAME"))?;
        Self::new(namespace, name)
    }
}

impl TryFrom<String> for NamespacedName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<NamespacedName> for String {
    fn from(name: NamespacedName) -> Self {
        name.to_string()
    }
}

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

/// The trust domain of every SPIFFE identity of the mesh (SPIFFE ID §2.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustDomain(Arc<str>);

impl TrustDomain {
    /// Takes a DNS-1123 subdomain, such as `cluster.local`.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        check_subdomain("trust domain", text)?;
        Ok(Self(text.into()))
    }

    /// The trust domain's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `spiffe://<trust-domain>/ns/<namespace>/sa/<service account>`.
    pub fn spiffe_id(&self, account: &ServiceAccountId) -> String {
        format!("spiffe://{}/ns/{}/sa/{}", self.0, account.namespace(), account.name())
    }

    /// The service account in a SPIFFE ID of this trust domain; `None` for any other text.
    pub fn service_account(&self, spiffe_id: &str) -> Option<ServiceAccountId> {
        let path = spiffe_id.strip_prefix("spiffe://")?.strip_prefix(self.as_str())?.strip_prefix("/ns/")?;
        let (namespace, rest) = path.split_once('/')?;
        ServiceAccountId::new(namespace, rest.strip_prefix("sa/")?).ok()
    }
}

impl TryFrom<String> for TrustDomain {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(&text)
    }
}

impl From<TrustDomain> for String {
    fn from(domain: TrustDomain) -> Self {
        domain.0.to_string()
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A sidecar's UUID. A pod carries it as its label `osm-proxy-uuid`, which any author of pods in a
/// namespace may set freely: it identifies a sidecar only together with the namespace, as a
/// [`ProxyName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProxyUuid(pub uuid::Uuid);

impl ProxyUuid {
    /// The UUID of a pod without the label: version 5 of its namespaced name, so that every replica
    /// derives the same.
    pub fn derived(workload: &WorkloadId) -> Self {
        // A fixed, arbitrary name space (RFC 9562 §5.5).
        const SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x7f3a_9c1e_52d4_4b0a_9a6d_3e0f_1c58_d7b2);
        Self(uuid::Uuid::new_v5(&SPACE, workload.to_string().as_bytes()))
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

/// A replica's id. Its operator assigns it once (the ordinal of a `StatefulSet`), and does not
/// reuse it while the replica is a member. Not an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<u64> for ReplicaId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl FromStr for ReplicaId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_refuses_are_refused() {
        for bad in ["", "A", "a_b", "-a", "a-", "a b", &"x".repeat(64)] {
            assert!(check_label("namespace", bad).is_err(), "{bad:?}");
        }
        for bad in ["", ".", "a..b", "a.", ".a", &"x.".repeat(200)] {
            assert!(check_subdomain("name", bad).is_err(), "{bad:?}");
        }
        assert!(NamespacedName::new("default", "a.b-c.d").is_ok());
        assert!("default".parse::<NamespacedName>().is_err());
        assert!("a/b/c".parse::<NamespacedName>().is_err());
    }

    #[test]
    fn a_spiffe_id_reads_back_as_its_service_account_and_nothing_else_does() {
        let domain = TrustDomain::new("cluster.local").unwrap();
        let account = ServiceAccountId::new("bookstore", "bookstore-v1").unwrap();
        let id = domain.spiffe_id(&account);
        assert_eq!(id, "spiffe://cluster.local/ns/bookstore/sa/bookstore-v1");
        assert_eq!(domain.service_account(&id), Some(account));
        for bad in [
            "spiffe://cluster.localx/ns/a/sa/b",
            "spiffe://other/ns/a/sa/b",
            "spiffe://cluster.local/ns/a/sa/b/c",
            "spiffe://cluster.local/ns/a/sa/",
            "https://cluster.local/ns/a/sa/b",
        ] {
            assert_eq!(domain.service_account(bad), None, "{bad}");
        }
    }

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
