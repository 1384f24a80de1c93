//! Owns the volumes of the node: directories that claims are bound to, since no provisioner runs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::ClusterError;
use crate::config::NODE;

/// The default storage class.
const CLASS: &str = "local";
/// Number of volumes. Each is bound once: a claim that is deleted leaves its data, and a new claim gets
/// another volume. A walk of ten steps loses some twenty.
const VOLUMES: usize = 64;

/// Makes the directories of all volumes below the cluster's directory.
pub(crate) fn make_directories(state: &Path) -> Result<(), ClusterError> {
    for number in 0..VOLUMES {
        let path = state.join(format!("volumes/{number}"));
        fs::create_dir_all(&path).map_err(ClusterError::file("create", &path))?;
    }
    Ok(())
}

/// The list of objects: the storage class, and the volumes. They are of the kind `local`, whose files
/// the kubelet gives to the group that a pod asks for.
pub(crate) fn objects(state: &Path) -> Value {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": CLASS,
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let node = json!([{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": [NODE] },
    ] }]);
    let volumes = (0..VOLUMES).map(|number| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": format!("local-{number}") },
            "spec": {
                "capacity": { "storage": "10Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": CLASS,
                "local": { "path": state.join(format!("volumes/{number}")) },
                "nodeAffinity": { "required": { "nodeSelectorTerms": node } },
            },
        })
    });
    let items: Vec<Value> = [class].into_iter().chain(volumes).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}
