//! `config.openservicemesh.io` MeshRootCertificate: where the mesh's root comes from.
//!
//! Owns its fields. The ledger makes and rotates the roots of the mesh, whatever such an object says.

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use super::policy::read;
use crate::kind::{CustomKind, schema, without_effect};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<MeshRootCertificateSpec>],
    example: |_| json!({"trustDomain": "cluster.local", "role": "active", "provider": {"tresor": {}}}),
    read: |object| without_effect(read_mesh_root_certificate(&object.id, object.spec)),
    ..CustomKind::new(Kind::MeshRootCertificate)
};

/// The fields that OSM's releases have had.
const FIELDS: [&str; 5] = ["trustDomain", "role", "intent", "spiffeEnabled", "provider"];

/// A root of the mesh. Not enforced yet.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct MeshRootCertificateSpec {
    /// The domain of identities.
    #[schemars(length(max = 253))]
    pub trust_domain: Option<String>,
    /// What of it is used: `passive`, `active` or `inactive`.
    #[schemars(length(max = 64))]
    pub role: Option<String>,
    /// The same, as it was first named.
    #[schemars(length(max = 64))]
    pub intent: Option<String>,
    /// Whether certificates have an identity of SPIFFE. Those of the mesh always do.
    pub spiffe_enabled: Option<bool>,
    /// What issues the root.
    pub provider: Option<Provider>,
}

/// What issues a root.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Provider {
    /// The control plane itself.
    pub tresor: Option<Tresor>,
    /// HashiCorp's Vault.
    pub vault: Option<Vault>,
    /// An issuer of cert-manager.
    pub cert_manager: Option<CertManager>,
}

/// The control plane itself.
#[derive(Debug, JsonSchema)]
pub struct Tresor {
    /// The root's certificate and key.
    pub ca: Option<TresorCa>,
}

/// A root's certificate and key.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct TresorCa {
    /// The Secret that holds both.
    pub secret_ref: Option<SecretReference>,
}

/// A Secret, or an entry of it.
#[derive(Debug, JsonSchema)]
pub struct SecretReference {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The entry.
    #[schemars(length(max = 253))]
    pub key: Option<String>,
}

/// HashiCorp's Vault.
#[derive(Debug, JsonSchema)]
pub struct Vault {
    /// Its host.
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// Its port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The role that signs.
    #[schemars(length(max = 253))]
    pub role: Option<String>,
    /// `http` or `https`.
    #[schemars(length(max = 16))]
    pub protocol: Option<String>,
    /// The token.
    pub token: Option<VaultToken>,
}

/// A token of Vault.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct VaultToken {
    /// The entry of a Secret that holds it.
    pub secret_key_ref: Option<SecretReference>,
}

/// An issuer of cert-manager.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct CertManager {
    /// Its name.
    #[schemars(length(max = 253))]
    pub issuer_name: Option<String>,
    /// Its kind.
    #[schemars(length(max = 253))]
    pub issuer_kind: Option<String>,
    /// The API group of its kind.
    #[schemars(length(max = 253))]
    pub issuer_group: Option<String>,
}

/// Reads the `spec` of a MeshRootCertificate.
pub fn read_mesh_root_certificate(id: &NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::MeshRootCertificate, id, spec, |_, spec, _| {
        for field in FIELDS {
            spec.take(field);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::osm::policy::NOT_ENFORCED;

    #[test]
    fn an_object_as_osm_takes_it_is_accepted_and_not_enforced() {
        let reading = |spec| read_mesh_root_certificate(&"smc-system/root".parse().unwrap(), spec);
        let provider = json!({"tresor": {"ca": {"secretRef": {"name": "ca", "namespace": "smc-system"}}}});
        let found = reading(json!({"provider": provider, "trustDomain": "cluster.local", "role": "active"}));
        let messages: Vec<_> = found.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!((found.object, messages), (Some(()), vec![NOT_ENFORCED]));
        assert_eq!(reading(json!({"trustDomian": "x"})).problems.len(), 2);
    }
}
