//! What a replica is configured with, and openraft's configuration, which follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use smc_host::env::Clock;
use smc_host::network::{Listener, Network};
use smc_types::ids::ReplicaId;

use super::error::GroupError;
use super::founding::FoundingRegister;
use crate::timing::Timing;
use crate::transport::tls::GroupSecret;

/// Log entries kept although a snapshot includes them, so that a follower that was away briefly needs no
/// snapshot.
const KEPT_ENTRIES: u64 = 500;

/// What a replica is configured with. [`Settings::new`] gives a group of one; the fields change that.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which replica this is.
    pub replica: ReplicaId,
    /// `HOST:PORT` where the other replicas reach it.
    pub address: String,
    /// The replicas that found the group together, with their addresses; a later replica asks them to be
    /// added.
    pub initial_members: BTreeMap<ReplicaId, String>,
    /// Further replicas that may belong to the group, with their addresses: a replica without a group asks
    /// them as well. They take no part in founding, and need not exist.
    pub possible_members: BTreeMap<ReplicaId, String>,
    /// Where it is noted that there has been an authority, if so: this replica founds no group then.
    pub founded_before: Option<String>,
    /// A record outside the replicas' disks of the founding; this replica founds a group only with its leave.
    pub founding: Option<Arc<dyn FoundingRegister>>,
    /// Heartbeats and election timeouts.
    pub timing: Timing,
    /// The secret that only replicas of this mesh have.
    pub secret: GroupSecret,
    /// Other secrets that this replica accepts from its peers, while one secret replaces another.
    pub other_secrets: Vec<GroupSecret>,
}

impl Settings {
    /// A replica at `address` that is the only initial member, with the default timing and no other secrets.
    pub fn new(replica: ReplicaId, address: String, secret: GroupSecret) -> Self {
        Self {
            initial_members: BTreeMap::from([(replica, address.clone())]),
            replica,
            address,
            possible_members: BTreeMap::new(),
            founded_before: None,
            founding: None,
            timing: Timing::default(),
            secret,
            other_secrets: Vec::new(),
        }
    }
}

/// How a replica and its peers reach each other.
pub struct Connections {
    /// Makes connections.
    pub network: Arc<dyn Network>,
    /// Accepts connections; `None` for a replica that will always be alone.
    pub listener: Option<Box<dyn Listener>>,
    /// The clock that this replica tells its peers, and compares with theirs.
    pub clock: Arc<dyn Clock>,
}

/// openraft's configuration.
pub(super) fn config(timing: &Timing) -> Result<Config, GroupError> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "smc".to_owned(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election.0),
        election_timeout_max: millis(timing.election.1),
        // A replica that returns from a partition must not depose a healthy leader.
        enable_pre_vote: Some(true),
        // `ticking` allows elections once this replica's disk is that of a voter.
        enable_elect: false,
        // A leader sends entries before it has synced them itself. If it loses power and then leads on in
        // the same term, it gives their log positions to other entries, and followers take the two for the
        // same.
        enable_leader_restore: Some(false),
        // `housekeeping` takes snapshots by the length of the log instead.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        // A dead peer is retried soon: it may be restarting.
        backoff: "20ms 40ms 80ms ..500ms".parse().map_err(|error| GroupError::Raft(format!("{error}")))?,
        ..Config::default()
    };
    config.validate().map_err(|error| GroupError::Raft(error.to_string()))
}
