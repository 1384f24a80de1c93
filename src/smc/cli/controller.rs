//! `smc controller`: runs a replica until SIGTERM or SIGINT.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use smc_host::env::Env;
use smc_host::files::make_directory;
use smc_host::tasks::Tasks;
use smc_issuing::group_time::clock_agrees;
use smc_issuing::seal::{KeyEncryption, KeyFileError, KeyRing};
use smc_kubernetes::replica::Webhooks;
use smc_kubernetes::stateful_set::{self, Departing, Departure, GroupRecord, OlderDisks, OwnPod};
use smc_mesh::translate::{MAX_REQUEST_RETRIES, REQUEST_RETRIES};
use smc_server::admin::StartingAdmin;
use smc_server::config::{ANSWER_LIMIT, Config, IDLE_LIMIT, SidecarLimits, TIME_TO_CONNECT};
use smc_server::probes::{self, Probes};
use smc_server::source::Source;
use smc_server::{Opened, Server, StartError, Storage};
use smc_sidecar::bootstrap::INBOUND_CONNECTIONS;
use smc_types::host_port::{HostPort, ReplicaAddress};
use smc_types::ids::{ReplicaId, TrustDomain};
use smc_xds::connections::{MAX_CONNECTIONS, max_connections};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::duration;
use super::end::{self, Signals};
use super::mesh_source::{MeshArgs, last_known_mesh};
use super::outcome::{Outcome, Verdict};
use super::replica::ReplicaArgs;
use super::stateful_set::{InStatefulSet, StatefulSetArgs};
use super::webhook::WebhookArgs;
use crate::log_args::{LevelInForce, LogArgs};

/// Flags of `smc controller`.
#[derive(Debug, Args)]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    mesh: MeshArgs,
    /// The directory of the controller's state
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    stateful_set: StatefulSetArgs,
    /// The key-encryption key that seals the certificate authority's keys
    ///
    /// FILE.founded beside it records that an authority was founded with it. If the record exists and the
    /// ledger is empty, the controller does not start: the ledger was lost, and a new authority would cut off
    /// every sidecar.
    #[arg(long, value_name = "FILE")]
    kek_file: PathBuf,
    /// Another key-encryption key that is accepted while the key changes: the next or the previous one
    ///
    /// To change the key, restart the replicas one by one with the next key here, then with the next key as
    /// --kek-file and the previous one here; run `smc ca rekey`; restart them with the next key only.
    #[arg(long = "also-kek-file", value_name = "FILE")]
    other_kek_files: Vec<PathBuf>,
    /// Create the key-encryption key if the file is missing
    #[arg(long)]
    create_kek: bool,
    /// The address to listen on for proxies
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:15128")]
    xds_listen: SocketAddr,
    /// The address in bootstraps; required unless --xds-listen is a single address
    #[arg(long, value_name = "HOST:PORT")]
    xds_address: Option<HostPort>,
    /// The address of a replica in bootstraps, once for each replica, this one included
    ///
    /// Bootstraps name all replicas, in an order that differs by sidecar. A sidecar whose replica is gone
    /// connects to the next one.
    #[arg(long = "xds-replica", value_name = "N=HOST:PORT", conflicts_with = "xds_address")]
    xds_replicas: Vec<ReplicaAddress>,
    /// The unix socket of the administration API [default: DATA_DIR/admin.sock]
    #[arg(long, value_name = "PATH")]
    admin_socket: Option<PathBuf>,
    /// The address to serve /metrics, /healthz, /readyz and /startupz on [default: not served]
    #[arg(long, value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    /// The address to answer probes on, by gRPC: startup, liveness and readiness [default: not served]
    ///
    /// They are answered from the first moment on, also while the replica waits for its group.
    #[arg(long, value_name = "ADDR")]
    probes_listen: Option<SocketAddr>,
    /// The trust domain of every identity
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", value_parser = TrustDomain::new)]
    trust_domain: TrustDomain,
    /// How long to hand sidecars over to other replicas at the end; 0s for not at all
    ///
    /// A signal begins it. The other replicas take the sidecars as fast as they cope. What is left after this
    /// time is ended at once, as with a second signal. Beside it an end takes 15 seconds, and of a replica
    /// that is scaled away 45.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    drain_limit: Duration,
    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    log: LogArgs,
    /// The lifetime of service certificates, unless MeshConfig sets it
    #[arg(long, value_name = "DURATION", default_value = "48h", value_parser = duration::parse)]
    service_cert_lifetime: Duration,
    /// How long a pod must be gone, or have another service account, before its certificates are released
    ///
    /// A released proxy certificate is refused for good: its sidecar needs a new bootstrap. The grace period
    /// keeps a short failure of the mesh directory, or of the platform's API, from locking out running
    /// sidecars. A pod's certificate that no sidecar has used has a minute at least, and five minutes where
    /// the pod has not appeared yet.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    release_grace: Duration,
    /// How long a request to an application may take; 0s for without end
    ///
    /// Policy is asked when a request begins. A stream, watch or websocket that is no longer allowed ends
    /// after this time at the latest. A year is the most.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    max_stream_duration: Duration,
    /// The most connections to a sidecar's inbound port, those of strangers included
    ///
    /// Further ones are closed at once. A sidecar may have four times as many connections in all, those of
    /// its own application included. New bootstraps have it; each connection may cost some 50 KiB.
    #[arg(long, value_name = "NUMBER", default_value_t = INBOUND_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sidecar_connections: u32,
    /// How often a sidecar sends a request again that was certainly not processed, to another pod if there is
    /// one; 0 for never
    ///
    /// Only what cannot have reached an application is sent again: the connection to the pod or to its
    /// application was refused, or was interrupted before the request was written.
    #[arg(long, value_name = "N", default_value_t = REQUEST_RETRIES,
        value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_REQUEST_RETRIES)))]
    request_retries: u32,
}

