//! One simulated host that runs a controller replica.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smc::admin::Administration;
use smc::ca::seal::{KeyEncryption, LocalKey};
use smc::config::{ANSWER_LIMIT, Config, IDLE_LIMIT, RELEASE_GRACE};
use smc::env::Env;
use smc::env::fixed::SeededEntropy;
use smc::server::{Server, Storage};
use smc_mesh::bootstrap::{ControllerAddress, Host};
use smc_mesh::ids::TrustDomain;
use smc_mesh::ledger::Ledger;
use smc_mesh::smi::MeshNamespace;
use smc_proto::admin::v1::{BootstrapRequest, BootstrapResponse};
use smc_raft::{Connections, Group, GroupStatus, MemoryDisk, ReplicaId, ReplicatedLedger, Settings, Timing};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::clock::SimulatedClock;
use crate::mesh::DeclaredMesh;
use crate::network::SimulatedNetwork;
use crate::trace::Trace;

/// Where proxies connect to.
const XDS_PORT: u16 = 15128;

/// Where other replicas connect to.
const RAFT_PORT: u16 = 15129;

/// How often a replica's view of its group is looked at, for the trace.
const LOOK: Duration = Duration::from_millis(2);

/// Requests of the operator that wait for one replica.
const ORDERS: usize = 16;

/// A replica. Clones are the same one; what it keeps on its disk outlives its restarts.
#[derive(Clone)]
pub struct Replica(Arc<Parts>);

struct Parts {
    id: u64,
    replicas: u64,
    seed: u64,
    starts: AtomicU64,
    disk: MemoryDisk,
    /// Of the key-encryption key and the note beside it: these are files. They are read and written at the start.
    directory: TempDir,
    mesh: watch::Receiver<String>,
    trace: Trace,
    running: Mutex<Option<Running>>,
}

/// A replica that serves.
#[derive(Clone)]
struct Running {
    group: Arc<Group>,
    orders: mpsc::Sender<Order>,
}

/// What an operator has a replica do, on its own host.
struct Order {
    pod: String,
    answer: oneshot::Sender<Result<BootstrapResponse, Status>>,
}

/// The name of a replica's host.
pub fn host(id: u64) -> String {
    format!("replica-{id}")
}

