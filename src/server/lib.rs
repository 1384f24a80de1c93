//! One controller replica: how its parts are wired, started, supervised and stopped.
//!
//! ```text
//! source ─batches→ publisher ─served states→ xds streams → proxies
//!                   ↑      └wanted→ renewer ─certificates┐
//!                   ├────────────────────────────────────┘
//!                   └─roots─ CA keeper
//! ```
//!
//! Owns the wiring. Every part starts its own tasks, and a task that ends early ends the replica with an
//! error that names the task: half a replica would serve stale state and seem healthy. Time, randomness and
//! storage are passed in, so that a test or a simulation can run several replicas in one process.

mod addresses;
pub mod admin;
mod certificate_metrics;
mod clock_watch;
pub mod config;
pub mod enroll;
mod followers;
pub mod gateway_keeper;
mod health;
mod http;
mod last_known_age;
#[cfg(test)]
mod lone_ca;
pub mod metrics;
pub mod probes;
pub mod problems;
pub mod publisher;
mod registry;
mod replica;
pub mod reports;
pub mod shards;
mod shutdown;
mod sidecars;
pub mod source;
mod trust;
pub mod xds;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use smc_authority::pki::InvalidLifetime;
use smc_host::env::{Env, NoEntropy};
use smc_host::network::{Bound, Network};
use smc_host::tasks::{TaskEnded, Tasks};
use smc_issuing::ca_keeper::{CaKeeper, Declarations};
use smc_issuing::renewal::Renewer;
use smc_issuing::seal::KeyEncryption;
use smc_issuing::{CaError, Issuer, ProxyCertificates};
use smc_mesh::translate::{Compiler, Settings};
use smc_model::replica_settings::ReplicaSettings;
use smc_raft::Group;
use smc_xds::served_state::ServedState;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{AdminService, AdminSocket, Administration, SocketError, StartingAdmin};
use crate::certificate_metrics::CertificateMetrics;
use crate::clock_watch::ClockWatch;
use crate::config::{Config, SidecarLimits};
use crate::enroll::Enroller;
use crate::gateway_keeper::GatewayKeeper;
use crate::last_known_age::LastKnownAge;
use crate::metrics::Metrics;
use crate::problems::Problems;
use crate::publisher::{InputSenders, MeshHandle, Published, Publisher};
use crate::registry::admission::ProxyAdmission;
use crate::registry::identity_forgetter::IdentityForgetter;
use crate::registry::orphan_releaser::OrphanReleaser;
use crate::registry::release_watcher::ReleaseWatcher;
use crate::replica::Replica;
use crate::reports::{Reports, Since};
use crate::shards::{Drain, Shards};
use crate::shutdown::Stages;
use crate::sidecars::{SidecarWatch, Sidecars};
use crate::source::Source;
use crate::trust::ReplicaTrust;
use crate::xds::proxies::Proxies;

/// The state of a replica, and the source of its mesh.
pub struct Storage {
    /// This replica's member of the Raft group that keeps the ledger. The caller stops it after the server.
    pub group: Arc<Group>,
    /// Seals the keys of the CA.
    pub keys: Arc<dyn KeyEncryption>,
    /// The source of the declared mesh.
    pub mesh: Box<dyn Source>,
}

