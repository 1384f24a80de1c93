//! A replica in a temporary directory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use smc_directory::DirectorySource;
use smc_host::env::Env;
use smc_host::network::Tcp;
use smc_issuing::seal::{KeyEncryption, LocalKey};
use smc_proto::admin::v1 as pb;
use smc_raft::{Connections, Group, GroupError, MemoryDisk, Settings, StorageError};
use smc_server::admin::client;
use smc_server::config::{ANSWER_LIMIT, Config, IDLE_LIMIT, RELEASE_GRACE, SidecarLimits, TIME_TO_CONNECT};
use smc_server::metrics::Metrics;
use smc_server::xds::proxies::Proxies;
use smc_server::{Server, ServerError, Storage};
use smc_testkit::ads::Credentials;
use smc_testkit::eventually::{Patience, eventually};
use smc_testkit::loopback::{Loopback, loopback};
use smc_testkit::shop::key_file;
use smc_types::ids::{MeshName, MeshNamespace, ProxyUuid, ReplicaId, TrustDomain, WorkloadId};
use tempfile::TempDir;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::Code;

const MESH: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: buyer, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: store, namespace: shop}
---
apiVersion: v1
kind: Service
metadata: {name: store, namespace: shop}
spec: {clusterIP: 10.96.0.10, selector: {app: store}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: buyer, namespace: shop, labels: {app: buyer}}
spec: {serviceAccountName: buyer, containers: [{name: app}]}
status: {podIPs: [{ip: 10.0.0.3}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: smc-system}
spec: {traffic: {enablePermissiveTrafficPolicyMode: true}}
"#;

const STORE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: store, namespace: shop, labels: {app: store}}
spec: {serviceAccountName: store, containers: [{name: app}]}
status: {podIPs: [{ip: 10.0.0.2}], conditions: [{type: Ready, status: "True"}]}
"#;

const ANOTHER: &str = r"
apiVersion: v1
kind: Service
metadata: {name: another, namespace: shop}
spec: {clusterIP: 10.96.0.11, selector: {app: store}, ports: [{name: tcp, port: 90, targetPort: 9090}]}
";

const THIEF: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: evil, labels: {openservicemesh.io/monitored-by: smc}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: thief, namespace: evil}
---
apiVersion: v1
kind: Pod
metadata: {name: thief, namespace: evil, labels: {osm-proxy-uuid: UUID}}
spec: {serviceAccountName: thief, containers: [{name: app}]}
status: {podIPs: [{ip: 10.0.0.66}], conditions: [{type: Ready, status: "True"}]}
"#;

const WITH_SIDECAR: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop, labels: {osm-proxy-uuid: UUID}}
spec: {serviceAccountName: buyer, containers: [{name: app}]}
status: {podIPs: [{ip: ADDRESS}], conditions: [{type: Ready, status: "True"}]}
"#;

/// Limits that a test may shorten.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The limit for a proxy's answer.
    pub(super) answer: Duration,
    /// How long a pod must be gone before its proxy is released.
    pub(super) release_grace: Duration,
    /// The limit for a connection without a stream.
    pub(super) idle: Duration,
    /// The limit of connections. Half of them may be without a handshake at one address.
    pub(super) connections: usize,
    /// How long a sidecar may be away before that is a problem.
    pub(super) time_to_connect: Duration,
}

/// The limit for any wait of a test.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: ANSWER_LIMIT,
            release_grace: RELEASE_GRACE,
            idle: IDLE_LIMIT,
            connections: 64,
            time_to_connect: TIME_TO_CONNECT,
        }
    }
}

/// A running replica.
pub(super) struct Replica {
    directory: TempDir,
    disk: Disk,
    limits: Limits,
    shutdown: CancellationToken,
    ended: Option<JoinHandle<Result<(), ServerError>>>,
    pub(super) xds: SocketAddr,
    pub(super) metrics: Metrics,
    pub(super) proxies: Proxies,
}

impl Replica {
    pub(super) async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub(super) async fn start_with(limits: Limits) -> Self {
        let directory = declared();
        let disk = Disk::in_directory(directory.path());
        let running = run(parts_on(&disk, directory.path(), limits).await).await;
        Self::new(directory, disk, limits, running)
    }

    fn new(directory: TempDir, disk: Disk, limits: Limits, running: Running) -> Self {
        let (shutdown, ended, xds, metrics, proxies) = running;
        Self { directory, disk, limits, shutdown, ended: Some(ended), xds, metrics, proxies }
    }

    /// Starts `count` replicas of one group on the local network.
    pub(super) async fn several(count: u64) -> Vec<Self> {
        Self::several_with(count, Limits::default()).await
    }

