//! A person's word that a group goes on from disks that are older than it was.
//!
//! Owns the change of the record: it says no longer how far the group was. The controllers, which wait for
//! that, go on, and the leader records how far the group is now.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use smc_types::ids::MeshNamespace;

use super::RecoveryError;
use crate::stateful_set::{GROUP_RECORD, POSITION};

/// Confirms the disks that the controllers in `namespace` have.
pub async fn accept_older_disks(client: Client, namespace: &MeshNamespace) -> Result<(), RecoveryError> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace.as_str());
    // With a merge, null removes a field.
    let gone: BTreeMap<_, _> = POSITION.into_iter().map(|field| (field, None::<String>)).collect();
    let change = Patch::Merge(json!({ "data": gone }));
    let written = maps.patch(GROUP_RECORD, &PatchParams::default(), &change).await;
    let failed = |source| RecoveryError::Api {
        action: format!("write the ConfigMap {namespace}/{GROUP_RECORD}"),
        source: Box::new(source),
    };
    written.map(drop).map_err(failed)
}
