//! SPIFFE identities.
//!
//! Owns the trust domain, and how a service account is written as a SPIFFE ID and read from one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::name::{InvalidName, check_subdomain};
use super::object::ServiceAccountId;

/// The label that stands between the name of a Service with its namespace, and the domain of the cluster.
const SERVICES: &str = "svc";

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

    /// `<service account>.<namespace>.<trust-domain>`, the name by which an ingress outside of the mesh knows
    /// what it connects to, as in OSM. Read from the right, it is that of no other account: a namespace has
    /// no dots. `None` if it is no DNS name (RFC 1035 section 2.3.4), and for accounts of the namespace
    /// `svc`, whose names could be those of Services.
    pub fn dns_name(&self, account: &ServiceAccountId) -> Option<String> {
        let name = format!("{}.{}.{}", account.name(), account.namespace(), self.0);
        let fits = name.len() <= 253 && name.split('.').all(|label| label.len() <= 63);
        (fits && account.namespace() != SERVICES).then_some(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dns_name_is_that_of_one_account_and_of_no_service() {
        let domain = TrustDomain::new("cluster.local").unwrap();
        let name =
            |namespace: &str, name: &str| domain.dns_name(&ServiceAccountId::new(namespace, name).unwrap());
        assert_eq!(name("shop", "web").as_deref(), Some("web.shop.cluster.local"));
        assert_eq!(name("shop", "v1.web").as_deref(), Some("v1.web.shop.cluster.local"));
        assert_eq!(name("svc", "web.shop"), None, "it is the name of Service shop/web");
        assert_eq!(name("shop", &"a".repeat(64)), None);
        assert_eq!(name("shop", &["a"; 120].join(".")), None);
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
}
