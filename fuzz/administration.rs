//! Requests of the administration, each to a running replica: a byte names the call, the rest is its message.
//!
//! The replica is the only one of its group, and no network is around it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use prost::Message;
use smc_decode::manifest;
use smc_host::env::Env;
use smc_host::network::{Bound, Io, Listener, Network};
use smc_issuing::seal::{KeyEncryption, LocalKey};
use smc_mesh::catalog::SourceEvent;
use smc_proto::admin::v1 as pb;
use smc_raft::{Connections, Group, MemoryDisk, Settings};
use smc_server::admin::Administration;
use smc_server::config::{ANSWER_LIMIT, Config, IDLE_LIMIT, RELEASE_GRACE, SidecarLimits, TIME_TO_CONNECT};
use smc_server::source::{Batch, Source, SourceError};
use smc_server::{Handle, Server, Storage};
use smc_testkit::shop;
use smc_types::ids::{MeshNamespace, ReplicaId, TrustDomain};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};

/// How long a call may take: none of them waits for another replica.
const LIMIT: Duration = Duration::from_secs(10);

/// Pods that a bootstrap can be asked for.
const PODS: u64 = 3;

struct Replica {
    runtime: Runtime,
    administration: Administration,
    /// Kept, or the replica ends.
    _handle: Handle,
}

static REPLICA: OnceLock<Replica> = OnceLock::new();

/// Asks `$call` of `$admin`.
macro_rules! call {
    ($admin:ident.$call:ident, $request:ident, $message:ident) => {
        ask($message, async |request: pb::$request| $admin.$call(request).await).await
    };
}

/// Makes one call.
pub(crate) fn run(input: &[u8]) {
    let Some((call, message)) = input.split_first() else { return };
    let replica = REPLICA.get_or_init(start);
    let mut admin = replica.administration.clone();
    replica.runtime.block_on(async move {
        match call {
            0 => call!(admin.list_proxies, ListProxiesRequest, message),
            1 => call!(admin.get_proxy_config, GetProxyConfigRequest, message),
            2 => call!(admin.bootstrap, BootstrapRequest, message),
            3 => call!(admin.release_proxy, ReleaseProxyRequest, message),
            4 => call!(admin.list_problems, ListProblemsRequest, message),
            5 => call!(admin.list_services, ListServicesRequest, message),
            6 => call!(admin.list_policy, ListPolicyRequest, message),
            7 => call!(admin.get_ca_status, GetCaStatusRequest, message),
            8 => call!(admin.rotate_ca, RotateCaRequest, message),
            9 => call!(admin.rekey_ca, RekeyCaRequest, message),
            10 => call!(admin.get_cluster_status, GetClusterStatusRequest, message),
            // Not an addition: a second member that is not there takes the group its majority.
            11 => call!(admin.remove_replica, RemoveReplicaRequest, message),
            12 => call!(admin.transfer_leadership, TransferLeadershipRequest, message),
            _ => call!(admin.take_snapshot, TakeSnapshotRequest, message),
        }
    });
}

/// Reads a request, and makes the call. What fails says why, and is never the server's own fault.
async fn ask<Q: Message + Default + std::fmt::Debug, A>(
    message: &[u8],
    call: impl AsyncFnOnce(Q) -> Result<Response<A>, Status>,
) {
    let Ok(request) = Q::decode(message) else { return };
    let said = format!("{request:?}");
    let answer = timeout(LIMIT, call(request)).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer within {LIMIT:?} to {said}"));
    if let Err(status) = answer {
        assert!(!status.message().is_empty(), "{:?} without a reason to {said}", status.code());
        let own = matches!(status.code(), Code::Internal | Code::Unknown | Code::DataLoss);
        assert!(!own, "{status} to {said}");
    }
}

fn start() -> Replica {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (administration, handle) = runtime.block_on(async {
        let handle = serve().await;
        let mut administration = handle.administration();
        let request = || pb::BootstrapRequest { workload: "shop/pod-0".to_owned(), ..Default::default() };
        while administration.bootstrap(request()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        (administration, handle)
    });
    Replica { runtime, administration, _handle: handle }
}

async fn serve() -> Handle {
    let env = Env { network: Arc::new(Nowhere), ..Env::system() };
    let directory = tempfile::tempdir().unwrap();
    shop::key_file(&directory.path().join("kek"), [7; 32]);
    let keys = LocalKey::load(&directory.path().join("kek"), &env).unwrap();
    let (me, address) = (ReplicaId(0), "replica-0:1".to_owned());
    let settings = Settings {
        initial_members: [(me, address.clone())].into(),
        ..Settings::new(me, address, keys.group_secret())
    };
    let connections =
        Connections { network: Arc::clone(&env.network), listener: None, clock: Arc::clone(&env.clock) };
    let disk = smc_raft::Storage::Memory(MemoryDisk::default());
    let group = Group::start(settings, disk, connections, Arc::clone(&env.entropy)).await.unwrap();
    group.ready().await.unwrap();
    let config = Config {
        xds_listen: ([127, 0, 0, 1], 15128).into(),
        xds_address: None,
        xds_replicas: std::collections::BTreeMap::new(),
        admin_socket: None,
        metrics_listen: None,
        trust_domain: TrustDomain::new("cluster.local").unwrap(),
        mesh_namespace: MeshNamespace::default(),
        service_cert_lifetime: Duration::from_hours(48),
        release_grace: RELEASE_GRACE,
        sidecars: SidecarLimits::default(),
        max_connections: 4,
        answer_limit: ANSWER_LIMIT,
        idle_limit: IDLE_LIMIT,
        time_to_connect: TIME_TO_CONNECT,
    };
    let storage = Storage { group: Arc::new(group), keys: Arc::new(keys), mesh: Box::new(Shop) };
    Server::start(config, env, storage, CancellationToken::new()).await.unwrap()
}

/// A mesh that never changes.
struct Shop;

impl Source for Shop {
    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let read = manifest::read("shop.yaml", shop::manifest(PODS).as_bytes());
            let objects = read.declarations.into_iter().filter_map(|declaration| declaration.object.clone());
            let events = objects.map(SourceEvent::Upsert).collect();
            // Without a receiver the replica has ended.
            let _ =
                batches.send(Batch { events, problems: read.problems, synced: true, revision: None }).await;
            shutdown.cancelled().await;
            Ok(())
        })
    }
}

/// A network without another host.
struct Nowhere;

impl Network for Nowhere {
    fn dial(&self, _: String) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    fn bind(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Bound>>> {
        Box::pin(async move { Ok(Box::new(Silent(address)) as Box<dyn Bound>) })
    }
}

/// A port without clients.
struct Silent(SocketAddr);

impl Bound for Silent {
    fn address(&self) -> SocketAddr {
        self.0
    }

    fn listen(self: Box<Self>) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async move { Ok(self as Box<dyn Listener>) })
    }
}

impl Listener for Silent {
    fn address(&self) -> SocketAddr {
        self.0
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        Box::pin(std::future::pending())
    }
}
