//! `config.openservicemesh.io` MeshRootCertificate: a root of the mesh, and what it is used for.
//!
//! Owns its fields. The ledger makes the root and its key, and [`DeclaredRoots`] says what follows from the
//! roles. An object that cannot be read, or that asks for a root from elsewhere, declares none.
//!
//! [`DeclaredRoots`]: smc_authority::rules::DeclaredRoots

use std::sync::Arc;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_authority::rules::RootRole;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use crate::kind::{Column, CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<MeshRootCertificateSpec>],
    columns: &[Column::text("Role", ".spec.role")],
    example: |_| json!({"trustDomain": "cluster.local", "role": "active", "provider": {"tresor": {}}}),
    read: |object| effective(read_mesh_root_certificate(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::MeshRootCertificate)
};

/// The roles, as OSM spells them.
const ROLES: [(&str, RootRole); 3] =
    [("passive", RootRole::Passive), ("active", RootRole::Active), ("inactive", RootRole::Inactive)];

/// A root of the mesh.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct MeshRootCertificateSpec {
    /// The domain of identities.
    #[schemars(length(max = 253))]
    pub trust_domain: Option<String>,
    /// What it is used for: `passive` is trusted, `active` signs, too, and `inactive` is retired. An active
    /// one is meant where this is left out.
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

/// An object as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshRootCertificate {
    /// Its own name.
    pub id: NamespacedName,
    /// What it is used for.
    pub role: RootRole,
    /// The trust domain, if it says one.
    pub trust_domain: Option<Arc<str>>,
}

/// Reads the `spec` of a MeshRootCertificate.
pub fn read_mesh_root_certificate(id: &NamespacedName, spec: Value) -> Reading<MeshRootCertificate> {
    let mut findings = Findings::new(Kind::MeshRootCertificate, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<MeshRootCertificate> {
    let mut spec = spec.object(findings)?;
    let role = read_role(&mut spec, findings);
    let domain = spec.take("trustDomain").map(|node| node.text(findings));
    if let Some(node) = spec.take("spiffeEnabled") {
        let path = node.path.clone();
        if node.boolean(findings) == Some(false) {
            findings
                .warning(&path, "has no effect: certificates of the mesh always have an identity of SPIFFE");
        }
    }
    let is_own = spec.require("provider", findings).is_some_and(|node| is_own(node, findings));
    spec.finish(findings);
    if !is_own || domain == Some(None) {
        return None;
    }
    let trust_domain = domain.flatten().filter(|domain| !domain.is_empty()).map(Arc::from);
    Some(MeshRootCertificate { id: id.clone(), role: role?, trust_domain })
}

/// OSM's release 1.2 has no role, and its only object is the root that signs.
fn read_role(spec: &mut Fields, findings: &mut Findings) -> Option<RootRole> {
    let mut said = None;
    for name in ["role", "intent"] {
        let Some(node) = spec.take(name) else { continue };
        let path = node.path.clone();
        let text = node.text(findings)?;
        let Some((_, role)) = ROLES.into_iter().find(|(known, _)| *known == text) else {
            let message = format!("is {:?}, and not passive, active or inactive", truncated(&text, 40));
            findings.error(&path, message);
            return None;
        };
        if said.is_some_and(|said| said != role) {
            findings.error(&path, "says another role than role does");
            return None;
        }
        said = Some(role);
    }
    Some(said.unwrap_or(RootRole::Active))
}

/// Whether the root is the control plane's own.
fn is_own(provider: Node, findings: &mut Findings) -> bool {
    let path = provider.path.clone();
    let Some(mut provider) = provider.object(findings) else { return false };
    let mut is_own = false;
    let mut has_other = false;
    for name in ["vault", "certManager"] {
        if let Some(node) = provider.take(name) {
            has_other = true;
            findings.error(
                &node.path,
                "is no provider of roots here: the control plane makes them itself (tresor)",
            );
        }
    }
    if let Some(node) = provider.take("tresor") {
        is_own = node.object(findings).is_some_and(|tresor| takes_tresor(tresor, findings));
    } else if !has_other {
        findings.error(&path, "names no provider: tresor is the control plane itself");
    }
    provider.finish(findings);
    is_own && !has_other
}

/// OSM keeps the root and its key in this Secret, which it makes where there is none.
fn takes_tresor(mut tresor: Fields, findings: &mut Findings) -> bool {
    if let Some(node) = tresor.take("ca") {
        let message =
            "has no effect: the root and its key are sealed in the ledger, and no Secret is read or written";
        findings.warning(&node.path, message);
    }
    tresor.finish(findings);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_types::problem::Severity;

    fn reading(spec: Value) -> Reading<MeshRootCertificate> {
        read_mesh_root_certificate(&"smc-system/root".parse().unwrap(), spec)
    }

    /// The role, and the fields of errors.
    fn role(spec: Value) -> (Option<RootRole>, Vec<String>) {
        let found = reading(spec);
        let errors = found.problems.into_iter().filter(|problem| problem.severity == Severity::Error);
        (found.object.map(|object| object.role), errors.map(|problem| problem.field).collect())
    }

    #[test]
    fn an_object_as_osm_makes_it_is_the_root_that_signs() {
        let provider = json!({"tresor": {"ca": {"secretRef": {"name": "ca", "namespace": "smc-system"}}}});
        let found = reading(json!({"provider": provider, "trustDomain": "cluster.local"}));
        let object = found.object.unwrap();
        assert_eq!((object.role, object.trust_domain.as_deref()), (RootRole::Active, Some("cluster.local")));
        let fields: Vec<_> = found.problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["spec.provider.tresor.ca"], "a warning says that the Secret is not used");
    }

    #[test]
    fn what_cannot_be_read_or_obeyed_declares_nothing() {
        let own = json!({"tresor": {}});
        for (sentence, spec, field) in [
            ("no provider", json!({"role": "active"}), "spec.provider"),
            ("an empty provider", json!({"role": "active", "provider": {}}), "spec.provider"),
            ("Vault", json!({"provider": {"vault": {"host": "vault"}}}), "spec.provider.vault"),
            (
                "two providers",
                json!({"provider": {"tresor": {}, "certManager": {}}}),
                "spec.provider.certManager",
            ),
            ("an unknown role", json!({"provider": own, "role": "Active"}), "spec.role"),
            ("a role that is no text", json!({"provider": own, "role": 7}), "spec.role"),
            ("two roles", json!({"provider": own, "role": "active", "intent": "passive"}), "spec.intent"),
            ("a domain that is no text", json!({"provider": own, "trustDomain": {}}), "spec.trustDomain"),
            ("a list", json!([]), "spec"),
        ] {
            let (role, errors) = role(spec);
            assert_eq!((role, errors.as_slice()), (None, [field.to_owned()].as_slice()), "{sentence}");
        }
    }

    #[test]
    fn a_role_has_two_names_and_an_unknown_field_takes_none_away() {
        for (name, expected) in ROLES {
            for field in ["role", "intent"] {
                let spec = json!({"provider": {"tresor": {}}, field: name, "spiffeEnabled": false});
                assert_eq!(role(spec), (Some(expected), vec![]), "{field}: {name}");
            }
        }
        let found = reading(json!({"provider": {"tresor": {}}, "trustDomian": "x"}));
        assert_eq!(found.object.unwrap().role, RootRole::Active);
        assert_eq!(found.problems.len(), 1);
    }
}
