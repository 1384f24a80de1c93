//! The record of the group in Kubernetes: the ConfigMap `smc-group`.
//!
//! Owns its content, and its upkeep by the leader. What was true at the founding does not stay so: a
//! restore or a recovery makes another group, and another key-encryption key takes the place of the first.
//! A person, `smc check` and the init container read here which key the mesh needs while no controller runs
//! to say so. It decides nothing: of two groups the members themselves know which one is over
//! ([`smc_raft::Replaced`]). The record of the founding does: without it a replica that loses its disk founds
//! another mesh. Where it was lost with the namespace, and the group restored from a backup, the leader makes
//! it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::Ledger;
use smc_raft::{Group, GroupStatus, ReplicatedLedger};
use smc_types::causes::causes;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::founding::{self, RECORD};
use super::{ApiError, OwnObjects};

/// The name of the record.
pub(crate) const GROUP_RECORD: &str = "smc-group";

/// The field with the ids of the key-encryption keys, separated by spaces.
pub(crate) const KEYS: &str = "keyEncryptionKeys";

/// The time between two looks at what the record has to say. The look costs the API server nothing.
const LOOK: Duration = Duration::from_secs(1);

/// How often the leader reads a record that does not change: a person may have changed or deleted it.
const REPEAT: Duration = Duration::from_mins(10);

/// The upkeep by one replica.
pub struct GroupRecord {
    /// The namespace of the record.
    pub objects: OwnObjects,
    /// The group.
    pub group: Arc<Group>,
}

impl GroupRecord {
    /// Keeps the record up while this replica leads, until `stopping`.
    pub async fn run(self, stopping: CancellationToken) {
        let mut written = None;
        let mut refused = false;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = sleep(LOOK) => {}
            }
            let Some(record) = self.group.local().read(|ledger| record(&self.group.status(), ledger)) else {
                written = None;
                continue;
            };
            let stands = |(before, at): &(_, Instant)| *before == record && at.elapsed() < REPEAT;
            if written.as_ref().is_some_and(stands) {
                continue;
            }
            match self.keep(&record).await {
                Ok(()) => {
                    refused = false;
                    written = Some((record, Instant::now()));
                }
                Err(error) if !refused => {
                    warn!(error = %causes(&error), "cannot record the group; will retry");
                    refused = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Writes the record unless it is there as it should be, and that of the founding unless there is one.
    async fn keep(&self, record: &BTreeMap<String, String>) -> Result<(), ApiError> {
        if self.objects.config_map(RECORD).await?.is_none() {
            let key = record.get(KEYS).map(String::as_str).unwrap_or_default();
            self.objects.create_once(RECORD, founding::before(key)).await?;
        }
        if self.objects.config_map(GROUP_RECORD).await?.as_ref() == Some(record) {
            return Ok(());
        }
        self.objects.keep_config_map(GROUP_RECORD, record.clone()).await
    }
}

/// What the record says, if this replica leads a group that has a mesh's keys.
fn record(status: &GroupStatus, ledger: &Ledger) -> Option<BTreeMap<String, String>> {
    let group = status.group.filter(|_| status.leads())?;
    let keys: BTreeSet<_> = ledger.keys().map(|(_, _, key)| key.encryption_key.as_str()).collect();
    let voters = status.members.iter().filter(|member| member.voter).map(|member| member.id.to_string());
    (!keys.is_empty()).then(|| {
        BTreeMap::from([
            ("group".to_owned(), group.to_string()),
            ("voters".to_owned(), voters.collect::<Vec<_>>().join(" ")),
            (KEYS.to_owned(), keys.into_iter().collect::<Vec<_>>().join(" ")),
        ])
    })
}
