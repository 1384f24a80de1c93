//! One controller replica: its parts, how they are wired, started, watched and stopped.
//!
//! ```text
//! source ─batches→ publisher ─worlds→ xds streams → proxies
//!                   ↑      └wanted→ rotator ─certificates┐
//!                   ├────────────────────────────────────┘
//!                   └─roots─ authority (what signs, and who is trusted)
//! ```
//!
//! Owns every task. A task that ends before it was asked to ends the replica, with an error that names it: a half
//! replica would serve stale state and look alive. Refuses ambient anything: time, randomness and storage are passed
//! in, so that a test or a simulation can run several replicas in one process.

mod authority;
mod census;
mod shutdown;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use smc_mesh::bootstrap::{ControllerAddress, Host};
use smc_mesh::pki::{CONTROLLER_IDENTITY, InvalidLifetime, Lifetimes, WantedCertificates};
use smc_mesh::translate::{Compiler, Settings};
use smc_proto::admin::v1::admin_client::AdminClient;
use smc_proto::admin::v1::admin_server::AdminServer;
use smc_raft::{Group, Listener, Network, ReplicatedLedger};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{AdminService, AdminSocket, Administration, SocketError};
use crate::ca::rotation::Rotator;
use crate::ca::seal::KeyEncryption;
use crate::ca::tls::ServerTls;
use crate::ca::{BuiltinCa, CaError, CaSettings, CertificateManager, ControllerNames};
use crate::config::Config;
use crate::env::Env;
use crate::publisher::{Inputs, Publisher};
use crate::sources::Source;
use crate::telemetry::Metrics;
use crate::xds;
use crate::xds::proxies::Proxies;
use census::Census;
use shutdown::Stages;
use tasks::Tasks;

/// Batches that a source may be ahead of the publisher: none is gained by more, since a source folds what changes
/// meanwhile into its next batch.
const BATCH_QUEUE: usize = 4;

/// Certificates that may be ahead of the publisher, which applies many at once.
const CERTIFICATE_QUEUE: usize = 256;

/// What a replica keeps its state in, and where it reads the mesh.
pub struct Storage {
    /// The replica's part of the Raft group that keeps the ledger. Whoever started it stops it, after the server.
    pub group: Arc<Group>,
    /// Seals the authority's keys.
    pub keys: Arc<dyn KeyEncryption>,
    /// Declares the mesh.
    pub mesh: Box<dyn Source>,
}

/// Why a replica did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The service certificates' lifetime is out of bounds.
    #[error("the lifetime of service certificates is not usable")]
    Lifetime(#[from] InvalidLifetime),
    /// Proxies could not be told where to connect.
    #[error(
        "bootstraps need an address that proxies can connect to; give one, since the replica listens on all"
    )]
    NoAddress,
    /// A port could not be taken.
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// What for.
        purpose: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The administration socket could not be taken.
    #[error(transparent)]
    Admin(#[from] SocketError),
    /// The certificate authority could not be opened.
    #[error("cannot open the certificate authority")]
    Authority(#[source] CaError),
    /// The controller has no certificate of its own.
    #[error("cannot issue the controller's own certificate")]
    OwnCertificate(#[source] CaError),
}

/// Why a running replica ended without being asked to.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A task returned or failed.
    #[error("the task {task:?} ended: {reason}")]
    Task {
        /// Its name.
        task: &'static str,
        /// What it said.
        reason: String,
    },
}

/// Where a running replica can be reached.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The xDS port.
    pub xds: SocketAddr,
    /// The metrics port.
    pub metrics: Option<SocketAddr>,
}

/// A running replica. Dropping it drops everything at once; [`Handle::join`] ends it in order.
pub struct Handle {
    addresses: Addresses,
    administration: Administration,
    proxies: Proxies,
    metrics: Metrics,
    tasks: Tasks,
    stages: Stages,
}

impl Handle {
    /// Where it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What its operator may ask for, without a socket.
    pub fn administration(&self) -> Administration {
        self.administration.clone()
    }

