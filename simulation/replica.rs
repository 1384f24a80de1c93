//! One simulated host that runs a controller replica.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use smc_authority::ledger::Ledger;
use smc_host::env::Env;
use smc_host::env::fixed::SeededEntropy;
use smc_host::sync::lock;
use smc_issuing::group_time::clock_agrees;
use smc_issuing::seal::{KeyEncryption, LocalKey};
use smc_kubernetes::KubernetesSource;
use smc_proto::admin::v1::{BootstrapRequest, BootstrapResponse};
use smc_raft::{Connections, Group, GroupStatus, MemoryDisk, ReplicatedLedger, Settings};
use smc_server::admin::Administration;
use smc_server::config::{ANSWER_LIMIT, Config, IDLE_LIMIT, RELEASE_GRACE, SidecarLimits, TIME_TO_CONNECT};
use smc_server::source::Source;
use smc_server::{Server, Storage};
use smc_testkit::shop::key_file;
use smc_types::host_port::{Host, HostPort};
use smc_types::ids::{MeshName, MeshNamespace, ReplicaId, TrustDomain};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::api_server::ApiServer;
use crate::clock::HostClock;
use crate::entropy::ReplicaEntropy;
use crate::mesh::DeclaredMesh;
use crate::network::SimulatedNetwork;
use crate::trace::Trace;

/// The port that proxies connect to.
const XDS_PORT: u16 = 15128;

/// The port that other replicas connect to.
const RAFT_PORT: u16 = 15129;

/// How often the trace checks a replica's view of its group.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(2);

/// How long a replica that ends hands its proxies over at most, before their streams end all the same.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a replica that ends for good tries to leave the group, and the pause between two attempts.
const LEAVING: Duration = Duration::from_secs(20);
const LEAVE_AGAIN: Duration = Duration::from_millis(300);

/// Requests of the operator that may wait for one replica.
const QUEUED_REQUESTS: usize = 16;

/// A replica. Clones share it; its disk survives restarts.
#[derive(Clone)]
pub struct Replica(Arc<Parts>);

struct Parts {
    id: u64,
    size: Size,
    seed: u64,
    starts: AtomicU64,
    disk: MemoryDisk,
    clock: HostClock,
    /// The directory of the key-encryption key and the record beside it, which are read and written at start,
    /// and of the last known mesh.
    directory: TempDir,
    mesh: MeshOf,
    trace: Trace,
    running: Mutex<Option<Running>>,
    order: watch::Sender<Order>,
}

/// Where a replica reads the mesh.
#[derive(Clone)]
pub enum MeshOf {
    /// It gets it from the operator, at once.
    Operator(watch::Receiver<String>),
    /// It watches this API server.
    ApiServer(ApiServer),
}

/// How many replicas there are. Their ids count from 0.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Those that found the group together.
    pub initial: u64,
    /// Those that a bootstrap names.
    pub most: u64,
}

/// What the operator wants of the process of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Run,
    /// End in order, as after SIGTERM.
    Drain,
    /// As [`Self::Drain`], and leave the group.
    Leave,
    /// End at once, as after SIGKILL. What the disk has not synced stays: the machine keeps it.
    Kill,
}

/// A replica that serves.
#[derive(Clone)]
struct Running {
    group: Arc<Group>,
    requests: mpsc::Sender<Request>,
}

/// A bootstrap that the operator requests. The replica's own host executes it.
struct Request {
    pod: String,
    answer: oneshot::Sender<Result<BootstrapResponse, Status>>,
}

/// The name of a replica's host.
pub fn host(id: u64) -> String {
    format!("replica-{id}")
}