    pub(super) async fn several_with(count: u64, limits: Limits) -> Vec<Self> {
        let Loopback { addresses, listeners } = loopback(count).await;
        let mut starting = JoinSet::new();
        for (replica, listener) in listeners {
            let directory = declared();
            key_file(&directory.path().join("kek"), [7; 32]);
            let env = Env::system();
            let secret = LocalKey::load(&directory.path().join("kek"), &env).unwrap().group_secret();
            let settings = Settings {
                initial_members: addresses.clone(),
                ..Settings::new(replica, addresses[&replica].clone(), secret)
            };
            starting.spawn(async move {
                let (network, clock) = (Arc::new(Tcp), Arc::clone(&env.clock));
                let connections = Connections { network, listener: Some(listener), clock };
                let storage = smc_raft::Storage::Memory(MemoryDisk::default());
                let group = Group::start(settings, storage, connections, env.entropy).await.unwrap();
                group.ready().await.unwrap();
                let running = run(parts_of(directory.path(), limits, group)).await;
                let disk = Disk::in_directory(directory.path());
                Self::new(directory, disk, limits, running)
            });
        }
        starting.join_all().await
    }

    /// Ends the replica and starts it again on the same state.
    pub(super) async fn restart(&mut self) {
        self.shutdown.cancel();
        self.ended.take().unwrap().await.unwrap().unwrap();
        let parts = parts_on(&self.disk, self.directory.path(), self.limits).await;
        let (shutdown, ended, xds, metrics, proxies) = run(parts).await;
        (self.shutdown, self.ended, self.xds) = (shutdown, Some(ended), xds);
        (self.metrics, self.proxies) = (metrics, proxies);
    }

    /// Ends the replica, which must take less than ten seconds.
    pub(super) async fn stop(mut self) {
        self.shutdown.cancel();
        let ended = self.ended.take().unwrap();
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap().unwrap().unwrap();
        assert!(!self.directory.path().join("admin.sock").exists());
    }

    pub(super) async fn admin(&self) -> client::Client {
        client::connect(&self.directory.path().join("admin.sock")).await.unwrap()
    }

    /// A bootstrap for a pod, as soon as the pod is known.
    pub(super) async fn bootstrap(&self, pod: &str) -> Credentials {
        let mut admin = self.admin().await;
        let request = pb::BootstrapRequest { workload: pod.to_owned(), ..pb::BootstrapRequest::default() };
        let text = loop {
            match admin.bootstrap(request.clone()).await {
                Ok(response) => break response.into_inner().bootstrap,
                Err(status) if status.code() == Code::NotFound => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(status) => panic!("{status}"),
            }
        };
        Credentials::read(&text).unwrap()
    }

    /// Declares a pod of another namespace that carries the UUID of `victim`'s sidecar.
    pub(super) fn copy_the_uuid_of(&self, victim: &Credentials) {
        let (uuid, _) = victim.node.split_once('.').unwrap();
        let text = THIEF.replace("UUID", uuid);
        std::fs::write(self.directory.path().join("mesh/thief.yaml"), text).unwrap();
    }

    pub(super) fn declare_another_service(&self) {
        self.declare_another_service_as("another");
    }

    /// Declares it by this name, and no longer by the one before.
    pub(super) fn declare_another_service_as(&self, name: &str) {
        let text = ANOTHER.replace("another", name);
        std::fs::write(self.directory.path().join("mesh/another.yaml"), text).unwrap();
    }

    pub(super) fn declare_a_second_store(&self) {
        let text = STORE.replace("name: store,", "name: store-2,").replace("10.0.0.2", "10.0.0.4");
        std::fs::write(self.directory.path().join("mesh/store-2.yaml"), text).unwrap();
    }

    /// Declares the store's pod with the buyer's service account.
    pub(super) fn make_the_store_a_buyer(&self) {
        let text = STORE.replace("serviceAccountName: store", "serviceAccountName: buyer");
        std::fs::write(self.directory.path().join("mesh/store.yaml"), text).unwrap();
    }

    /// Declares a pod with the label of a sidecar.
    pub(super) fn declare_with_sidecar(&self, name: &str, address: &str) {
        let uuid = ProxyUuid::derived(&WorkloadId::new("shop", name).unwrap()).to_string();
        let text = WITH_SIDECAR.replace("NAME", name).replace("UUID", &uuid).replace("ADDRESS", address);
        std::fs::write(self.directory.path().join(format!("mesh/{name}.yaml")), text).unwrap();
    }

