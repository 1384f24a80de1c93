//! One replica of a group: its parts, how they are wired and stopped.
//!
//! ```text
//! propose → proposer (batches, numbers, retries) ─┬→ openraft here, if this replica leads
//!                                                 └→ the leader, over the network
//! openraft → log (synced) → quorum → state machine → SharedLedger, and whoever waits here
//! ```
//!
//! Owns every task. [`Group::stop`] ends them in order; a task that fails shows in [`Group::failure`].

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Config, ReadPolicy, SnapshotPolicy};
use smc_mesh::ledger::{Command, Ledger};
use smc_proto::raft::v1 as pb;
use thiserror::Error;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::backup::{self, Backup, BackupError};
use crate::barrier::SharedBarrier;
use crate::contact::Contact;
use crate::disk::{Disk, Failure};
use crate::error::StorageError;
use crate::forming::Forming;
use crate::housekeeping::housekeeping;
use crate::identity::{GroupId, Identity};
use crate::log::LogStore;
use crate::machine::StateMachine;
use crate::membership::{self, ChangeError};
use crate::peers::{BackOff, Leader, Peers};
use crate::proposer::{Means, Proposal, Proposer};
use crate::replicated::{Outcome, Pending, ProposeError, ReplicatedLedger};
use crate::runtime::{Draw, Runtime};
use crate::shared::{ShardEpoch, SharedLedger};
use crate::storage::Storage;
use crate::transport::client::{ANSWER, CHANGE_PATIENCE, CallError, Dialer};
use crate::transport::server::{self, Service};
use crate::transport::tls::{GroupSecret, ReplicaTls, TlsError};
use crate::transport::{Listener, Network};
use crate::types::{Replica, ReplicaId, TypeConfig};
use crate::waiters::Waiters;

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// The most commands in one proposal.
pub const MAX_COMMANDS: usize = 256;

/// The most bytes that the commands of one proposal may take in the log.
pub const MAX_PROPOSAL_BYTES: usize = 1024 * 1024;

/// Proposals that wait. Together with [`MAX_PROPOSAL_BYTES`] it bounds the memory of the queue to 256 MiB; in
/// practice a proposal is one command of 3 KiB. Who finds the queue full waits.
const QUEUE: usize = 256;

/// Entries kept that a snapshot includes, so that a follower that was away for a moment needs no snapshot.
const KEPT_ENTRIES: u64 = 500;

/// How long a read waits for a leader and its word: several elections.
const BARRIER_PATIENCE: Duration = Duration::from_secs(10);

/// How long everything may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Raft's clock. One network: round trips of a millisecond or less, and syncs of tens at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How often a leader says that it is there.
    pub heartbeat: Duration,
    /// After how long a silence an election begins: at random between the two, and no vote is given before the
    /// longer has passed. So a leader's death is noticed after the longer, and a new one leads at twice that at most.
    pub election: (Duration, Duration),
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            election: (Duration::from_millis(200), Duration::from_millis(400)),
        }
    }
}

/// What a replica is configured with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which replica this is.
    pub replica: ReplicaId,
    /// `HOST:PORT` where the others reach it.
    pub address: String,
    /// The replicas that found the group together, and where they are; a newcomer asks them to be added. A group of
    /// one has this replica alone.
    pub founders: BTreeMap<ReplicaId, String>,
    /// Where it is noted that there has been an authority, if there has: this replica founds no group then.
    pub founded_before: Option<String>,
    /// See there.
    pub timing: Timing,
    /// What only replicas of this mesh know.
    pub secret: GroupSecret,
    /// Other secrets of which one is enough for another replica to be believed, while one takes the place of another.
    pub other_secrets: Vec<GroupSecret>,
}

/// How a replica reaches the others, and they it.
pub struct Connections {
    /// Makes connections.
    pub network: Arc<dyn Network>,
    /// Takes them; a replica that will always be alone needs none.
    pub listener: Option<Box<dyn Listener>>,
}

/// Why a replica did not start.
#[derive(Debug, Error)]
pub enum GroupError {
    /// Its storage cannot be used.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// It has no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Raft did not start.
    #[error("Raft did not start: {0}")]
    Raft(String),
}

