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
mod health;
mod shutdown;
#[cfg(test)]
mod tests;
mod trust;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use smc_authority::pki::{InvalidLifetime, Lifetimes};
use smc_host::network::{Listener, Network};
use smc_mesh::bootstrap::Controllers;
use smc_mesh::translate::{Compiler, Settings};
use smc_raft::{Group, ReplicatedLedger};
use smc_types::ids::{MeshNamespace, TrustDomain};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, AdminService, AdminSocket, Administration, SocketError};
use crate::ca::keeper::CaKeeper;
use crate::ca::metrics::CertificateMetrics;
use crate::ca::renewal::Renewer;
use crate::ca::seal::KeyEncryption;
use crate::ca::tls::ServerTls;
use crate::ca::{BuiltinCa, CaError, CaSettings, ClockError, ControllerNames, Issuer, ProxyCertificates};
use crate::config::{Config, SidecarLimits};
use crate::enroll::Enroller;
use crate::group_time::{ClockWatch, corrected};
use crate::publisher::{InputSenders, Published, Publisher};
use crate::registry::admission::ProxyAdmission;
use crate::registry::orphan_releaser::OrphanReleaser;
use crate::registry::release_watcher::ReleaseWatcher;
use crate::shards::{self, Drain, Shards};
use crate::sources::Source;
use crate::status::{Reports, Since};
pub use crate::tasks::TaskEnded;
use crate::tasks::Tasks;
use crate::telemetry::{self, Metrics};
use crate::xds;
use crate::xds::proxies::Proxies;
use addresses::{addresses_for_proxies, certificate_names};
use shutdown::Stages;
use smc_host::env::{Env, NoEntropy};
use trust::ReplicaTrust;
pub use webhook::Webhooks;

/// The state of a replica, and the source of its mesh.
pub struct Storage {
    /// This replica's member of the Raft group that keeps the ledger. The caller stops it after the server.
    pub group: Arc<Group>,
    /// Seals the keys of the CA.
    pub keys: Arc<dyn KeyEncryption>,
    /// The source of the declared mesh.
    pub mesh: Box<dyn Source>,
    /// The webhooks, for a replica in a Kubernetes cluster.
    pub webhooks: Option<Webhooks>,
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
    #[error("cannot draw the number of this process")]
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
    /// The port of the webhooks.
    pub webhooks: Option<SocketAddr>,
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

    /// Runs until the shutdown that was passed to [`Server::start`] is requested, or a task ends by itself.
    /// Then drains: streams end with OK, connections with GOAWAY, and the tasks after them. Returns within
    /// ten seconds of the request, whatever the proxies do.
    pub async fn join(self) -> Result<(), ServerError> {
        shutdown::run(self.tasks, self.stages).await
    }
}

/// The compiler of an empty mesh.
fn compiler(trust_domain: TrustDomain, mesh_namespace: MeshNamespace, sidecars: SidecarLimits) -> Compiler {
    let SidecarLimits { stream_duration, request_retries, .. } = sidecars;
    let settings = Settings::new(trust_domain);
    Compiler::new(Settings { mesh_namespace, stream_duration, request_retries, ..settings })
}