impl Replica {
    /// The replica `id` of so many, which found a group together; it serves the mesh that is declared in `mesh`.
    ///
    /// # Panics
    ///
    /// If there is no place for temporary files.
    pub fn new(id: u64, replicas: u64, seed: u64, mesh: watch::Receiver<String>, trace: Trace) -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let kek = directory.path().join("kek");
        let octets: Vec<u8> = seed.to_be_bytes().into_iter().cycle().take(32).collect();
        std::fs::write(&kek, octets).unwrap();
        std::fs::set_permissions(&kek, std::fs::Permissions::from_mode(0o600)).unwrap();
        let dice = SeededEntropy::new(seed.wrapping_add(id));
        // Long enough for power to be lost during a sync.
        let disk = MemoryDisk::with_latency(move || Duration::from_millis(1 + dice.draw() % 6));
        let (starts, running) = (AtomicU64::new(0), Mutex::new(None));
        Self(Arc::new(Parts { id, replicas, seed, starts, disk, directory, mesh, trace, running }))
    }

    /// The software of the replica's host. Ends when the replica does, which is an error.
    pub async fn run(self) -> turmoil::Result {
        let env = self.env();
        let keys = LocalKey::load(&self.0.directory.path().join("kek"), &env)?;
        let group = Arc::new(self.start_group(&env, &keys).await?);
        tokio::select! {
            () = self.observe(&group) => unreachable!("it goes on for ever"),
            served = self.serve(env, keys, &group) => served,
        }
    }

    async fn start_group(&self, env: &Env, keys: &LocalKey) -> Result<Group, Box<dyn std::error::Error>> {
        let founders = (0..self.0.replicas).map(|id| (ReplicaId(id), format!("{}:{RAFT_PORT}", host(id))));
        let founders: BTreeMap<_, _> = founders.collect();
        let replica = ReplicaId(self.0.id);
        let settings = Settings {
            replica,
            address: founders[&replica].clone(),
            founders,
            timing: Timing::default(),
            secret: keys.group_secret(),
            founded_before: None,
            other_secrets: Vec::new(),
        };
        let listener = env.network.listen(([0, 0, 0, 0], RAFT_PORT).into()).await?;
        let connections = Connections { network: Arc::clone(&env.network), listener: Some(listener) };
        let storage = smc_raft::Storage::Memory(self.0.disk.clone());
        let drawn = env.clone();
        let draw = Arc::new(move || drawn.random_u64().expect("a seed always gives more"));
        Ok(Group::start(settings, storage, connections, draw).await?)
    }

    async fn serve(&self, env: Env, keys: LocalKey, group: &Arc<Group>) -> turmoil::Result {
        group.ready().await?;
        let mesh = Box::new(DeclaredMesh::new(self.0.mesh.clone()));
        let storage = Storage { group: Arc::clone(group), keys: Arc::new(keys), mesh };
        let handle = Server::start(self.config(), env, storage, CancellationToken::new()).await?;
        let (orders, received) = mpsc::channel(ORDERS);
        let _serving = Serving::begin(&self.0, Running { group: Arc::clone(group), orders });
        self.0.trace.note(host(self.0.id), "serves");
        let administration = handle.administration();
        tokio::select! {
            ended = handle.join() => Ok(ended?),
            () = follow(received, administration) => unreachable!("the sender is kept"),
        }
    }

    /// Notes whatever changes in how this replica sees the group.
    async fn observe(&self, group: &Group) {
        let mut looks = interval(LOOK);
        let mut seen = String::new();
        loop {
            looks.tick().await;
            let GroupStatus { leader, term, last, applied, .. } = group.status();
            let leader = leader.map_or("nobody".to_owned(), |leader| format!("replica {leader}"));
            let sees = format!("{leader} leads in term {term}, {applied} of {last} applied");
            if sees != seen {
                self.0.trace.note(host(self.0.id), &sees);
                seen = sees;
            }
        }
    }

    /// A bootstrap for a pod, issued by this replica.
    pub async fn bootstrap(&self, pod: &str) -> Result<BootstrapResponse, Status> {
        let gone = || Status::unavailable("the replica does not serve");
        let running = self.0.running().clone().ok_or_else(gone)?;
        let (answer, answered) = oneshot::channel();
        let sent = running.orders.send(Order { pod: pod.to_owned(), answer }).await;
        sent.map_err(|_| gone())?;
        let answer = answered.await.unwrap_or_else(|_| Err(gone()));
        let said = match &answer {
            Ok(response) => format!("issued {} for {pod}", response.serial),
            Err(status) => format!("issued nothing for {pod}: {:?}", status.code()),
        };
        self.0.trace.note(host(self.0.id), said);
        answer
    }

    /// Whether it serves.
    pub fn serves(&self) -> bool {
        self.0.running().is_some()
    }

    /// Which replica this is.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// How it sees its group, once it serves.
    pub fn status(&self) -> Option<GroupStatus> {
        self.0.running().as_ref().map(|running| running.group.status())
    }

    /// Looks at the ledger as it is applied here.
    ///
    /// # Panics
    ///
    /// If the replica does not serve.
    pub fn ledger<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        let group = Arc::clone(&self.0.running().as_ref().expect("a replica that serves").group);
        group.local().read(look)
    }

    /// The world of this start: no two draw the same.
    fn env(&self) -> Env {
        let start = self.0.starts.fetch_add(1, Ordering::Relaxed);
        let seed = self.0.seed.wrapping_mul(1_000_003).wrapping_add(self.0.id << 32).wrapping_add(start);
        Env {
            clock: Arc::new(SimulatedClock),
            entropy: Arc::new(SeededEntropy::new(seed)),
            network: Arc::new(SimulatedNetwork),
        }
    }

    fn config(&self) -> Config {
        let address = |id| ControllerAddress { host: Host::Name(host(id)), port: XDS_PORT };
        Config {
            xds_listen: ([0, 0, 0, 0], XDS_PORT).into(),
            xds_address: None,
            xds_replicas: (0..self.0.replicas).map(|id| (id, address(id))).collect(),
            admin_socket: None,
            metrics_listen: None,
            trust_domain: TrustDomain::new("cluster.local").unwrap(),
            mesh_namespace: MeshNamespace::default(),
            service_cert_lifetime: Duration::from_hours(48),
            release_grace: RELEASE_GRACE,
            max_connections: 64,
            answer_limit: ANSWER_LIMIT,
            idle_limit: IDLE_LIMIT,
        }
    }

    /// What was not synced is lost with the power of its host. To be called while the host is down.
    pub fn lose_power(&self) {
        self.0.disk.crash();
    }
}

impl Parts {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // It is replaced whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A replica serves until this is dropped, as it is when its host goes down.
struct Serving<'a>(&'a Parts);

impl<'a> Serving<'a> {
    fn begin(parts: &'a Parts, running: Running) -> Self {
        *parts.running() = Some(running);
        Self(parts)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}

/// Does what the operator says, several things at once.
async fn follow(mut orders: mpsc::Receiver<Order>, administration: Administration) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            Some(Order { pod, answer }) = orders.recv() => {
                let mut administration = administration.clone();
                under_way.spawn(async move {
                    let request = BootstrapRequest { workload: pod, ..BootstrapRequest::default() };
                    let answered = administration.bootstrap(request).await;
                    // The operator may have given up.
                    let _ = answer.send(answered.map(tonic::Response::into_inner));
                });
            }
            Some(_) = under_way.join_next() => {}
            else => return,
        }
    }
}
