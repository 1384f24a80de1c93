//! The record of the founding in Kubernetes: the ConfigMap `smc-founding`.
//!
//! Owns its content. Beside a key-encryption key that is mounted read-only no note can be written, and a disk
//! may be lost. The API server creates an object of one name once, so of several disks one founds the group.
//! The record belongs to no release of the chart: it outlives an uninstallation, as the key and the disks do.
//! A person who wants to begin again deletes it.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use smc_raft::{Claim, ClaimError, FoundingRegister, Place};
use smc_types::ids::ReplicaId;

use super::OwnPod;

/// The name of the record.
pub(crate) const RECORD: &str = "smc-founding";

/// The field with the id of the key-encryption key of that time.
pub(crate) const KEY: &str = "keyEncryptionKey";

/// The field with the number of the disk that founded the group.
const DISK: &str = "disk";

/// The record, as one replica asks for it.
#[derive(Debug)]
pub struct FoundingObject {
    /// The pod of the replica that asks.
    pub pod: OwnPod,
    /// The replica.
    pub replica: ReplicaId,
    /// The id of the key-encryption key: a person who has lost the key learns which one to look for.
    pub key: String,
}

impl FoundingRegister for FoundingObject {
    fn claim(&self, incarnation: u64) -> BoxFuture<'_, Result<Claim, ClaimError>> {
        async move {
            let mine = record(self.replica, incarnation, &self.key);
            let kept = self.pod.objects.create_once(RECORD, mine).await;
            let kept = kept.map_err(|error| ClaimError(Box::new(error)))?;
            Ok(judged(&kept, incarnation, self.pod.objects.namespace().as_str()))
        }
        .boxed()
    }

    fn may_take_place(&self) -> BoxFuture<'_, Result<Place, ClaimError>> {
        async move {
            let Some(mine) = &self.pod.uid else { return Ok(Place::Granted) };
            let present = self.pod.present().await.map_err(|error| ClaimError(Box::new(error)))?;
            Ok(place(&self.pod.name, mine, present.as_deref()))
        }
        .boxed()
    }
}

fn record(replica: ReplicaId, incarnation: u64, key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (DISK.to_owned(), format!("{incarnation:016x}")),
        ("replica".to_owned(), replica.to_string()),
        (KEY.to_owned(), key.to_owned()),
    ])
}

/// The record of a group that is there: no disk may found another one.
pub(super) fn before(key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(KEY.to_owned(), key.to_owned())])
}

/// What the record that exists means for this disk. A record that names no disk is another disk's.
fn judged(kept: &BTreeMap<String, String>, incarnation: u64, namespace: &str) -> Claim {
    if kept.get(DISK).is_some_and(|disk| *disk == format!("{incarnation:016x}")) {
        return Claim::Granted;
    }
    Claim::FoundedBefore(format!("ConfigMap {namespace}/{RECORD}"))
}

/// What the UID of the present pod means for the process of the pod `mine`.
fn place(pod: &str, mine: &str, present: Option<&str>) -> Place {
    match present {
        Some(present) if present == mine => Place::Granted,
        Some(present) => Place::Another(format!("the pod {pod} with the UID {present}")),
        None => Place::Another(format!("no pod {pod} is in the cluster any more, and another one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_of_the_present_pod_takes_a_place() {
        assert_eq!(place("smc-controller-1", "a", Some("a")), Place::Granted);
        for present in [Some("b"), None] {
            let Place::Another(process) = place("smc-controller-1", "a", present) else {
                panic!("{present:?}")
            };
            assert!(process.contains("smc-controller-1"), "{process}");
        }
    }

    #[test]
    fn the_disk_that_is_recorded_may_found_and_no_other() {
        let kept = record(ReplicaId(0), 7, "abcd");
        assert_eq!(judged(&kept, 7, "smc-system"), Claim::Granted);
        for (kept, incarnation) in [(kept, 8), (BTreeMap::new(), 7), (before("abcd"), 7)] {
            let Claim::FoundedBefore(record) = judged(&kept, incarnation, "smc-system") else {
                panic!("{kept:?}")
            };
            assert!(record.contains("smc-system/smc-founding"), "{record}");
        }
    }
}
