//! The key-encryption key as `smc check` sees it.
//!
//! Owns what is compared: the keys of the Secrets with those that the mesh's private keys are sealed with.
//! A running controller has read its key long ago, so a Secret that was exchanged shows at the next restart
//! otherwise, of all controllers at once. The key is read with the rights of the person who asks, and
//! nothing but its id is kept.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use smc_issuing::seal::key_id;
use smc_types::ids::MeshNamespace;
use tokio::time::sleep;
use zeroize::Zeroize;

use super::facts::{self, Group};
use crate::install::apply::Cluster;
use crate::stateful_set::{FOUNDING_KEY, FOUNDING_RECORD, GROUP_KEYS, GROUP_RECORD, SECRET_KEY};

/// The Secret of the key-encryption key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The person may not see it.
    Unknown,
    /// There is none.
    Missing,
    /// It is there, and the person may not read it.
    Unread,
    /// It holds no key.
    Malformed,
    /// It holds the key with this id.
    Id(String),
}

/// Looks at the Secret that the StatefulSet mounts.
pub(super) async fn key(cluster: &Cluster, namespace: &MeshNamespace, name: &str) -> Key {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace.as_str());
    match secrets.get_opt(name).await {
        Ok(None) => Key::Missing,
        Ok(Some(secret)) => {
            let mut data = secret.data.unwrap_or_default();
            let id = data.get(SECRET_KEY).and_then(|key| key_id(&key.0));
            for value in data.values_mut() {
                value.0.zeroize();
            }
            id.map_or(Key::Malformed, Key::Id)
        }
        // The metadata may be seen without the content.
        Err(_) => match secrets.get_metadata_opt(name).await {
            Ok(Some(_)) => Key::Unread,
            Ok(None) => Key::Missing,
            Err(_) => Key::Unknown,
        },
    }
}

/// The id, among those that the mesh has `sealed` with, that controllers miss which start with these keys;
/// `None` also where a key that cannot be seen may be it.
pub(super) fn missed<'a>(keys: &[&Key], sealed: &'a [String]) -> Option<&'a String> {
    if keys.iter().any(|key| matches!(key, Key::Unknown | Key::Unread)) {
        return None;
    }
    sealed.iter().find(|id| !keys.iter().any(|key| matches!(key, Key::Id(held) if held == *id)))
}

/// The time in which a follower has applied, and the record has taken over, what the leader has committed.
const FOLLOWS: Duration = Duration::from_secs(3);

/// Why controllers that start with the keys of these Secrets do not open what the mesh has sealed, if that
/// can be seen. Nothing is sealed before the mesh is founded. Right after a change of the key, a follower and
/// the record name the former one, so a reason counts that is there again after a while.
pub async fn unopened(cluster: &Cluster, namespace: &MeshNamespace, secrets: &[&str]) -> Option<String> {
    look(cluster, namespace, secrets).await?;
    sleep(FOLLOWS).await;
    look(cluster, namespace, secrets).await
}

async fn look(cluster: &Cluster, namespace: &MeshNamespace, secrets: &[&str]) -> Option<String> {
    let sealed = sealed(cluster, namespace, &facts::group(cluster, namespace).await).await;
    if sealed.is_empty() {
        return None;
    }
    let mut keys = Vec::new();
    for name in secrets {
        let found = key(cluster, namespace, name).await;
        match found {
            // A pod does not start without a Secret that it mounts.
            Key::Missing => return Some(format!("the Secret {namespace}/{name} is missing")),
            Key::Malformed => {
                return Some(format!(
                    "the Secret {namespace}/{name} holds no key in its field `{SECRET_KEY}`"
                ));
            }
            Key::Unknown | Key::Unread | Key::Id(_) => keys.push(found),
        }
    }
    let id = missed(&keys.iter().collect::<Vec<_>>(), &sealed)?;
    Some(format!(
        "the mesh's keys are sealed with the key {id}, which {} does not hold",
        secrets.join(" nor ")
    ))
}

/// The ids of the keys that the mesh has sealed with: as its group says, or, where no controller can, as the
/// cluster has on record.
pub(super) async fn sealed(
    cluster: &Cluster,
    namespace: &MeshNamespace,
    group: &Result<Group, String>,
) -> Vec<String> {
    match group {
        Ok(group) if !group.sealed_with.is_empty() => group.sealed_with.clone(),
        _ => recorded(cluster, namespace).await,
    }
}

/// The ids of the keys that are on record in the cluster: the leader's record, or that of the founding.
async fn recorded(cluster: &Cluster, namespace: &MeshNamespace) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace.as_str());
    for (name, field) in [(GROUP_RECORD, GROUP_KEYS), (FOUNDING_RECORD, FOUNDING_KEY)] {
        let Ok(Some(map)) = maps.get_opt(name).await else { continue };
        if let Some(keys) = map.data.unwrap_or_default().get(field) {
            return keys.split_whitespace().map(str::to_owned).collect();
        }
    }
    Vec::new()
}
