//! The phases of replicas in the ledger.
//!
//! Owns when a replica comes to a phase, and the epoch, which grows with each change.

use std::sync::Arc;

use smc_types::ids::ReplicaId;

use super::bounds::MAX_REPLICAS;
use super::command::{ForgetReplica, SetReplicaPhase};
use super::outcome::{Outcome, Rejection, Reply};
use super::placement::{Placement, ReplicaPhase, ReplicaRecord};
use super::state::Ledger;

/// Whether this process, or the first one of a replica without a record, may come to `phase`:
/// `Ok(false)` if it is there already. A new process of a replica begins by joining.
fn check(
    record: Option<&ReplicaRecord>,
    replica: ReplicaId,
    run: u64,
    phase: ReplicaPhase,
) -> Result<bool, Rejection> {
    match record {
        Some(record) if record.run == run && record.phase == phase => Ok(false),
        Some(record) if record.run == run && record.phase.may_become(phase) => Ok(true),
        Some(record) if record.run == run => {
            Err(Rejection::IllegalPhase { replica, from: Some(record.phase), to: phase })
        }
        _ if phase == ReplicaPhase::Joining => Ok(true),
        Some(_) => Err(Rejection::StaleRun(replica)),
        None => Err(Rejection::IllegalPhase { replica, from: None, to: phase }),
    }
}

impl Ledger {
    /// The replicas with their phases. Cheap: the value is shared until the next change.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    pub(super) fn set_replica_phase(&mut self, command: &SetReplicaPhase) -> Outcome {
        let SetReplicaPhase { replica, run, phase } = *command;
        let replica = ReplicaId(replica);
        let placement = &self.placement;
        if !check(placement.replicas.get(&replica), replica, run, phase)? {
            return Ok(Reply::PlacementUnchanged);
        }
        if placement.replicas.len() >= MAX_REPLICAS && !placement.replicas.contains_key(&replica) {
            return Err(Rejection::Full { what: "replicas", max: MAX_REPLICAS });
        }
        let since = self.now();
        let placement = Arc::make_mut(&mut self.placement);
        placement.replicas.insert(replica, ReplicaRecord { phase, run, since });
        placement.epoch += 1;
        Ok(Reply::PlacementChanged)
    }

    pub(super) fn forget_replica(&mut self, command: &ForgetReplica) -> Outcome {
        let ForgetReplica { replica, run } = *command;
        let replica = ReplicaId(replica);
        match self.placement.replicas.get(&replica) {
            None => Ok(Reply::PlacementUnchanged),
            Some(record) if record.run != run => Err(Rejection::StaleRun(replica)),
            Some(_) => {
                let placement = Arc::make_mut(&mut self.placement);
                placement.replicas.remove(&replica);
                placement.epoch += 1;
                Ok(Reply::PlacementChanged)
            }
        }
    }
}
