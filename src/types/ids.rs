//! Names: services, service accounts, workloads, proxies, SPIFFE identities, replicas.
//!
//! Owns their parsing, their order and their printed form. Constructors check the names (DNS-1123
//! labels and subdomains, RFC 1123 and the Kubernetes API conventions), so every other part may
//! rely on them.

mod name;
mod object;
mod proxy;
mod replica;
mod trust_domain;

pub use name::{InvalidName, NamespacedName, check_label, check_subdomain};
pub use object::{MeshName, MeshNamespace, ServiceAccountId, ServiceId, WorkloadId};
pub use proxy::{ProxyName, ProxyUuid};
pub use replica::ReplicaId;
pub use trust_domain::TrustDomain;