/// Why a replica did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The lifetime of service certificates is out of bounds.
    #[error("the lifetime of service certificates is not usable")]
    Lifetime(#[from] InvalidLifetime),
    /// No address for bootstraps is configured or can be derived.
    #[error(
        "bootstraps need an address that proxies can connect to; give one, since the replica listens on all"
    )]
    NoAddress,
    /// A port cannot be opened.
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// The use of the port.
        purpose: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The administration socket cannot be opened.
    #[error(transparent)]
    Admin(#[from] SocketError),
    /// The CA cannot be opened.
    #[error("cannot open the certificate authority")]
    Authority(#[source] CaError),
    /// The controller's own certificate cannot be issued.
    #[error("cannot issue the controller's own certificate")]
    OwnCertificate(#[source] CaError),
    /// The random number that tells this process from the replica's former one could not be drawn.
    #[error("cannot generate a random process id")]
    NoEntropy(#[from] NoEntropy),
}

/// Why a running replica ended before its shutdown was requested.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A task returned or failed.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// The addresses that a running replica listens on.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The xDS port.
    pub xds: SocketAddr,
    /// The metrics port.
    pub metrics: Option<SocketAddr>,
}

/// What a platform's own part of a replica is made of, such as the webhooks of a replica in Kubernetes. The
/// server knows no platform: the caller starts such parts between [`Server::open`] and [`Opened::announce`].
#[derive(Clone)]
pub struct Parts {
    /// Clock, randomness and network; the clock is the group's.
    pub env: Env,
    /// This replica's member of the Raft group.
    pub group: Arc<Group>,
    /// The certificate authority.
    pub issuer: Arc<dyn Issuer>,
    /// The proxy certificates in the ledger.
    pub certificates: ProxyCertificates,
    /// Makes certificate and bootstrap of a workload.
    pub enroller: Enroller,
    /// The metrics.
    pub metrics: Metrics,
    /// The mesh as the publisher holds it.
    pub mesh: MeshHandle,
    /// The problems of the mesh.
    pub problems: Problems,
    /// What is served.
    pub served: watch::Receiver<Option<Arc<ServedState>>>,
    /// Cancelled when the replica begins to end.
    pub draining: CancellationToken,
}

/// A running replica. Dropping it aborts everything; [`Handle::join`] ends it in order.
pub struct Handle {
    addresses: Addresses,
    administration: Administration,
    proxies: Proxies,
    shards: Shards,
    metrics: Metrics,
    tasks: Tasks,
    stages: Stages,
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Handle {
    /// The addresses it listens on.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The administration without a socket.
    pub fn administration(&self) -> Administration {
        self.administration.clone()
    }

    /// Whether the replica is ready, at the moment of the call.
    pub fn readiness(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let ready = Arc::clone(&self.ready);
        move || ready()
    }

    /// The connected proxies.
    pub fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The shards.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Drains the replica, before its shutdown or without one.
    pub fn drain(&self) -> Drain {
        self.shards.drain(&self.proxies)
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Runs until the shutdown that was passed to [`Server::open`] is requested, or a task ends by itself.
    /// Then drains: streams end with OK, connections with GOAWAY, and the tasks after them. Returns within
    /// ten seconds of the request, whatever the proxies do.
    pub async fn join(self) -> Result<(), ServerError> {
        shutdown::run(self.tasks, self.stages).await
    }
}

/// A replica that listens for proxies, and of which others do not know yet that it is ready. Dropping it
/// aborts everything.
pub struct Opened {
    xds: SocketAddr,
    metrics_listen: Option<SocketAddr>,
    socket: Option<PathBuf>,
    replica: Replica,
    mesh: Published,
    sidecars: Sidecars,
    tasks: Tasks,
    stages: Stages,
}

impl Opened {
    /// The keeper of gateways' certificates, which the caller starts with what its platform keeps them in.
    pub fn gateway_keeper(&self) -> GatewayKeeper {
        let Replica { env, group, ca, .. } = self.replica.clone();
        let (declared, problems) = (self.mesh.gateway.clone(), self.mesh.problems.clone());
        GatewayKeeper { ca, group, declared, problems, env }
    }

    /// What replicas obey of the MeshConfig, as it changes.
    pub fn settings(&self) -> watch::Receiver<ReplicaSettings> {
        self.replica.settings.subscribe()
    }

    /// What further parts of the replica are made of.
    pub fn parts(&self) -> Parts {
        let issuer = self.replica.issuer();
        let Replica { env, group, certificates, enroller, metrics, .. } = self.replica.clone();
        let (problems, served) = (self.mesh.problems.clone(), self.mesh.served.clone());
        let (mesh, draining) = (self.mesh.mesh.clone(), self.stages.draining.clone());
        Parts { env, group, issuer, certificates, enroller, metrics, mesh, problems, served, draining }
    }

    /// The tasks of the replica. One that is added here is supervised like the others, and ends with them.
    pub fn tasks(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    /// Starts what makes the replica known: its phase in the group, upon which others hand sidecars over to
    /// it, the administration in place of that of the start, and the port of metrics, which says that it is
    /// ready.
    pub async fn announce(self, starting: Option<StartingAdmin>) -> Result<Handle, StartError> {
        let Self { xds, metrics_listen, socket, replica, mesh, sidecars, mut tasks, stages } = self;
        let socket = match starting {
            Some(starting) => Some(starting.end().await),
            None => bind_admin(socket.as_deref()).await?,
        };
        let copy = LastKnownAge::watch(&replica.group, &mesh.served, &mut tasks);
        let ready = replica.readiness(stages.draining.clone());
        let ready = move || ready() && copy.may_serve();
        let shards = start_shards(&replica, &mesh, sidecars, &stages, ready.clone(), &mut tasks)?;
        let administration = start_administration(socket, &replica, mesh, shards.clone(), &mut tasks);
        let mut addresses = Addresses { xds, metrics: None };
        let Replica { env, proxies, metrics, .. } = replica;
        if let Some(address) = metrics_listen {
            let listening = env.network.listen(address).await;
            let listener =
                listening.map_err(|source| StartError::Listen { purpose: "metrics", address, source })?;
            addresses.metrics = Some(listener.address());
            http::start(listener, metrics.clone(), ready.clone(), &mut tasks);
        }
        let ready = Arc::new(ready);
        Ok(Handle { addresses, administration, proxies, shards, metrics, tasks, stages, ready })
    }
}

/// Starts replicas.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a replica that has nothing of a platform. It listens when this returns, and answers proxies
    /// once its source has synced. `shutdown` ends it, provided that the handle is joined.
    pub async fn start(
        config: Config,
        env: Env,
        storage: Storage,
        shutdown: CancellationToken,
    ) -> Result<Handle, StartError> {
        Self::open(config, env, storage, shutdown).await?.announce(None).await
    }

    /// Starts a replica as [`Server::start`] does, up to where it is made known.
    pub async fn open(
        config: Config,
        env: Env,
        storage: Storage,
        shutdown: CancellationToken,
    ) -> Result<Opened, StartError> {
        let Storage { group, keys, mesh: source } = storage;
        let port = bind(&*env.network, config.xds_listen).await?;
        let xds = port.address();
        let replica = Replica::open(&config, env, group, keys, xds).await?;
        let stages = Stages::new(shutdown);
        let mut tasks = Tasks::new(stages.stopping.clone());

        let mesh = start_mesh(&config, &replica, source, &mut tasks);
        // Before the xDS port: no released certificate may go unnoticed once proxies are connected.
        ReleaseWatcher::start(replica.ledger(), replica.proxies.clone(), &mut tasks);
        start_xds(port, &config, &replica, &mesh, &stages, &mut tasks);
        let Replica { env, certificates, proxies, group, .. } = &replica;
        OrphanReleaser::new(certificates, &mesh.mesh, &mesh.served, env, config.release_grace)
            .start(&mut tasks);
        IdentityForgetter {
            ca: Arc::clone(&replica.ca),
            group: Arc::clone(group),
            wanted: mesh.wanted.clone(),
            served: mesh.served.clone(),
            env: env.clone(),
        }
        .start(&mut tasks);
        health::start(group.failure(), proxies.clone(), xds, &mut tasks);
        let sidecars = start_sidecars(&config, &replica, &mesh, &mut tasks);
        let Config { metrics_listen, admin_socket: socket, .. } = config;
        Ok(Opened { xds, metrics_listen, socket, replica, mesh, sidecars, tasks, stages })
    }
}

/// Starts the source, the publisher, and what keeps the certificates, the CA and the clock.
fn start_mesh(
    config: &Config,
    replica: &Replica,
    mut source: Box<dyn Source>,
    tasks: &mut Tasks,
) -> Published {
    let Replica { env, group, ca, tls, proxies, settings: obeyed, metrics, .. } = replica;
    let SidecarLimits { stream_duration, request_retries, .. } = config.sidecars;
    let (settings, mesh_namespace) =
        (Settings::new(config.trust_domain.clone()), config.mesh_namespace.clone());
    let compiler = Compiler::new(Settings { mesh_namespace, stream_duration, request_retries, ..settings });
    let (inputs, published) = Publisher::start(compiler, ca.bundle(), obeyed.clone(), metrics.clone(), tasks);
    let InputSenders { batches, certificates: issued, bundle } = inputs;
    source.report_to(metrics);
    tasks.spawn_fallible("source", |stopping| source.run(batches, stopping));
    let wanted = &published.wanted;
    CertificateMetrics::new(&replica.ledger(), ca, tls, wanted, metrics).start(tasks);
    let (issuer, wanted) = (replica.issuer(), wanted.clone());
    Renewer { issuer, env: env.clone(), wanted, issued }.start(tasks);
    let mesh = published.mesh.clone();
    let trust = ReplicaTrust { mesh, tls: Arc::clone(tls), proxies: proxies.clone() };
    let (roots, problems) = (published.roots.clone(), published.problems.clone());
    let declared = Declarations { roots, report: Box::new(move |obstacles| problems.set_roots(obstacles)) };
    CaKeeper::start(Arc::clone(ca), Arc::clone(group), bundle, Box::new(trust), declared, env.clone(), tasks);
    ClockWatch::start(ca, group, metrics, tasks);
    tls.start_renewal("controller certificate", tasks);
    published
}

fn start_xds(
    port: Box<dyn Bound>,
    config: &Config,
    replica: &Replica,
    mesh: &Published,
    stages: &Stages,
    tasks: &mut Tasks,
) {
    let Replica { env, tls, certificates, proxies, refusals, metrics, .. } = replica.clone();
    let context = xds::context::Context {
        served: mesh.served.clone(),
        followers: mesh.followers.clone(),
        admission: ProxyAdmission::new(certificates, env.clone()),
        proxies,
        refusals,
        problems: mesh.problems.clone(),
        env,
        metrics,
        tasks: stages.streams.clone(),
        answer_limit: config.answer_limit,
        idle_limit: config.idle_limit,
        draining: stages.draining.clone(),
    };
    xds::start(port, tls, context, stages.closing.clone(), tasks);
}

/// Starts the watch over the sidecars of the whole mesh.
fn start_sidecars(config: &Config, replica: &Replica, published: &Published, tasks: &mut Tasks) -> Sidecars {
    let Replica { proxies, refusals, metrics, group, .. } = replica;
    let Published { problems, mesh, served, .. } = published;
    let grace = config.time_to_connect;
    let sidecars = Sidecars::new(proxies, refusals, problems, metrics, grace);
    let (group, mesh, served) = (Arc::clone(group), mesh.clone(), served.clone());
    SidecarWatch { sidecars: sidecars.clone(), group, mesh, served, grace }.start(tasks);
    sidecars
}

fn start_shards(
    replica: &Replica,
    mesh: &Published,
    sidecars: Sidecars,
    stages: &Stages,
    ready: impl Fn() -> bool + Send + Sync + 'static,
    tasks: &mut Tasks,
) -> Result<Shards, NoEntropy> {
    let Replica { env, group, controllers, proxies, .. } = replica.clone();
    let reports = Arc::new(Reports {
        mesh: mesh.mesh.clone(),
        proxies: proxies.clone(),
        problems: mesh.problems.clone(),
        served: mesh.served.clone(),
        since: Arc::new(Since::default()),
    });
    let reports = Box::new(move |question| Arc::clone(&reports).answered(question));
    let draining = stages.draining.clone();
    let (ready, stops) = (Box::new(ready), Box::new(move || draining.is_cancelled()));
    let served = mesh.served.clone();
    let parts = shards::Parts { group, env, controllers, proxies, reports, sidecars, served, ready, stops };
    Shards::start(parts, tasks)
}

fn start_administration(
    socket: Option<AdminSocket>,
    replica: &Replica,
    mesh: Published,
    shards: Shards,
    tasks: &mut Tasks,
) -> Administration {
    let Replica { ca, certificates, enroller, group, proxies, .. } = replica.clone();
    let Published { mesh, served, .. } = mesh;
    let service = AdminService { mesh, ca, certificates, enroller, group, shards, proxies, served };
    admin::start(service, socket, tasks)
}

async fn bind(network: &dyn Network, address: SocketAddr) -> Result<Box<dyn Bound>, StartError> {
    network.bind(address).await.map_err(|source| StartError::Listen { purpose: "xDS", address, source })
}

async fn bind_admin(path: Option<&Path>) -> Result<Option<AdminSocket>, SocketError> {
    match path {
        Some(path) => Ok(Some(AdminSocket::bind(path).await?)),
        None => Ok(None),
    }
}