fn by_replica(addresses: Vec<ReplicaAddress>) -> Result<BTreeMap<ReplicaId, HostPort>, ControllerError> {
    let mut by_replica = BTreeMap::new();
    for ReplicaAddress { replica, address } in addresses {
        if by_replica.insert(replica, address).is_some() {
            return Err(ControllerError::Twice(replica));
        }
    }
    Ok(by_replica)
}

/// The directory of a replica's ledger.
pub(super) fn ledger_directory(data_dir: &Path) -> PathBuf {
    data_dir.join("ledger")
}

/// The runtimes beside the main one.
#[derive(Clone, Copy)]
pub(super) struct Runtimes<'a> {
    /// A replica whose proxies, or whose mesh, keep every other thread busy still sends and answers
    /// heartbeats, and commits.
    pub(super) raft: &'a Handle,
    /// Nothing that proxies do keeps it busy, and strangers who ask it keep the group's threads free.
    pub(super) probes: &'a Handle,
}

/// Runs a replica.
#[expect(clippy::too_many_lines, reason = "each flag goes to its place")]
pub(super) async fn run(args: ControllerArgs, env: Env, runtimes: Runtimes<'_>) -> Outcome {
    let ControllerArgs {
        mesh,
        data_dir,
        replica,
        stateful_set,
        kek_file,
        other_kek_files,
        create_kek,
        xds_listen,
        xds_address,
        xds_replicas,
        admin_socket,
        metrics_listen,
        probes_listen,
        trust_domain,
        drain_limit,
        webhook,
        log,
        service_cert_lifetime,
        release_grace,
        max_stream_duration,
        sidecar_connections,
        request_retries,
    } = args;
    let (summaries, log_level) = log.start_logging();
    let signals = Signals::new().map_err(ControllerError::Signals)?;
    let _at_latest = end::at_latest(runtimes.probes, drain_limit).map_err(ControllerError::Signals)?;
    let running = CancellationToken::new();
    let mut tasks = Tasks::new(running.clone());
    tasks.spawn("log", |stopping| summaries.log(stopping));
    let probes = Probes::default();
    listen_for_probes(probes_listen, &probes, &env, runtimes.probes, &mut tasks).await?;
    let pod = stateful_set.place(&mesh.namespace, xds_listen)?;
    let key_files = KeyFiles { kek_file, other_kek_files, create_kek };
    let keys = match &pod {
        Some(_) => open_mounted_keys(data_dir.clone(), key_files, env.clone()).await?,
        None => open_keys(data_dir.clone(), key_files, env.clone()).await?,
    };
    let replica = match &pod {
        Some(pod) => ReplicaArgs::of_pod(pod, Arc::new(pod.founding(&*keys))),
        None => replica,
    };
    let xds_replicas = match &pod {
        Some(pod) => pod.placement.xds.clone(),
        None => by_replica(xds_replicas)?,
    };
    let kubernetes = mesh.client().await?;
    let (source, webhooks): (Box<dyn Source>, _) = match &kubernetes {
        Some(client) => {
            let source = mesh.kubernetes(client, &data_dir, &env);
            let webhooks = webhook.webhooks(&mesh, Some((client, &source))).await?;
            (Box::new(source), webhooks)
        }
        None => (Box::new(mesh.directory(&data_dir)), webhook.webhooks(&mesh, None).await?),
    };
    let ledger = smc_raft::Storage::Directory(ledger_directory(&data_dir));
    let group = Arc::new(replica.start_on(runtimes.raft, ledger, Arc::clone(&keys), env.clone()).await?);
    probes.note_start();
    if let Some(pod) = &pod {
        pod.keep(&group, &mut tasks);
    }
    let own_pod = pod.as_ref().map(InStatefulSet::own_pod);
    let record = pod.as_ref().map(|pod| pod.record(&group));
    let departing = pod.map(|pod| pod.departing(&data_dir));
    let config = Config {
        xds_listen,
        xds_address,
        xds_replicas,
        admin_socket: Some(admin_socket.unwrap_or_else(|| data_dir.join("admin.sock"))),
        metrics_listen,
        trust_domain,
        mesh_namespace: mesh.namespace,
        service_cert_lifetime,
        release_grace,
        sidecars: SidecarLimits {
            inbound_connections: sidecar_connections,
            stream_duration: max_stream_duration,
            request_retries,
        },
        max_connections: connections(open_files()?),
        answer_limit: ANSWER_LIMIT,
        idle_limit: IDLE_LIMIT,
        time_to_connect: TIME_TO_CONNECT,
    };
    let starting = Starting {
        config,
        env,
        storage: Storage { group: Arc::clone(&group), keys, mesh: source },
        webhooks,
        own_pod,
        record,
        log_level,
    };
    let served = Box::pin(serve(starting, signals, probes, departing.as_ref(), drain_limit)).await;
    if let (Ok(Some(departure)), Some(departing)) = (&served, &departing) {
        departing.end(&group, *departure).await;
    }
    running.cancel();
    drop(tasks);
    group.stop().await;
    served.map(|_| Verdict::Ok)
}