/// Why the group was not changed.
#[derive(Debug, Clone, Error)]
pub enum MembershipError {
    /// Trying again will not help.
    #[error("{0}")]
    Refused(String),
    /// It may help, once there is a leader that can be reached.
    #[error("{0}")]
    Failed(String),
}

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which replica.
    pub id: ReplicaId,
    /// Where it is.
    pub address: String,
    /// Whether it votes, or learns only.
    pub voter: bool,
    /// The last entry that the leader knows it to have; `None` if this replica does not lead, or has not heard.
    pub matched: Option<u64>,
}

/// The group as one replica sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// This replica.
    pub replica: ReplicaId,
    /// The group; `None` as long as there is none.
    pub group: Option<GroupId>,
    /// Who leads.
    pub leader: Option<ReplicaId>,
    /// The term.
    pub term: u64,
    /// The last entry of the log here.
    pub last: u64,
    /// The last one that was applied here.
    pub applied: u64,
    /// The last one that the snapshot includes.
    pub snapshot: u64,
    /// Which division of the proxies among the replicas holds: the number of the entry that made the group what it is.
    /// The same on every replica of the group that has applied as much; grows with every change of its members. Another
    /// group, as after a backup was restored, counts anew.
    pub shard_epoch: u64,
    /// Everybody, sorted by id.
    pub members: Vec<Member>,
}