    /// Who is connected to it.
    pub fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Runs until the shutdown that was passed to [`Server::start`] is asked for, or a task ends by itself; then
    /// drains: streams end with OK, connections with GOAWAY, and the tasks after them. Returns within ten seconds
    /// of the request, whatever proxies do.
    pub async fn join(self) -> Result<(), ServerError> {
        shutdown::run(self.tasks, self.stages).await
    }
}

/// See [`Server::start`].
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a replica. When this returns, it listens; it answers proxies as soon as its source has synced.
    /// `shutdown` ends it, provided that the handle is joined.
    pub async fn start(
        config: Config,
        env: Env,
        storage: Storage,
        shutdown: CancellationToken,
    ) -> Result<Handle, StartError> {
        let Config {
            xds_listen,
            xds_address,
            xds_replicas,
            admin_socket,
            metrics_listen,
            trust_domain,
            mesh_namespace,
            service_cert_lifetime,
            release_grace,
            max_connections,
            answer_limit,
            idle_limit,
        } = config;
        let metrics = Metrics::new();
        let lifetimes = Lifetimes::with_service(service_cert_lifetime)?;
        let xds_listener = listen(&*env.network, "xDS", xds_listen).await?;
        let xds = xds_listener.address();
        let controllers = addresses_for_proxies(xds_replicas, xds_address, xds)?;
        let admin_socket = match admin_socket {
            Some(path) => Some(AdminSocket::bind(&path).await?),
            None => None,
        };
        let Storage { group, keys, mesh } = storage;
        let ca: Arc<dyn ReplicatedLedger> = Arc::<Group>::clone(&group);
        let settings = CaSettings { trust_domain: trust_domain.clone(), lifetimes };
        let ca = BuiltinCa::open(ca, keys, env.clone(), settings).await.map_err(StartError::Authority)?;
        let ca: Arc<dyn CertificateManager> = Arc::new(ca);
        let names = certificate_names(controllers.values());
        let tls = ServerTls::start(Arc::clone(&ca), env.clone(), names)
            .await
            .map_err(StartError::OwnCertificate)?;
        let tls = Arc::new(tls);

        let stages = Stages::new(shutdown);
        let mut tasks = Tasks::default();
        let compiler = Compiler::new(Settings { mesh_namespace, ..Settings::new(trust_domain) });
        let (trusted, bundle) = watch::channel(ca.bundle());
        let (batch_sender, batches) = mpsc::channel(BATCH_QUEUE);
        let (issued, certificates) = mpsc::channel(CERTIFICATE_QUEUE);
        let (world_sender, worlds) = watch::channel(None);
        let (wanted_sender, wanted) = watch::channel(WantedCertificates::default());
        let (publisher, ask) = Publisher::new(
            compiler,
            Inputs { batches, certificates, bundle },
            world_sender,
            wanted_sender,
            metrics.clone(),
        );
        let proxies = Proxies::new(max_connections, metrics.clone());
        let streams = TaskTracker::new();
        let context = xds::stream::Context {
            worlds: worlds.clone(),
            ca: Arc::clone(&ca),
            proxies: proxies.clone(),
            env: env.clone(),
            metrics: metrics.clone(),
            tasks: streams.clone(),
            answer_limit,
            idle_limit,
            draining: stages.draining.clone(),
        };
        let handling = Arc::new(xds::connection::Handling::new(Arc::clone(&tls), context));

        tasks.spawn("publisher", publisher.run(stages.stopping.clone()));
        tasks.spawn_fallible("source", mesh.run(batch_sender, stages.stopping.clone()));
        let census = Census {
            ca: Arc::clone(&ca),
            tls: Arc::clone(&tls),
            wanted: wanted.clone(),
            metrics: metrics.clone(),
        };
        tasks.spawn("certificate census", census.run(stages.stopping.clone()));
        let rotator = Rotator { manager: Arc::clone(&ca), env: env.clone(), wanted, issued };
        tasks.spawn("certificate rotation", rotator.run(stages.stopping.clone()));
        let keeping = authority::Keeping::new(
            Arc::clone(&ca),
            Arc::clone(&group),
            trusted,
            authority::Trust { ask: ask.clone(), tls: Arc::clone(&tls), proxies: proxies.clone() },
            env.clone(),
        );
        tasks.spawn("certificate authority", keeping.run(stages.stopping.clone()));
        let renewal = stages.stopping.clone();
        tasks.spawn("controller certificate", async move { tls.run(renewal).await });
        // Listens before anybody is connected whom a release could concern.
        let releases = tasks::Releases::new(Arc::clone(&ca), proxies.clone());
        tasks.spawn("releases", releases.run(stages.stopping.clone()));
        let (draining, closing) = (stages.draining.clone(), stages.closing.clone());
        tasks.spawn("xDS", xds::acceptor::run(xds_listener, handling, draining, closing));
        let departing = tasks::Departing {
            ca: Arc::clone(&ca),
            ask: ask.clone(),
            worlds: worlds.clone(),
            env: env.clone(),
            grace: release_grace,
        };
        tasks.spawn("departures", departing.run(stages.stopping.clone()));
        tasks.spawn_fallible("storage", tasks::storage(group.failure(), stages.stopping.clone()));
        tasks.spawn("readiness", tasks::readiness(worlds.clone(), xds, stages.stopping.clone()));
        let service = AdminService {
            ask,
            ca,
            group,
            proxies: proxies.clone(),
            worlds: worlds.clone(),
            controllers,
            controller_name: CONTROLLER_IDENTITY.to_owned(),
        };
        let service = AdminServer::new(service);
        let administration = AdminClient::new(service.clone());
        if let Some(socket) = admin_socket {
            let serving = crate::admin::serve(socket, service, stages.stopping.clone());
            tasks.spawn_fallible("administration", serving);
        }
        let metrics_address = match metrics_listen {
            None => None,
            Some(address) => {
                let listener = listen(&*env.network, "metrics", address).await?;
                let bound = listener.address();
                let (worlds, draining) = (worlds, stages.draining.clone());
                let ready = move || !draining.is_cancelled() && worlds.borrow().is_some();
                let serving =
                    crate::telemetry::serve(listener, metrics.clone(), ready, stages.stopping.clone());
                tasks.spawn("metrics", serving);
                Some(bound)
            }
        };
        let addresses = Addresses { xds, metrics: metrics_address };
        let stages = stages.with_streams(streams);
        Ok(Handle { addresses, administration, proxies, metrics, tasks, stages })
    }
}

