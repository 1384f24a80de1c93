//! `smc controller`: runs a replica until it is told to stop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use smc_mesh::bootstrap::{ControllerAddress, InvalidAddress};
use smc_mesh::connections::{MAX_CONNECTIONS, max_connections};
use smc_mesh::ids::TrustDomain;
use smc_mesh::smi::MeshNamespace;
use smc_raft::{ReplicaId, make_directory};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::replica::ReplicaArgs;
use super::{Outcome, Verdict, duration};
use crate::ca::seal::{KeyEncryption, KeyRing};
use crate::config::{ANSWER_LIMIT, Config, IDLE_LIMIT};
use crate::env::Env;
use crate::server::{Server, Storage};
use crate::sources::DirectorySource;
use crate::telemetry::LogArgs;

/// Flags of `smc controller`.
#[derive(Debug, Args)]
pub(super) struct ControllerArgs {
    /// The directory of Kubernetes YAML that declares the mesh; watched for changes
    #[arg(long, value_name = "DIR")]
    mesh_dir: PathBuf,
    /// Where the controller keeps its state
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    replica: ReplicaArgs,
    /// The key-encryption key that seals the certificate authority's keys
    ///
    /// FILE.founded beside it notes that an authority was founded with it. Where the note is and the ledger is empty,
    /// the controller does not start: the ledger was lost, and a new authority would cut off every sidecar.
    #[arg(long, value_name = "FILE")]
    kek_file: PathBuf,
    /// Another key-encryption key that is believed, while one takes the place of another: the next or the previous one
    ///
    /// To change the key, restart the replicas one by one with the next key believed, then with the next key as
    /// --kek-file and the previous one believed; run `smc ca rekey`; restart them with the next key alone.
    #[arg(long = "also-kek-file", value_name = "FILE")]
    other_kek_files: Vec<PathBuf>,
    /// Make the key-encryption key if the file is not there
    #[arg(long)]
    create_kek: bool,
    /// Where proxies connect to
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:15128")]
    xds_listen: SocketAddr,
    /// The address written into bootstraps; needed unless --xds-listen names one address
    #[arg(long, value_name = "HOST:PORT")]
    xds_address: Option<ControllerAddress>,
    /// Where proxies connect to a replica, once for each, this one included
    ///
    /// Bootstraps name them all, each sidecar's in an order of its own, so that a sidecar whose replica is gone turns to
    /// the next one.
    #[arg(long = "xds-replica", value_name = "N=HOST:PORT", conflicts_with = "xds_address")]
    xds_replicas: Vec<XdsReplica>,
    /// The administration's unix socket [default: DATA_DIR/admin.sock]
    #[arg(long, value_name = "PATH")]
    admin_socket: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz are served; off if absent
    #[arg(long, value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    /// The domain that every identity belongs to
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", value_parser = TrustDomain::new)]
    trust_domain: TrustDomain,
    /// The control plane's own namespace: the only one whose MeshConfig counts
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    mesh_namespace: MeshNamespace,
    #[command(flatten)]
    log: LogArgs,
    /// How long service certificates live, where MeshConfig does not say so
    #[arg(long, value_name = "DURATION", default_value = "48h", value_parser = duration::parse)]
    service_cert_lifetime: Duration,
    /// How long a pod must be gone, or of another service account, before its proxy certificates are released
    ///
    /// A released certificate is refused for good: its sidecar needs a new bootstrap. The grace keeps a hiccup of the
    /// mesh directory, or of the platform's API, from locking out sidecars that still run.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    release_grace: Duration,
}

/// `N=HOST:PORT`.
#[derive(Debug, Clone)]
struct XdsReplica(ReplicaId, ControllerAddress);

fn by_ordinal(replicas: Vec<XdsReplica>) -> Result<BTreeMap<u64, ControllerAddress>, ControllerError> {
    let mut by_ordinal = BTreeMap::new();
    for XdsReplica(id, address) in replicas {
        if by_ordinal.insert(id.0, address).is_some() {
            return Err(ControllerError::Twice(id));
        }
    }
    Ok(by_ordinal)
}

/// It says where no replica is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum NotAReplica {
    #[error("it is not of the form N=HOST:PORT")]
    Form,
    #[error(transparent)]
    Address(#[from] InvalidAddress),
}

impl FromStr for XdsReplica {
    type Err = NotAReplica;

    fn from_str(text: &str) -> Result<Self, NotAReplica> {
        let (id, address) = text.split_once('=').ok_or(NotAReplica::Form)?;
        Ok(Self(id.parse().map_err(|_| NotAReplica::Form)?, address.parse()?))
    }
}

/// Where a replica keeps the ledger.
pub(super) fn ledger_directory(data_dir: &Path) -> PathBuf {
    data_dir.join("ledger")
}