impl Replica {
    /// Replica `id` of so many, which serves the mesh of `mesh`. The initial members run at once.
    ///
    /// # Panics
    ///
    /// If temporary files cannot be created.
    pub fn new(id: u64, size: Size, seed: u64, mesh: MeshOf, trace: Trace) -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let kek = directory.path().join("kek");
        let key: Vec<u8> = seed.to_be_bytes().into_iter().cycle().take(32).collect();
        key_file(&kek, key);
        let random = SeededEntropy::new(seed.wrapping_add(id));
        // Long enough for power to be lost during a sync.
        let disk = MemoryDisk::with_latency(move || Duration::from_millis(1 + random.draw() % 6));
        let (starts, running, clock) = (AtomicU64::new(0), Mutex::new(None), HostClock::default());
        let order = watch::Sender::new(if id < size.initial { Order::Run } else { Order::Kill });
        let parts = Parts { id, size, seed, starts, disk, clock, directory, mesh, trace, running, order };
        Self(Arc::new(parts))
    }

    /// The software of the replica's host. It ends only with an error.
    pub async fn run(self) -> turmoil::Result {
        let mut order = self.0.order.subscribe();
        loop {
            order.wait_for(|order| *order == Order::Run).await?;
            let mut killed = order.clone();
            tokio::select! {
                ended = self.process() => ended?,
                killed = killed.wait_for(|order| *order == Order::Kill) => drop(killed?),
            }
            self.0.trace.note(host(self.0.id), "is not running");
        }
    }

    /// One process, until it is drained.
    async fn process(&self) -> turmoil::Result {
        let env = self.env();
        let keys = LocalKey::load(&self.0.directory.path().join("kek"), &env)?;
        let group = Arc::new(self.start_group(&env, &keys).await?);
        tokio::select! {
            () = self.observe(&group) => unreachable!("it never ends"),
            served = self.serve(env, keys, &group) => served?,
        }
        group.stop().await;
        Ok(())
    }

    /// Ends its process in order, as after SIGTERM.
    pub fn drain(&self) {
        self.give(Order::Drain);
    }

    /// Ends its process in order, and makes it leave the group.
    pub fn leave(&self) {
        self.give(Order::Leave);
    }

    /// Ends its process at once, as after SIGKILL.
    pub fn kill(&self) {
        self.give(Order::Kill);
    }

    /// Starts its process again.
    pub fn start(&self) {
        self.give(Order::Run);
    }

    fn give(&self, order: Order) {
        self.0.trace.note("operator", format!("{}: {order:?}", host(self.0.id)));
        self.0.order.send_replace(order);
    }

    async fn start_group(&self, env: &Env, keys: &LocalKey) -> Result<Group, Box<dyn std::error::Error>> {
        let address = |id| format!("{}:{RAFT_PORT}", host(id));
        let settings = Settings {
            initial_members: (0..self.0.size.initial).map(|id| (ReplicaId(id), address(id))).collect(),
            ..Settings::new(ReplicaId(self.0.id), address(self.0.id), keys.group_secret())
        };
        let listener = env.network.listen(([0, 0, 0, 0], RAFT_PORT).into()).await?;
        let connections = Connections {
            network: Arc::clone(&env.network),
            listener: Some(listener),
            clock: Arc::clone(&env.clock),
        };
        let storage = smc_raft::Storage::Memory(self.0.disk.clone());
        Ok(Group::start(settings, storage, connections, Arc::clone(&env.entropy)).await?)
    }

    async fn serve(&self, env: Env, keys: LocalKey, group: &Arc<Group>) -> turmoil::Result {
        group.ready().await?;
        clock_agrees(group).await;
        let mesh = self.source(&env);
        let storage = Storage { group: Arc::clone(group), keys: Arc::new(keys), mesh };
        let shutdown = CancellationToken::new();
        let handle = Server::start(self.config(), env, storage, shutdown.clone()).await?;
        let (requests, received) = mpsc::channel(QUEUED_REQUESTS);
        let serving = Serving::begin(&self.0, Running { group: Arc::clone(group), requests });
        self.0.trace.note(host(self.0.id), "serves");
        let (administration, drain) = (handle.administration(), handle.drain());
        let joined = handle.join();
        tokio::pin!(joined);
        let mut order = self.0.order.subscribe();
        let ending = |order: &Order| matches!(order, Order::Drain | Order::Leave);
        let ordered = tokio::select! {
            ended = &mut joined => return Ok(ended?),
            () = execute(received, administration) => unreachable!("the sender is kept"),
            ordered = order.wait_for(ending) => *ordered?,
        };
        // As `smc controller` does. Without a successor it goes all the same.
        drop(serving);
        group.hand_over_in_time(|_| true).await;
        drain.before_stop(DRAIN).await;
        shutdown.cancel();
        joined.await?;
        if ordered == Order::Leave {
            let _ = timeout(LEAVING, self.leave_group(group)).await;
        }
        Ok(())
    }

    fn source(&self, env: &Env) -> Box<dyn Source> {
        match &self.0.mesh {
            MeshOf::Operator(mesh) => Box::new(DeclaredMesh::new(mesh.clone())),
            MeshOf::ApiServer(api) => {
                let (api, last_known) =
                    (Arc::new(api.client()), self.0.directory.path().join("last-known-mesh"));
                let (name, namespace) = (MeshName::default(), MeshNamespace::default());
                let source = KubernetesSource::new(api, name, namespace, last_known, env.clone());
                Box::new(source.with_files_in_its_tasks())
            }
        }
    }

    async fn leave_group(&self, group: &Group) {
        while let Err(error) = group.remove(ReplicaId(self.0.id)).await {
            self.0.trace.note(host(self.0.id), format!("cannot leave yet: {error}"));
            sleep(LEAVE_AGAIN).await;
            group.hand_over_in_time(|_| true).await;
        }
        self.0.trace.note(host(self.0.id), "has left the group");
    }

    /// Notes every change of this replica's view of its group.
    async fn observe(&self, group: &Group) {
        let mut ticks = interval(OBSERVE_INTERVAL);
        let mut previous = String::new();
        loop {
            ticks.tick().await;
            let GroupStatus { leader, term, last, applied, .. } = group.status();
            let leader = leader.map_or("no replica".to_owned(), |leader| format!("replica {leader}"));
            let view = format!("{leader} leads in term {term}, {applied} of {last} applied");
            if view != previous {
                self.0.trace.note(host(self.0.id), &view);
                previous = view;
            }
        }
    }

    /// A bootstrap for a pod, issued by this replica.
    pub async fn bootstrap(&self, pod: &str) -> Result<BootstrapResponse, Status> {
        let gone = || Status::unavailable("the replica does not serve");
        let running = self.0.running().clone().ok_or_else(gone)?;
        let (answer, answered) = oneshot::channel();
        let sent = running.requests.send(Request { pod: pod.to_owned(), answer }).await;
        sent.map_err(|_| gone())?;
        let answer = answered.await.unwrap_or_else(|_| Err(gone()));
        let outcome = match &answer {
            Ok(response) => format!("issued {} for {pod}", response.serial),
            Err(status) => format!("issued nothing for {pod}: {:?}", status.code()),
        };
        self.0.trace.note(host(self.0.id), outcome);
        answer
    }

    /// The clock of its host.
    pub fn clock(&self) -> &HostClock {
        &self.0.clock
    }

    /// Whether it serves.
    pub fn serves(&self) -> bool {
        self.0.running().is_some()
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Its view of its group, once it serves.
    pub fn status(&self) -> Option<GroupStatus> {
        self.0.running().as_ref().map(|running| running.group.status())
    }

    /// Reads the ledger as this replica has applied it.
    ///
    /// # Panics
    ///
    /// If the replica does not serve.
    pub fn ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        let group = Arc::clone(&self.0.running().as_ref().expect("a replica that serves").group);
        group.local().read(read)
    }

    /// The environment of this start. Each start has other random numbers.
    fn env(&self) -> Env {
        let start = self.0.starts.fetch_add(1, Ordering::Relaxed);
        let seed = self.0.seed.wrapping_mul(1_000_003).wrapping_add(self.0.id << 32).wrapping_add(start);
        Env {
            clock: Arc::new(self.0.clock.clone()),
            entropy: Arc::new(ReplicaEntropy::new(seed)),
            network: Arc::new(SimulatedNetwork),
        }
    }

    fn config(&self) -> Config {
        let address = |id| HostPort { host: Host::Name(host(id)), port: XDS_PORT };
        Config {
            xds_listen: ([0, 0, 0, 0], XDS_PORT).into(),
            xds_address: None,
            xds_replicas: (0..self.0.size.most).map(|id| (ReplicaId(id), address(id))).collect(),
            admin_socket: None,
            metrics_listen: None,
            trust_domain: TrustDomain::new("cluster.local").unwrap(),
            mesh_namespace: MeshNamespace::default(),
            service_cert_lifetime: Duration::from_hours(48),
            release_grace: RELEASE_GRACE,
            sidecars: SidecarLimits::default(),
            max_connections: 64,
            answer_limit: ANSWER_LIMIT,
            idle_limit: IDLE_LIMIT,
            time_to_connect: TIME_TO_CONNECT,
        }
    }

    /// Loses what the disk has not synced. To be called while the host is down.
    pub fn lose_power(&self) {
        self.0.disk.crash();
    }
}

impl Parts {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // It is replaced whole.
        lock(&self.running)
    }
}

/// A replica serves until this is dropped, as when its host crashes.
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

/// Executes requests of the operator, concurrently.
async fn execute(mut requests: mpsc::Receiver<Request>, administration: Administration) {
    let mut in_progress = JoinSet::new();
    loop {
        tokio::select! {
            Some(Request { pod, answer }) = requests.recv() => {
                let mut administration = administration.clone();
                in_progress.spawn(async move {
                    let request = BootstrapRequest { workload: pod, ..BootstrapRequest::default() };
                    let answered = administration.bootstrap(request).await;
                    // The operator may have given up.
                    let _ = answer.send(answered.map(tonic::Response::into_inner));
                });
            }
            Some(_) = in_progress.join_next() => {}
            else => return,
        }
    }
}