/// Answers probes on `runtime`.
async fn listen_for_probes(
    address: Option<SocketAddr>,
    probes: &Probes,
    env: &Env,
    runtime: &Handle,
    tasks: &mut Tasks,
) -> Result<(), ControllerError> {
    let Some(address) = address else { return Ok(()) };
    let network = Arc::clone(&env.network);
    let listening = runtime.spawn(async move { network.listen(address).await });
    let listener = listening.await.map_err(ControllerError::Opening)?;
    let listener = listener.map_err(|source| ControllerError::Probes { address, source })?;
    let _entered = runtime.enter();
    probes::start(listener, probes.clone(), tasks);
    Ok(())
}

/// Raises the limit of open files to the hard limit, and returns it. The usual soft limit of 1,024 would
/// allow that many sidecars; a service manager leaves the hard limit far above.
fn open_files() -> Result<u64, ControllerError> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(ControllerError::OpenFiles)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(ControllerError::OpenFiles)?;
    Ok(hard)
}

/// How many proxies may be connected with this limit of open files. Warns if the limit is low.
fn connections(open_files: u64) -> usize {
    let connections = max_connections(open_files);
    if connections < MAX_CONNECTIONS / 2 {
        warn!(open_files, connections, "the limit of open files bounds how many proxies can connect");
    }
    connections
}

/// What a replica is made of, once it belongs to a group.
struct Starting {
    config: Config,
    env: Env,
    storage: Storage,
    webhooks: Option<Webhooks>,
    own_pod: Option<OwnPod>,
    record: Option<GroupRecord>,
    log_level: LevelInForce,
}

