//! The record of the group in Kubernetes: the ConfigMap `smc-group`.
//!
//! Owns its content, its upkeep by the leader, and the look at it before a replica serves. What was true at
//! the founding does not stay so: a restore or a recovery makes another group, and another key-encryption key
//! takes the place of the first. A person, `smc check` and the init container read here which key the mesh
//! needs while no controller runs to say so. Of two groups the members themselves know which one is over
//! ([`smc_raft::Replaced`]). How far the group was, only the record knows where all disks were put back
//! ([`OlderDisks`]). The record of the founding decides as well: without it a replica that loses its disk
//! founds another mesh. Where it was lost with the namespace, and the group restored from a backup, the
//! leader makes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::Ledger;
use smc_raft::{Group, GroupStatus, ProposeError, ReplicatedLedger};
use smc_types::causes::causes;
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::founding::{self, RECORD};
use super::older_disks::{GROUP, OlderDisks, Position, older_disks};
use super::{ApiError, OwnObjects};

/// The name of the record.
pub(crate) const GROUP_RECORD: &str = "smc-group";

/// The field with the ids of the key-encryption keys, separated by spaces.
pub(crate) const KEYS: &str = "keyEncryptionKeys";

/// The time between two looks at what the record has to say. The look costs the API server nothing.
const LOOK: Duration = Duration::from_secs(1);

/// How often the leader reads a record that does not change: a person may have changed or deleted it. How far
/// the group is goes into the record then, and not with each entry, which would cost the API server a write
/// each.
const REPEAT: Duration = Duration::from_mins(10);

/// The time between two looks of a replica that waits for a person.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// How long a start waits for the record. A replica serves what it knows while the API server is away; the
/// leader looks again before it writes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The upkeep by one replica.
#[derive(Clone)]
pub struct GroupRecord {
    /// The namespace of the record.
    pub objects: OwnObjects,
    /// The group.
    pub group: Arc<Group>,
}

/// The record is not as it should be, and is not written.
#[derive(Debug, Error)]
enum KeepError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the group lost its leader meanwhile")]
    NotCaughtUp(#[from] ProposeError),
    #[error(transparent)]
    OlderDisks(#[from] OlderDisks),
}

impl GroupRecord {
    /// Waits until nothing on record forbids that this replica serves. `say` is called with what it waits
    /// for. Cancel-safe.
    pub async fn allows(&self, say: impl Fn(&OlderDisks)) {
        allows(async || self.older_disks().await, say).await;
    }

    /// Keeps the record up while this replica leads, until `stopping`.
    ///
    /// # Errors
    ///
    /// The disks turn out to be older than the record, which could not be read at the start. The next start
    /// waits for a person.
    pub async fn run(self, stopping: CancellationToken) -> Result<(), OlderDisks> {
        let mut written = None;
        let mut refused = false;
        // A record that says more later was not written by a member.
        let mut judged = false;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return Ok(()),
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
            match self.keep(&record, judged).await {
                Ok(()) => {
                    (refused, judged) = (false, true);
                    written = Some((record, Instant::now()));
                }
                Err(KeepError::OlderDisks(older)) => return Err(older),
                Err(error) if !refused => {
                    warn!(error = %causes(&error), "cannot record the group; will retry");
                    refused = true;
                }
                Err(_) => {}
            }
        }
    }

    /// What the record says against the disks of the group.
    async fn older_disks(&self) -> Result<Option<OlderDisks>, KeepError> {
        let record = self.objects.config_map(GROUP_RECORD).await?.unwrap_or_default();
        // After the record: what was committed when it was written is applied here.
        self.group.barrier().await?;
        Ok(older_disks(&record, &self.group.status()))
    }

    /// Writes the record unless it is there as it should be, and that of the founding unless there is one.
    /// Unless it was `judged` before, a record that is further than the group stays as it is.
    async fn keep(&self, record: &BTreeMap<String, String>, judged: bool) -> Result<(), KeepError> {
        if self.objects.config_map(RECORD).await?.is_none() {
            let key = record.get(KEYS).map(String::as_str).unwrap_or_default();
            self.objects.create_once(RECORD, founding::before(key)).await?;
        }
        let kept = self.objects.config_map(GROUP_RECORD).await?;
        self.group.barrier().await?;
        let status = self.group.status();
        if !judged && let Some(older) = kept.as_ref().and_then(|kept| older_disks(kept, &status)) {
            return Err(older.into());
        }
        let record: BTreeMap<_, _> =
            record.clone().into_iter().chain(Position::of(&status).fields()).collect();
        if kept.as_ref() == Some(&record) {
            return Ok(());
        }
        Ok(self.objects.keep_config_map(GROUP_RECORD, record).await?)
    }
}