/// See the module.
pub struct Group {
    pub(crate) raft: Raft,
    identity: Identity,
    shared: SharedLedger,
    epoch: ShardEpoch,
    secret: GroupSecret,
    draw: Draw,
    peers: Peers,
    barrier: SharedBarrier<Result<(), ProposeError>>,
    queue: mpsc::Sender<Proposal>,
    disk: Disk,
    stopping: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Group {
    /// Starts a replica. It returns as soon as what is on the disk is taken up; see [`Group::ready`]. `draw` gives
    /// random numbers.
    pub async fn start(
        settings: Settings,
        storage: Storage,
        connections: Connections,
        draw: Draw,
    ) -> Result<Self, GroupError> {
        let Settings { replica, address, founders, founded_before, timing, secret, other_secrets } = settings;
        let disk = storage.open(Some(replica)).await.map_err(GroupError::Storage)?;
        let failed = |error: io::Error| match &*disk.failure().borrow() {
            Some(cause) => GroupError::Storage(Arc::clone(cause)),
            None => GroupError::Raft(error.to_string()),
        };
        let identity = Identity::open(disk.clone(), replica, || draw()).await.map_err(failed)?;
        let shared = SharedLedger::default();
        let waiters = Waiters::default();
        let (ledger, waiting) = (shared.clone(), waiters.clone());
        let opening = disk.run(move |disk| {
            let machine = StateMachine::open(disk.clone(), ledger, waiting)?;
            machine.snapshots().sweep()?;
            Ok(machine)
        });
        let machine = opening.await.map_err(failed)?;
        let (snapshots, grown, epoch) = (machine.snapshots(), machine.grown(), machine.epoch());
        let (log, flusher) = LogStore::new(disk.clone());
        let tls = ReplicaTls::new(&secret, &other_secrets, replica)?;
        let contact = Contact::new(timing);
        let dialer = Dialer {
            network: connections.network,
            tls: tls.clone(),
            identity: identity.clone(),
            contact: contact.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(flusher.run());
        let config = Arc::new(config(&timing)?);
        let starting = Raft::new(replica, config, dialer.clone(), log, machine);
        let raft = Runtime::drawing(Arc::clone(&draw), starting).await;
        let raft = raft.map_err(|error| failed(io::Error::other(error.to_string())))?;
        contact.follow(raft.metrics());
        let peers = Peers::new(raft.clone(), dialer);

        let stopping = CancellationToken::new();
        if let Some(listener) = connections.listener {
            let service = Service {
                raft: raft.clone(),
                identity: identity.clone(),
                snapshots,
                receiving: Arc::default(),
            };
            let serving = server::serve(service, listener, tls, stopping.clone());
            let disk = disk.clone();
            tasks.spawn(async move {
                if let Err(error) = serving.await {
                    disk.fail(StorageError::damaged(format!(
                        "the Raft port is not served any more: {error}"
                    )));
                }
            });
        }
        let (queue, proposals) = mpsc::channel(QUEUE);
        let means = Means { raft: raft.clone(), peers: peers.clone(), waiters, draw: Arc::clone(&draw) };
        tasks.spawn(Proposer::new(means, proposals).run(stopping.clone()));
        let keeping = housekeeping(raft.clone(), grown, Arc::clone(&draw));
        tasks.spawn(until(stopping.clone(), keeping));
        tasks.spawn(until(stopping.clone(), watch_over(raft.clone(), disk.clone())));
        let forming = Forming {
            raft: raft.clone(),
            identity: identity.clone(),
            peers: peers.clone(),
            address,
            founders,
            founded_before,
            draw: Arc::clone(&draw),
        };
        tasks.spawn(until(stopping.clone(), forming.run()));
        let (barrier, tasks) = (SharedBarrier::new(), Mutex::new(tasks));
        Ok(Self { raft, identity, shared, epoch, secret, draw, peers, barrier, queue, disk, stopping, tasks })
    }

    /// Starts a replica that is alone and stays so, and waits until it is ready: for tests, and tools that look at a
    /// directory. Nobody can connect to it.
    pub async fn alone(replica: ReplicaId, storage: Storage, draw: Draw) -> Result<Self, GroupError> {
        let address = "localhost:0".to_owned();
        let settings = Settings {
            replica,
            address: address.clone(),
            founders: BTreeMap::from([(replica, address)]),
            founded_before: None,
            timing: Timing::default(),
            // Of no use to anybody: there is no listener.
            secret: GroupSecret::new(zeroize::Zeroizing::new([0; 32])),
            other_secrets: Vec::new(),
        };
        let connections = Connections { network: Arc::new(crate::transport::Tcp), listener: None };
        let group = Self::start(settings, storage, connections, draw).await?;
        group.ready().await.map_err(|error| GroupError::Raft(error.to_string()))?;
        Ok(group)
    }

    /// Waits until the replica belongs to a group that has a leader, and has caught up with it. Fails if its storage
    /// does.
    pub async fn ready(&self) -> Result<(), ProposeError> {
        let mut failure = self.failure();
        let waiting = async {
            while self.barrier().await.is_err() {
                let why =
                    if self.identity.group().is_some() { "a leader" } else { "the group to be founded" };
                info!(replica = %self.identity.replica, "waiting for {why}");
            }
        };
        tokio::select! {
            () = waiting => Ok(()),
            _ = failure.wait_for(Option::is_some) => Err(self.stopped()),
        }
    }

    /// Becomes `Some` when the storage fails. Nothing is taken any more then, and the replica should stop.
    pub fn failure(&self) -> Failure {
        self.disk.failure()
    }

    /// Waits until this replica knows of a leader that is not `known`. Never ends if the replica stops before.
    pub async fn another_leader(&self, known: Option<ReplicaId>) {
        self.peers.another_leader(known).await;
    }

    /// The group as this replica sees it.
    pub fn status(&self) -> GroupStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let matched = |id: &ReplicaId| Some(metrics.replication.as_ref()?.get(id)?.as_ref()?.index);
        let member = |(id, replica): (&ReplicaId, &Replica)| Member {
            id: *id,
            address: replica.address.clone(),
            voter: membership.voter_ids().any(|voter| voter == *id),
            matched: matched(id),
        };
        GroupStatus {
            replica: self.identity.replica,
            group: self.identity.group(),
            leader: metrics.current_leader,
            term: metrics.current_term,
            last: metrics.last_log_index.unwrap_or_default(),
            applied: metrics.last_applied.map_or(0, |id| id.index),
            snapshot: metrics.snapshot.map_or(0, |id| id.index),
            shard_epoch: self.epoch.now(),
            members: membership.nodes().map(member).collect(),
        }
    }

    /// Adds a replica that runs at `address`, waits until it has caught up, and lets it vote. If it is a member that
    /// lost its disk, it is removed first.
    pub async fn add(&self, id: ReplicaId, address: String) -> Result<(), MembershipError> {
        let unknown = Replica { address: address.clone(), incarnation: 0 };
        let said = self.peers.at(id, unknown).describe(ANSWER).await;
        let said = said.map_err(|error| {
            MembershipError::Failed(format!("replica {id} at {address} does not answer: {error}"))
        })?;
        let incarnation = said.identity.map_or(0, |identity| identity.incarnation);
        let replica = pb::Replica { id: id.0, address, incarnation };
        self.change(pb::change_membership_request::Change::Add(replica)).await
    }

    /// Removes a replica. It may be gone for good, as long as a quorum is left.
    pub async fn remove(&self, id: ReplicaId) -> Result<(), MembershipError> {
        self.change(pb::change_membership_request::Change::Remove(id.0)).await
    }

    /// Hands leadership to a replica.
    pub async fn transfer(&self, to: ReplicaId) -> Result<(), MembershipError> {
        self.change(pb::change_membership_request::Change::TransferTo(to.0)).await
    }

    /// Writes a snapshot soon, and drops the log that it includes.
    pub async fn snapshot(&self) -> Result<(), MembershipError> {
        let snapshot = self.raft.trigger().snapshot().await;
        snapshot.map_err(|error| MembershipError::Failed(error.to_string()))
    }

    /// Writes a backup of everything that any replica acknowledged before this call. `sink` may block: it is written to
    /// on a thread of its own.
    pub async fn backup(&self, sink: impl io::Write + Send + 'static) -> Result<(), BackupError> {
        self.barrier().await?;
        let backup = Backup { group: self.identity.group(), ledger: self.shared.read(Ledger::clone) };
        let mut salt = [0; 32];
        salt.chunks_exact_mut(8).for_each(|octets| octets.copy_from_slice(&(self.draw)().to_be_bytes()));
        let secret = self.secret.clone();
        let written = tokio::task::spawn_blocking(move || backup::write(&backup, &secret, salt, sink)).await;
        Ok(written.map_err(io::Error::other)??)
    }

    async fn change(&self, change: pb::change_membership_request::Change) -> Result<(), MembershipError> {
        match self.peers.leader() {
            Leader::Me => membership::change(&self.raft, change).await.map_err(|error| match error {
                ChangeError::Refused(why) => MembershipError::Refused(why),
                error => MembershipError::Failed(error.to_string()),
            }),
            Leader::Other(leader) => {
                leader.change_membership(change, CHANGE_PATIENCE).await.map_err(|error| match error {
                    CallError::Refused(why) => MembershipError::Refused(why),
                    error => MembershipError::Failed(error.to_string()),
                })
            }
            Leader::Nobody => Err(MembershipError::Failed("the group has no leader".to_owned())),
        }
    }

    /// Stops all tasks and closes the files. What was proposed and not answered is unknown.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let stopped = timeout(STOP_PATIENCE, async {
            if let Err(error) = self.raft.shutdown().await {
                error!(%error, "Raft's task panicked");
            }
            let mut tasks = self.tasks.lock().await;
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    error!(%error, "a task of the ledger panicked");
                }
            }
        });
        if stopped.await.is_err() {
            // The flusher ends with the last log store, which openraft drops when it has stopped.
            warn!("the ledger did not stop in time; aborting what is left");
            self.tasks.lock().await.shutdown().await;
        }
    }

    fn stopped(&self) -> ProposeError {
        match &*self.disk.failure().borrow() {
            Some(error) => ProposeError::Failed(Arc::clone(error)),
            None => ProposeError::Closed,
        }
    }

    /// Tries [`Self::read_index`] until it succeeds, for as long as is sensible.
    async fn caught_up(&self) -> Result<(), ProposeError> {
        let deadline = Instant::now() + BARRIER_PATIENCE;
        let mut back_off = BackOff::default();
        loop {
            if self.disk.failure().borrow().is_some() {
                return Err(self.stopped());
            }
            let leader = self.peers.leader_id();
            match self.peers.while_leading(leader, self.read_index()).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(ProposeError::Unavailable(error.to_string()));
                }
                Err(_) => back_off.wait(&self.peers, leader).await,
            }
        }
    }

    async fn read_index(&self) -> Result<(), CallError> {
        match self.peers.leader() {
            Leader::Me => {
                let read = timeout(ANSWER, self.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await;
                let read = read.map_err(|_| CallError::Timeout(ANSWER))?;
                read.map(drop).map_err(|error| CallError::Failed(error.to_string()))
            }
            Leader::Other(leader) => {
                let index = leader.read_index(ANSWER).await?;
                let wait = self.raft.wait(Some(BARRIER_PATIENCE));
                let applied = wait.applied_index_at_least(Some(index), "a read").await;
                applied.map(drop).map_err(|error| CallError::Failed(error.to_string()))
            }
            Leader::Nobody => Err(CallError::NotLeader),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Who did not call `stop` does not want to wait; the tasks end all the same.
        self.stopping.cancel();
    }
}

impl ReplicatedLedger for Group {
    fn propose(&self, commands: Vec<Command>) -> Pending<'_, Result<Vec<Outcome>, ProposeError>> {
        Box::pin(async move {
            let commands: Vec<Bytes> = commands
                .iter()
                .map(|command| serde_json::to_vec(command).map(Bytes::from))
                .collect::<Result<_, _>>()
                .map_err(|error| ProposeError::Unencodable(error.to_string()))?;
            let bytes = commands.iter().map(Bytes::len).sum();
            if commands.len() > MAX_COMMANDS || bytes > MAX_PROPOSAL_BYTES {
                return Err(ProposeError::TooLarge {
                    commands: commands.len(),
                    bytes,
                    max_commands: MAX_COMMANDS,
                    max_bytes: MAX_PROPOSAL_BYTES,
                });
            }
            let mut failure = self.failure();
            let (reply, outcomes) = oneshot::channel();
            let proposing = async {
                let proposal = Proposal { commands, bytes, reply };
                self.queue.send(proposal).await.map_err(|_| self.stopped())?;
                outcomes.await.map_err(|_| self.stopped())?
            };
            tokio::select! {
                biased;
                proposed = proposing => proposed,
                _ = failure.wait_for(Option::is_some) => Err(self.stopped()),
            }
        })
    }

    fn barrier(&self) -> Pending<'_, Result<(), ProposeError>> {
        Box::pin(self.barrier.pass(self.caught_up()))
    }

    fn local(&self) -> &SharedLedger {
        &self.shared
    }
}