/// Starts replicas.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a replica. It listens when this returns, and answers proxies once its source has synced.
    /// `shutdown` ends it, provided that the handle is joined.
    #[expect(clippy::too_many_lines, reason = "the wiring of a replica, in the order in which parts start")]
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
            sidecars,
            max_connections,
            answer_limit,
            idle_limit,
        } = config;
        let lifetimes = Lifetimes::with_service(service_cert_lifetime)?;
        let port = env.network.bind(xds_listen).await;
        let port =
            port.map_err(|source| StartError::Listen { purpose: "xDS", address: xds_listen, source })?;
        let xds = port.address();
        let Storage { group, keys, mesh: mut source, webhooks } = storage;
        let controllers = addresses_for_proxies(group.status().replica, xds_replicas, xds_address, xds)?;
        let admin_socket = bind_admin(admin_socket).await?;
        let env = corrected(env, Arc::<Group>::clone(&group));
        let settings = CaSettings { trust_domain: trust_domain.clone(), lifetimes };
        let (ca, tls) =
            authority(&group, keys, &env, settings, certificate_names(controllers.values())).await?;
        let controllers = Arc::new(Controllers::new(controllers));

        let ledger: Arc<dyn ReplicatedLedger> = Arc::<Group>::clone(&group);
        let issuer: Arc<dyn Issuer> = Arc::<BuiltinCa>::clone(&ca);
        let certificates = ProxyCertificates::new(Arc::clone(&ledger), env.clone());
        let metrics = Metrics::new();
        let proxies = Proxies::new(max_connections, metrics.clone());
        let stages = Stages::new(shutdown);
        let mut tasks = Tasks::new(stages.stopping.clone());

        let compiler = compiler(trust_domain, mesh_namespace.clone(), sidecars);
        let (inputs, published) = Publisher::start(compiler, ca.bundle(), metrics.clone(), &mut tasks);
        let Published { served, uptake, wanted, problems, mesh } = published;
        let InputSenders { batches, certificates: issued, bundle } = inputs;
        source.report_to(&metrics);
        tasks.spawn_fallible("source", |stopping| source.run(batches, stopping));
        CertificateMetrics::new(&ledger, &ca, &tls, &wanted, &metrics).start(&mut tasks);
        Renewer { issuer: Arc::clone(&issuer), env: env.clone(), wanted, issued }.start(&mut tasks);
        let trust = ReplicaTrust { mesh: mesh.clone(), tls: Arc::clone(&tls), proxies: proxies.clone() };
        let (kept, members) = (Arc::clone(&ca), Arc::clone(&group));
        CaKeeper::start(kept, members, bundle, Box::new(trust), env.clone(), &mut tasks);
        ClockWatch::start(&ca, &group, &metrics, &mut tasks);
        tls.start_renewal("controller certificate", &mut tasks);
        // Before the xDS port: no released certificate may go unnoticed once proxies are connected.
        ReleaseWatcher::start(ledger, proxies.clone(), &mut tasks);
        let context = xds::context::Context {
            served: served.clone(),
            uptake,
            admission: ProxyAdmission::new(certificates.clone(), env.clone()),
            proxies: proxies.clone(),
            problems: problems.clone(),
            env: env.clone(),
            metrics: metrics.clone(),
            tasks: stages.streams.clone(),
            answer_limit,
            idle_limit,
            draining: stages.draining.clone(),
        };
        xds::start(port, tls, context, stages.closing.clone(), &mut tasks);
        OrphanReleaser::new(&certificates, &mesh, &served, &env, release_grace).start(&mut tasks);
        health::start(group.failure(), proxies.clone(), xds, &mut tasks);
        let enroller = Enroller::new(issuer, Arc::clone(&controllers), sidecars.inbound_connections);
        let reports = Reports {
            mesh: mesh.clone(),
            proxies: proxies.clone(),
            problems: problems.clone(),
            served: served.clone(),
            since: Arc::new(Since::default()),
        };
        let reports = Arc::new(reports);
        let mut addresses = Addresses { xds, metrics: None, webhooks: None };
        if let Some(webhooks) = webhooks {
            let parts = webhook::Parts {
                namespace: mesh_namespace,
                issuer: Arc::<BuiltinCa>::clone(&ca),
                enroller: enroller.clone(),
                certificates: certificates.clone(),
                group: Arc::clone(&group),
                mesh: mesh.clone(),
                served: served.clone(),
                problems,
                metrics: metrics.clone(),
                env: env.clone(),
                draining: stages.draining.clone(),
            };
            addresses.webhooks = Some(webhook::start(webhooks, parts, &mut tasks).await?);
        }
        let ready = ready(proxies.clone(), stages.draining.clone(), Arc::clone(&group));
        let draining = stages.draining.clone();
        let parts = shards::Parts {
            group: Arc::clone(&group),
            env: env.clone(),
            controllers,
            proxies: proxies.clone(),
            reports: Box::new(move |question| Arc::clone(&reports).answered(question)),
            ready: Box::new(ready.clone()),
            stops: Box::new(move || draining.is_cancelled()),
        };
        let shards = Shards::start(parts, &mut tasks)?;
        let connected = proxies.clone();
        let kept = shards.clone();
        let service = AdminService {
            mesh,
            ca,
            certificates,
            enroller,
            group,
            shards: kept,
            proxies: connected,
            served,
        };
        let administration = admin::start(service, admin_socket, &mut tasks);
        if let Some(address) = metrics_listen {
            let listener = listen(&*env.network, "metrics", address).await?;
            addresses.metrics = Some(listener.address());
            telemetry::start(listener, metrics.clone(), ready.clone(), &mut tasks);
        }
        let ready = Arc::new(ready);
        Ok(Handle { addresses, administration, proxies, shards, metrics, tasks, stages, ready })
    }
}

/// Whether a replica is ready: it takes proxies, serves its sources' mesh, and its clock is not known to be
/// wrong.
fn ready(
    proxies: Proxies,
    draining: CancellationToken,
    group: Arc<Group>,
) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
    move || {
        let clock_is_wrong = ClockError::check(&group.time()).is_err_and(ClockError::is_known);
        !draining.is_cancelled() && proxies.accepts() && proxies.is_open() && !clock_is_wrong
    }
}

/// Opens the CA, and issues the server's certificate.
async fn authority(
    group: &Arc<Group>,
    keys: Arc<dyn KeyEncryption>,
    env: &Env,
    settings: CaSettings,
    names: ControllerNames,
) -> Result<(Arc<BuiltinCa>, Arc<ServerTls>), StartError> {
    let ledger: Arc<dyn ReplicatedLedger> = Arc::<Group>::clone(group);
    let ca = BuiltinCa::open(ledger, keys, env.clone(), settings).await.map_err(StartError::Authority)?;
    let ca = Arc::new(ca);
    let issuer: Arc<dyn Issuer> = Arc::<BuiltinCa>::clone(&ca);
    let tls = ServerTls::start(issuer, env.clone(), names).await.map_err(StartError::OwnCertificate)?;
    Ok((ca, Arc::new(tls)))
}

async fn bind_admin(path: Option<PathBuf>) -> Result<Option<AdminSocket>, SocketError> {
    match path {
        Some(path) => Ok(Some(AdminSocket::bind(&path).await?)),
        None => Ok(None),
    }
}

async fn listen(
    network: &dyn Network,
    purpose: &'static str,
    address: SocketAddr,
) -> Result<Box<dyn Listener>, StartError> {
    network.listen(address).await.map_err(|source| StartError::Listen { purpose, address, source })
}