/// Waits until `look` finds nothing. An API server that does not answer is asked again for [`PATIENCE`], a
/// group that has lost its leader for as long as that takes.
async fn allows<O: PartialEq>(look: impl AsyncFn() -> Result<Option<O>, KeepError>, say: impl Fn(&O)) {
    let patience = Instant::now() + PATIENCE;
    let mut said = None;
    loop {
        match look().await {
            Ok(None) => return,
            Ok(found) => {
                if found != said {
                    found.iter().for_each(&say);
                    said = found;
                }
            }
            // What was found stands.
            Err(_) if said.is_some() => {}
            Err(error @ KeepError::Api(_)) if Instant::now() >= patience => {
                warn!(error = %causes(&error), "cannot read how far the group was; it goes on with its disks as they are");
                return;
            }
            Err(_) => {}
        }
        sleep(ASK_AGAIN).await;
    }
}

/// What the record says beside how far the group is, if this replica leads a group that has a mesh's keys.
fn record(status: &GroupStatus, ledger: &Ledger) -> Option<BTreeMap<String, String>> {
    let group = status.group.filter(|_| status.leads())?;
    let keys: BTreeSet<_> = ledger.keys().map(|(_, _, key)| key.encryption_key.as_str()).collect();
    let voters = status.members.iter().filter(|member| member.voter).map(|member| member.id.to_string());
    (!keys.is_empty()).then(|| {
        BTreeMap::from([
            (GROUP.to_owned(), group.to_string()),
            ("voters".to_owned(), voters.collect::<Vec<_>>().join(" ")),
            (KEYS.to_owned(), keys.into_iter().collect::<Vec<_>>().join(" ")),
        ])
    })
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// After how many looks a replica serves that finds these, and the last of them for ever, and what it
    /// says.
    async fn served_after(looks: &[Result<Option<u8>, ()>]) -> (usize, Vec<u8>) {
        let (count, said) = (Cell::new(0), RefCell::new(Vec::new()));
        let look = async || {
            let at = count.get();
            count.set(at + 1);
            let found = looks.get(at).or(looks.last()).copied();
            let away = || ApiError::Timeout { action: "read the record".to_owned() };
            found.unwrap_or(Ok(None)).map_err(|()| away().into())
        };
        let limit = Duration::from_hours(1);
        let served = tokio::time::timeout(limit, allows(look, |what| said.borrow_mut().push(*what))).await;
        (served.map_or(usize::MAX, |()| count.get()), said.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_with_older_disks_waits_for_a_person() {
        let older = Ok(Some(1));
        for (sentence, looks, after, said) in [
            ("nothing is wrong", vec![Ok(None)], 1, vec![]),
            ("no person confirms it", vec![older], usize::MAX, vec![1]),
            ("a person confirms it", vec![older, older, Ok(None)], 3, vec![1]),
            ("the group went further meanwhile", vec![older, Ok(Some(2)), Ok(None)], 3, vec![1, 2]),
            ("the API server is away for a moment", vec![Err(()), Ok(None)], 2, vec![]),
            ("it answers late", vec![Err(()), older, Ok(None)], 3, vec![1]),
            ("it stays away", vec![Err(())], 6, vec![]),
            ("it goes away afterwards", vec![older, Err(())], usize::MAX, vec![1]),
        ] {
            assert_eq!(served_after(&looks).await, (after, said), "{sentence}");
        }
    }
}
