//! The Secret with a sidecar's bootstrap, in the API.
//!
//! Owns its form.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::ObjectMeta;
use serde_json::Value;
use smc_sidecar::injection::{
    BOOTSTRAP_KEY, MANAGED_BY_LABEL, MANAGED_BY_VALUE, PROXY_UUID_LABEL, secret_name,
};
use smc_types::ids::ProxyName;

use crate::secret_requests::{self, SecretError};

/// The longest text of a reference to an owner, in bytes (RFC 1123).
const MAX_TEXT: usize = 253;

/// The object that made a Pod, such as its ReplicaSet, as the owner of the Pod's Secret; `None` if a person
/// made the Pod. The Secret of a Pod that is gone is deleted by the leader ([`super::secret_gc`]). Where no
/// controller runs any more, Kubernetes deletes it after this owner. The Pod itself cannot be the owner: it
/// has no UID yet.
pub(crate) fn owner(pod: &Value) -> Option<OwnerReference> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let made_by = owners.iter().find(|owner| owner["controller"] == true)?;
    // Kubernetes has no longer ones.
    let short = |text: &&str| text.len() <= MAX_TEXT;
    let text = |field: &str| made_by[field].as_str().filter(short).map(str::to_owned);
    Some(OwnerReference {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid")?,
        ..OwnerReference::default()
    })
}

/// Makes the Secret of a sidecar whose Pod does not exist yet.
pub(crate) async fn create(
    client: &Client,
    proxy: &ProxyName,
    bootstrap: String,
    owner: Option<OwnerReference>,
) -> Result<(), SecretError> {
    let labels = BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned()),
        (PROXY_UUID_LABEL.to_owned(), proxy.uuid.to_string()),
    ]);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(proxy.uuid)),
            namespace: Some(proxy.namespace.to_string()),
            labels: Some(labels),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(BOOTSTRAP_KEY.to_owned(), ByteString(bootstrap.into_bytes()))])),
        // The kubelet need not watch it.
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    secret_requests::create(client, &secret).await
}

/// Deletes the Secret. Returns whether it was there.
pub(crate) async fn delete(client: &Client, proxy: &ProxyName) -> Result<bool, SecretError> {
    secret_requests::delete(client, &proxy.namespace, &secret_name(proxy.uuid)).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_secret_belongs_to_what_made_the_pod() {
        let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u" });
        let mut controller = set.clone();
        controller["controller"] = true.into();
        controller["blockOwnerDeletion"] = true.into();
        let pod = |owners: Value| json!({ "metadata": { "ownerReferences": owners } });
        let owner = |owners: Value| owner(&pod(owners)).map(|owner| serde_json::to_value(owner).unwrap());
        assert_eq!(owner(json!([set.clone(), controller])), Some(set.clone()));
        // One that blocks its owner's deletion would need another right.
        for none in [json!([set]), json!([]), json!(null), json!([{ "controller": true, "uid": "u" }])] {
            assert_eq!(owner(none.clone()), None, "{none}");
        }
    }
}
