//! The Secrets that gateways read: one with their certificate, and one with the roots of the mesh.
//!
//! Owns their form. Both are written whole, so that what others write to them goes. The admission policy of
//! the installation lets the controllers write what they made and no other Secret.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::ObjectMeta;
use smc_authority::pki::TrustBundle;
use smc_server::gateway_keeper::{Deleted, GatewaySecret, GatewaySecrets, SecretFailure};
use smc_sidecar::injection::{MANAGED_BY_LABEL, MANAGED_BY_VALUE};
use smc_types::ids::{MeshName, MeshNamespace, NamespacedName};

use crate::names::{CONTROLLER_POLICY, GATEWAY_LABEL, ROOTS_SECRET};
use crate::secret_requests::{self, SecretError};

/// The key of the roots, as Kubernetes and gateways call it.
const ROOTS: &str = "ca.crt";

/// The Secrets of gateways' certificates in a cluster.
#[derive(Clone)]
pub struct ClusterSecrets {
    pub(crate) client: Client,
    pub(crate) mesh: MeshName,
}

impl GatewaySecrets for ClusterSecrets {
    fn write<'a>(
        &'a self,
        secret: &'a NamespacedName,
        content: &'a GatewaySecret,
    ) -> BoxFuture<'a, Result<(), SecretFailure>> {
        Box::pin(async {
            let secret = certificate(&self.mesh, secret, content);
            Ok(secret_requests::replace(&self.client, &secret).await?)
        })
    }

    fn delete<'a>(&'a self, secret: &'a NamespacedName) -> BoxFuture<'a, Result<Deleted, SecretFailure>> {
        Box::pin(async {
            let policy = format!("{CONTROLLER_POLICY}{}", self.mesh);
            match secret_requests::delete(&self.client, secret.namespace(), secret.name()).await {
                // A person's, which was there before, or has taken off the label by which it is SMC's.
                Err(error) if error.is_refused_by(&policy) => Ok(Deleted::Left),
                deleted => Ok(deleted.map(|_| Deleted::Gone)?),
            }
        })
    }
}

/// The Secret of a certificate. Its type and keys are those that gateways take:
/// <https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets>.
fn certificate(mesh: &MeshName, name: &NamespacedName, content: &GatewaySecret) -> Secret {
    let GatewaySecret { roots, certificate } = content;
    let data = [
        (ROOTS, roots.pem.as_bytes()),
        ("tls.crt", certificate.chain_pem.as_bytes()),
        ("tls.key", certificate.key_pem.as_bytes()),
    ];
    let mut secret = managed(name.namespace(), name.name(), "kubernetes.io/tls", &data);
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.insert(GATEWAY_LABEL.to_owned(), mesh.to_string());
    secret
}

/// Writes the roots of the mesh, for gateways that verify its certificates and show none.
pub(crate) async fn write_roots(
    client: &Client,
    namespace: &MeshNamespace,
    bundle: &TrustBundle,
) -> Result<(), SecretError> {
    let data = [(ROOTS, bundle.pem.as_bytes())];
    secret_requests::replace(client, &managed(namespace.as_str(), ROOTS_SECRET, "Opaque", &data)).await
}

fn managed(namespace: &str, name: &str, type_: &str, data: &[(&str, &[u8])]) -> Secret {
    let entry = |(key, content): &(&str, &[u8])| ((*key).to_owned(), ByteString(content.to_vec()));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(entry).collect()),
        type_: Some(type_.to_owned()),
        ..Secret::default()
    }
}