async fn listen(
    network: &dyn Network,
    purpose: &'static str,
    address: SocketAddr,
) -> Result<Box<dyn Listener>, StartError> {
    network.listen(address).await.map_err(|source| StartError::Listen { purpose, address, source })
}

/// Where proxies are told to connect.
fn addresses_for_proxies(
    replicas: BTreeMap<u64, ControllerAddress>,
    given: Option<ControllerAddress>,
    bound: SocketAddr,
) -> Result<BTreeMap<u64, ControllerAddress>, StartError> {
    let alone = match given {
        _ if !replicas.is_empty() => return Ok(replicas),
        Some(address) => address,
        None if bound.ip().is_unspecified() => return Err(StartError::NoAddress),
        None => ControllerAddress { host: Host::Ip(bound.ip()), port: bound.port() },
    };
    Ok(BTreeMap::from([(0, alone)]))
}

/// What the controller's certificate proves: the fixed name that bootstraps ask for, and how the replicas are reached.
fn certificate_names<'a>(controllers: impl Iterator<Item = &'a ControllerAddress>) -> ControllerNames {
    let mut dns = BTreeSet::new();
    let mut ips = BTreeSet::new();
    for controller in controllers {
        match &controller.host {
            Host::Name(name) if name == CONTROLLER_IDENTITY => {}
            Host::Name(name) => drop(dns.insert(name.clone())),
            Host::Ip(ip) => drop(ips.insert(*ip)),
        }
    }
    let dns = std::iter::once(CONTROLLER_IDENTITY.to_owned()).chain(dns).collect();
    ControllerNames { dns, ips: ips.into_iter().collect() }
}