pub(super) async fn run(args: ControllerArgs) -> Outcome {
    let ControllerArgs {
        mesh_dir,
        data_dir,
        replica,
        kek_file,
        other_kek_files,
        create_kek,
        xds_listen,
        xds_address,
        xds_replicas,
        admin_socket,
        metrics_listen,
        trust_domain,
        mesh_namespace,
        log,
        service_cert_lifetime,
        release_grace,
    } = args;
    log.start_logging();
    let signals = Signals::new().map_err(ControllerError::Signals)?;
    let env = Env::system();
    let keys = open_keys(data_dir.clone(), kek_file, other_kek_files, create_kek, env.clone()).await?;
    let ledger = smc_raft::Storage::Directory(ledger_directory(&data_dir));
    let group = Arc::new(replica.start(ledger, &*keys, &env).await?);
    let config = Config {
        xds_listen,
        xds_address,
        xds_replicas: by_ordinal(xds_replicas)?,
        admin_socket: Some(admin_socket.unwrap_or_else(|| data_dir.join("admin.sock"))),
        metrics_listen,
        trust_domain,
        mesh_namespace,
        service_cert_lifetime,
        release_grace,
        max_connections: connections(open_files()?),
        answer_limit: ANSWER_LIMIT,
        idle_limit: IDLE_LIMIT,
    };
    let mesh = Box::new(DirectorySource::new(mesh_dir, data_dir.join("last-good")));
    let served = serve(config, env, Storage { group: Arc::clone(&group), keys, mesh }, signals).await;
    group.stop().await;
    served.map(|()| Verdict::Ok)
}

/// Lets the process open as many files as it ever may, and says how many those are. The usual 1,024 would end at as many
/// sidecars; a service manager leaves the hard limit far above.
fn open_files() -> Result<u64, ControllerError> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(ControllerError::OpenFiles)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(ControllerError::OpenFiles)?;
    Ok(hard)
}

/// How many proxies may be connected with so many open files. A person hears of it when that is not many.
fn connections(open_files: u64) -> usize {
    let connections = max_connections(open_files);
    if connections < MAX_CONNECTIONS / 2 {
        warn!(open_files, connections, "the limit of open files bounds how many proxies can connect");
    }
    connections
}

/// Serves as soon as the replica's group is there, until a signal comes or something fails.
async fn serve(config: Config, env: Env, storage: Storage, signals: Signals) -> Result<(), Failure> {
    let signalled = signals.any();
    tokio::pin!(signalled);
    tokio::select! {
        ready = storage.group.ready() => ready?,
        () = &mut signalled => return Ok(()),
    }
    let shutdown = CancellationToken::new();
    let handle = Server::start(config, env, storage, shutdown.clone()).await?;
    let joined = handle.join();
    tokio::pin!(joined);
    tokio::select! {
        ended = &mut joined => ended?,
        () = &mut signalled => {
            shutdown.cancel();
            joined.await?;
        }
    }
    Ok(())
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a replica was not even started.
#[derive(Debug, Error)]
enum ControllerError {
    /// It would not have noticed that it is to end.
    #[error("cannot listen for SIGTERM and SIGINT")]
    Signals(#[source] std::io::Error),
    /// How many connections it may hold is not known.
    #[error("cannot raise the limit of open files")]
    OpenFiles(#[source] nix::Error),
    /// The flags contradict each other.
    #[error("--xds-replica names replica {0} twice")]
    Twice(ReplicaId),
    /// A defect of this program.
    #[error("opening the data directory broke off")]
    Opening(#[source] tokio::task::JoinError),
}

/// Makes the data directory and opens the key-encryption key; files are read and written on the way.
async fn open_keys(
    data_dir: PathBuf,
    kek_file: PathBuf,
    other_kek_files: Vec<PathBuf>,
    create_kek: bool,
    env: Env,
) -> Result<Arc<dyn KeyEncryption>, Failure> {
    let opened = tokio::task::spawn_blocking(move || -> Result<Arc<dyn KeyEncryption>, Failure> {
        // Sealed keys and the record of every certificate: nobody else's business.
        make_directory(&data_dir)?;
        Ok(Arc::new(KeyRing::load(&kek_file, &other_kek_files, create_kek, &env)?))
    });
    opened.await.map_err(ControllerError::Opening)?
}

/// The signals that end a controller.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn any(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::causes;

    #[tokio::test]
    async fn a_data_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let opened = open_keys(file.join("data"), file.join("kek"), Vec::new(), true, Env::system()).await;
        let error = causes(opened.err().unwrap().as_ref());
        assert!(error.starts_with("cannot ") && error.contains(&file.display().to_string()), "{error}");
    }
}