/// Returns why this replica must not go on: its group was replaced or has removed it, its place was taken, or
/// its pod is another.
async fn expelled(
    group: &smc_raft::Group,
    own_pod: Option<OwnPod>,
    departing: Option<&Departing>,
) -> Failure {
    let former = async {
        match own_pod {
            Some(pod) => pod.replaced().await,
            None => std::future::pending().await,
        }
    };
    let removed = async {
        match departing {
            Some(departing) => departing.removed(group).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        replaced = group.replaced() => replaced.into(),
        replaced = former => replaced.into(),
        removed = removed => removed.into(),
    }
}

/// Waits until a person confirms that the group goes on, if the record of it says that all disks are older.
async fn allowed(record: Option<&GroupRecord>, starting: Option<&StartingAdmin>) {
    let say = |older: &OlderDisks| {
        warn!("waiting for {older}");
        if let Some(starting) = starting {
            starting.waits_for(older.to_string());
        }
    };
    if let Some(record) = record {
        record.allows(say).await;
    }
}

/// Serves once the replica belongs to a group, until a signal arrives or a task fails. A pod that the group
/// removed ends at once, whether it did not run then or has just come back: it joins again at its next start.
/// A leader hands its leadership over before the streams end. Returns what the end means for the membership,
/// where that is known.
async fn serve(
    starting: Starting,
    mut signals: Signals,
    probes: Probes,
    departing: Option<&Departing>,
    drain_limit: Duration,
) -> Result<Option<Departure>, Failure> {
    let Starting { config, env, storage, webhooks, own_pod, record, log_level } = starting;
    let group = Arc::clone(&storage.group);
    let depart = async || {
        if let Some(departing) = departing {
            Some(departing.begin(&group).await)
        } else {
            group.hand_over_in_time(|_| true).await;
            None
        }
    };
    let expelled = expelled(&group, own_pod, departing);
    tokio::pin!(expelled);
    let starting = match &config.admin_socket {
        Some(socket) => Some(StartingAdmin::start(socket, Arc::clone(&group)).await?),
        None => None,
    };
    tokio::select! {
        ready = group.ready() => ready?,
        expelled = &mut expelled => return Err(expelled),
        () = signals.any() => return Ok(depart().await),
    }
    let may_serve = async {
        clock_agrees(&group).await;
        allowed(record.as_ref(), starting.as_ref()).await;
    };
    tokio::select! {
        () = may_serve => {}
        expelled = &mut expelled => return Err(expelled),
        () = signals.any() => return Ok(depart().await),
    }
    let shutdown = CancellationToken::new();
    let opened = Server::open(config, env, storage, shutdown.clone());
    // Some of it waits for the group, which may have lost its majority again.
    let handle = tokio::select! {
        announced = announced(opened, webhooks, record, starting, log_level) => announced?,
        expelled = &mut expelled => return Err(expelled),
        () = signals.any() => return Ok(depart().await),
    };
    probes.decide_by(handle.readiness());
    let drain = handle.drain();
    let joined = handle.join();
    tokio::pin!(joined);
    tokio::select! {
        ended = &mut joined => {
            ended?;
            Ok(None)
        }
        // At once: until its end it would issue beside the other group, and hold sidecars that it cannot
        // admit.
        expelled = &mut expelled => {
            shutdown.cancel();
            joined.await?;
            Err(expelled)
        }
        () = signals.any() => {
            let departure = depart().await;
            tokio::select! {
                () = drain.before_stop(drain_limit) => {}
                () = signals.any() => info!("a second signal: the streams end at once"),
                // It failed meanwhile.
                ended = &mut joined => {
                    ended?;
                    return Ok(departure);
                }
            }
            shutdown.cancel();
            joined.await?;
            Ok(departure)
        }
    }
}

/// Opens a replica, with what belongs to its platform, and makes it known.
async fn announced(
    opened: impl Future<Output = Result<Opened, StartError>>,
    webhooks: Option<Webhooks>,
    record: Option<GroupRecord>,
    starting: Option<StartingAdmin>,
    log_level: LevelInForce,
) -> Result<smc_server::Handle, Failure> {
    let mut opened = opened.await?;
    let settings = opened.settings();
    opened.tasks().spawn("log level", |stopping| log_level.follow(settings, stopping));
    let gateways = opened.gateway_keeper();
    match webhooks {
        Some(webhooks) => {
            let secrets = Box::new(webhooks.gateway_secrets());
            smc_kubernetes::replica::start(webhooks, opened.parts(), opened.tasks()).await?;
            gateways.start(secrets, opened.tasks());
        }
        None => gateways.start(Box::new(()), opened.tasks()),
    }
    if let Some(record) = record {
        opened.tasks().spawn_fallible("group record", |stopping| record.run(stopping));
    }
    Ok(opened.announce(starting).await?)
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A replica cannot be started.
#[derive(Debug, Error)]
enum ControllerError {
    /// Signal handlers cannot be installed.
    #[error("cannot listen for SIGTERM and SIGINT")]
    Signals(#[source] std::io::Error),
    /// The limit of open files, which bounds connections, cannot be raised.
    #[error("cannot raise the limit of open files")]
    OpenFiles(#[source] nix::Error),
    /// The flags contradict each other.
    #[error("--xds-replica names replica {0} twice")]
    Twice(ReplicaId),
    /// The opening task panicked, which is a bug.
    #[error("opening the data directory was interrupted")]
    Opening(#[source] tokio::task::JoinError),
    /// The port for probes cannot be opened.
    #[error("cannot listen on {address} for probes")]
    Probes {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// The files of the key-encryption keys.
#[derive(Debug, Clone)]
struct KeyFiles {
    kek_file: PathBuf,
    other_kek_files: Vec<PathBuf>,
    create_kek: bool,
}

/// Creates the data directory and opens the key-encryption key, on a thread that may block.
async fn open_keys(data_dir: PathBuf, files: KeyFiles, env: Env) -> Result<Arc<dyn KeyEncryption>, Failure> {
    let opened = tokio::task::spawn_blocking(move || -> Result<Arc<dyn KeyEncryption>, Failure> {
        // Private, since it holds sealed keys and the record of every certificate.
        make_directory(&data_dir)?;
        let KeyFiles { kek_file, other_kek_files, create_kek } = files;
        Ok(Arc::new(KeyRing::load(&kek_file, &other_kek_files, create_kek, &env)?))
    });
    opened.await.map_err(ControllerError::Opening)?
}

/// How long to wait for a key that is not mounted yet. The kubelet mounts a Secret that was made after the
/// pod within its sync period, a minute by default, mostly at once.
const MOUNTING: Duration = Duration::from_mins(2);

/// The pause between two looks for it.
const MOUNTING_LOOK: Duration = Duration::from_millis(500);

/// As [`open_keys`], for keys that Kubernetes mounts, and the data directory of a pod: one whose replica left
/// the group begins with an empty ledger, and without a last known mesh.
async fn open_mounted_keys(
    data_dir: PathBuf,
    files: KeyFiles,
    env: Env,
) -> Result<Arc<dyn KeyEncryption>, Failure> {
    let open = move |missing_is_fatal: bool| -> Result<Option<Arc<dyn KeyEncryption>>, Failure> {
        make_directory(&data_dir)?;
        stateful_set::sweep(&data_dir, &ledger_directory(&data_dir), &last_known_mesh(&data_dir))?;
        match KeyRing::mounted(&files.kek_file, &files.other_kek_files, &env) {
            Ok(keys) => Ok(Some(Arc::new(keys))),
            Err(KeyFileError::Missing(_)) if !missing_is_fatal => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let deadline = Instant::now() + MOUNTING;
    loop {
        let (open, late) = (open.clone(), Instant::now() >= deadline);
        let opened = tokio::task::spawn_blocking(move || open(late)).await;
        match opened.map_err(ControllerError::Opening)?? {
            Some(keys) => return Ok(keys),
            None => sleep(MOUNTING_LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_types::causes::causes;

    #[tokio::test]
    async fn a_data_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let files = KeyFiles { kek_file: file.join("kek"), other_kek_files: Vec::new(), create_kek: true };
        let opened = open_keys(file.join("data"), files, Env::system()).await;
        let error = causes(opened.err().unwrap().as_ref());
        assert!(error.starts_with("cannot ") && error.contains(&file.display().to_string()), "{error}");
    }
}