fn config(timing: &Timing) -> Result<Config, GroupError> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "smc".to_owned(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election.0),
        election_timeout_max: millis(timing.election.1),
        // A replica that comes back from a partition must not depose a healthy leader.
        enable_pre_vote: Some(true),
        // A leader sends entries before it has synced them itself. If it loses its power, and leads on in the same term, it
        // gives their places in the log to others, and who holds the first ones takes the two for the same.
        enable_leader_restore: Some(false),
        // By length instead, see `housekeeping`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        // A dead peer is tried again soon: it may be restarting.
        backoff: "20ms 40ms 80ms ..500ms".parse().map_err(|error| GroupError::Raft(format!("{error}")))?,
        ..Config::default()
    };
    config.validate().map_err(|error| GroupError::Raft(error.to_string()))
}

async fn until(stopping: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stopping.cancelled() => {}
        () = work => {}
    }
}

/// Makes it a failure of the storage if Raft ends by itself: the replica would look alive and take nothing.
async fn watch_over(raft: Raft, disk: Disk) {
    let mut metrics = raft.metrics();
    let why = loop {
        if let Err(error) = &metrics.borrow_watched().running_state {
            break error.to_string();
        }
        if metrics.changed().await.is_err() {
            break "its task is gone".to_owned();
        }
    };
    // If it was the storage, that failure came first and stands.
    disk.fail(StorageError::damaged(format!("Raft has stopped: {why}")));
}