    pub(super) fn declare_the_store(&self) {
        std::fs::write(self.directory.path().join("mesh/store.yaml"), STORE).unwrap();
    }

    pub(super) fn remove_the_store(&self) {
        std::fs::remove_file(self.directory.path().join("mesh/store.yaml")).unwrap();
    }

    pub(super) async fn release(&self, pod: &str) {
        let request = pb::ReleaseProxyRequest { proxy: pod.to_owned(), keep_keys: false };
        assert_eq!(self.admin().await.release_proxy(request).await.unwrap().into_inner().released, 1);
    }

    /// Waits until the metrics contain all of these lines.
    pub(super) async fn counts(&self, lines: &[&str]) {
        let counted = |text: &str| lines.iter().all(|line| text.lines().any(|found| found == *line));
        let counting = async {
            while !counted(&self.metrics.text()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, counting).await;
        assert!(waited.is_ok(), "{lines:?} are not in\n{}", self.metrics.text());
    }
}

/// A directory with a mesh in it.
pub(super) fn declared() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mesh = directory.path().join("mesh");
    std::fs::create_dir(&mesh).unwrap();
    std::fs::write(mesh.join("mesh.yaml"), MESH).unwrap();
    std::fs::write(mesh.join("store.yaml"), STORE).unwrap();
    directory
}

type Running = (CancellationToken, JoinHandle<Result<(), ServerError>>, SocketAddr, Metrics, Proxies);

/// The disk of a replica: a directory, or memory where RocksDB is left out of the build.
struct Disk {
    directory: PathBuf,
    memory: MemoryDisk,
}

impl Disk {
    fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.join("ledger"), memory: MemoryDisk::default() }
    }

    fn storage(&self) -> smc_raft::Storage {
        if cfg!(feature = "rocks") {
            smc_raft::Storage::Directory(self.directory.clone())
        } else {
            smc_raft::Storage::Memory(self.memory.clone())
        }
    }

    /// The ledger of a single replica. Waits until an earlier owner has closed it.
    async fn group(&self) -> Group {
        let patience = Patience { limit: Duration::from_mins(1), pause: Duration::from_millis(10) };
        eventually(patience, "the ledger", async || {
            match Group::alone(ReplicaId(0), self.storage(), &Env::system()).await {
                Err(GroupError::Storage(error)) if matches!(*error, StorageError::Locked { .. }) => {
                    Err(error)
                }
                started => Ok(started.unwrap()),
            }
        })
        .await
    }
}

/// The arguments that start a replica in this directory. The group runs until it is stopped.
pub(super) async fn parts(directory: &Path, limits: Limits) -> (Config, Env, Storage) {
    parts_on(&Disk::in_directory(directory), directory, limits).await
}

async fn parts_on(disk: &Disk, directory: &Path, limits: Limits) -> (Config, Env, Storage) {
    parts_of(directory, limits, disk.group().await)
}

fn parts_of(directory: &Path, limits: Limits, group: Group) -> (Config, Env, Storage) {
    let Limits { answer: answer_limit, release_grace, idle: idle_limit, connections, time_to_connect } =
        limits;
    let env = Env::system();
    let keys = LocalKey::load_or_create(&directory.join("kek"), true, &env).unwrap();
    let mesh = DirectorySource::new(directory.join("mesh"), directory.join("last-good"), MeshName::default());
    let storage = Storage { group: Arc::new(group), keys: Arc::new(keys), mesh: Box::new(mesh) };
    let config = Config {
        xds_listen: "127.0.0.1:0".parse().unwrap(),
        xds_address: None,
        xds_replicas: BTreeMap::new(),
        admin_socket: Some(directory.join("admin.sock")),
        metrics_listen: None,
        trust_domain: TrustDomain::new("cluster.local").unwrap(),
        mesh_namespace: MeshNamespace::default(),
        service_cert_lifetime: Duration::from_hours(1),
        release_grace,
        sidecars: SidecarLimits::default(),
        max_connections: connections,
        answer_limit,
        idle_limit,
        time_to_connect,
    };
    (config, env, storage)
}

async fn run((config, env, storage): (Config, Env, Storage)) -> Running {
    let group = Arc::clone(&storage.group);
    let shutdown = CancellationToken::new();
    let handle = Server::start(config, env, storage, shutdown.clone()).await.unwrap();
    let (xds, metrics) = (handle.addresses().xds, handle.metrics().clone());
    let proxies = handle.proxies().clone();
    proxies.opened().await;
    let ended = async move {
        let ended = handle.join().await;
        group.stop().await;
        ended
    };
    (shutdown, tokio::spawn(ended), xds, metrics, proxies)
}
