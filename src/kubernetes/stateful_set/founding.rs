//! The record of the founding in Kubernetes: the ConfigMap `smc-founding`.
//!
//! Owns its content. Beside a key-encryption key that is mounted read-only no note can be written, and a disk
//! may be lost. The API server creates an object of one name once, so of several disks one founds the group.
//! The record belongs to no release of the chart: it outlives an uninstallation, as the key and the disks do.
//! A person who wants to begin again deletes it.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use smc_raft::{Claim, ClaimError, FoundingRegister};
use smc_types::ids::ReplicaId;

use super::OwnObjects;

/// The name of the record.
pub(crate) const RECORD: &str = "smc-founding";

/// The field with the number of the disk that founded the group.
const DISK: &str = "disk";

/// The record, as one replica asks for it.
#[derive(Debug)]
pub struct FoundingObject {
    /// The namespace that holds it.
    pub objects: OwnObjects,
    /// The replica that asks.
    pub replica: ReplicaId,
    /// The id of the key-encryption key: a person who has lost the key learns which one to look for.
    pub key: String,
}

impl FoundingRegister for FoundingObject {
    fn claim(&self, incarnation: u64) -> BoxFuture<'_, Result<Claim, ClaimError>> {
        async move {
            let mine = record(self.replica, incarnation, &self.key);
            let kept = self.objects.create_once(RECORD, mine).await;
            let kept = kept.map_err(|error| ClaimError(Box::new(error)))?;
            Ok(judged(&kept, incarnation, self.objects.namespace().as_str()))
        }
        .boxed()
    }
}

fn record(replica: ReplicaId, incarnation: u64, key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (DISK.to_owned(), format!("{incarnation:016x}")),
        ("replica".to_owned(), replica.to_string()),
        ("keyEncryptionKey".to_owned(), key.to_owned()),
    ])
}

/// What the record that exists means for this disk. A record that names no disk is another disk's.
fn judged(kept: &BTreeMap<String, String>, incarnation: u64, namespace: &str) -> Claim {
    if kept.get(DISK).is_some_and(|disk| *disk == format!("{incarnation:016x}")) {
        return Claim::Granted;
    }
    let key = kept.get("keyEncryptionKey").map_or("unknown", String::as_str);
    Claim::FoundedBefore(format!("ConfigMap {namespace}/{RECORD}, with the key-encryption key {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_that_is_recorded_may_found_and_no_other() {
        let kept = record(ReplicaId(0), 7, "abcd");
        assert_eq!(judged(&kept, 7, "smc-system"), Claim::Granted);
        for (kept, incarnation) in [(kept, 8), (BTreeMap::new(), 7)] {
            let Claim::FoundedBefore(record) = judged(&kept, incarnation, "smc-system") else {
                panic!("{kept:?}")
            };
            assert!(record.contains("smc-system/smc-founding"), "{record}");
        }
    }
}
