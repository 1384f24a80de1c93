//! `smc controller`: runs a replica until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use smc_mesh::bootstrap::ControllerAddress;
use smc_mesh::ids::TrustDomain;
use smc_mesh::smi::MeshNamespace;
use smc_raft::{LocalLedger, make_directory};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Outcome, Verdict, duration};
use crate::ca::seal::LocalKey;
use crate::config::{ANSWER_LIMIT, Config};
use crate::env::Env;
use crate::server::{Server, Storage};
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
    /// The key-encryption key that seals the certificate authority's keys
    ///
    /// FILE.founded beside it notes that an authority was founded with it. Where the note is and the ledger is empty,
    /// the controller does not start: the ledger was lost, and a new authority would cut off every sidecar.
    #[arg(long, value_name = "FILE")]
    kek_file: PathBuf,
    /// Make the key-encryption key if the file is not there
    #[arg(long)]
    create_kek: bool,
    /// Where proxies connect to
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:15128")]
    xds_listen: SocketAddr,
    /// The address written into bootstraps; needed unless --xds-listen names one address
    #[arg(long, value_name = "HOST:PORT")]
    xds_address: Option<ControllerAddress>,
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

pub(super) async fn run(args: ControllerArgs) -> Outcome {
    let ControllerArgs {
        mesh_dir,
        data_dir,
        kek_file,
        create_kek,
        xds_listen,
        xds_address,
        admin_socket,
        metrics_listen,
        trust_domain,
        mesh_namespace,
        log,
        service_cert_lifetime,
        release_grace,
    } = args;
    log.start_logging();
    let shutdown = CancellationToken::new();
    let signals = Signals::new().map_err(ControllerError::Signals)?;
    let env = Env::system();
    let storage = open_storage(data_dir.clone(), kek_file, create_kek, env.clone()).await?;
    let config = Config {
        mesh_dir,
        last_good_dir: data_dir.join("last-good"),
        xds_listen,
        xds_address,
        admin_socket: admin_socket.unwrap_or_else(|| data_dir.join("admin.sock")),
        metrics_listen,
        trust_domain,
        mesh_namespace,
        service_cert_lifetime,
        release_grace,
        answer_limit: ANSWER_LIMIT,
    };
    let handle = Server::start(config, env, storage, shutdown.clone()).await?;
    let joined = handle.join();
    tokio::pin!(joined);
    tokio::select! {
        ended = &mut joined => ended?,
        () = signals.any() => {
            shutdown.cancel();
            joined.await?;
        }
    }
    Ok(Verdict::Ok)
}

/// Why a replica was not even started.
#[derive(Debug, Error)]
enum ControllerError {
    /// It would not have noticed that it is to end.
    #[error("cannot listen for SIGTERM and SIGINT")]
    Signals(#[source] std::io::Error),
    /// A defect of this program.
    #[error("opening the data directory broke off")]
    Opening(#[source] tokio::task::JoinError),
}

/// Why the replica's state could not be opened.
type StorageUnusable = Box<dyn std::error::Error + Send + Sync>;

/// Opens what the replica keeps its state in; files are read and written on the way.
async fn open_storage(
    data_dir: PathBuf,
    kek_file: PathBuf,
    create_kek: bool,
    env: Env,
) -> Result<Storage, StorageUnusable> {
    let opened = tokio::task::spawn_blocking(move || -> Result<Storage, StorageUnusable> {
        // Sealed keys and the record of every certificate: nobody else's business.
        make_directory(&data_dir)?;
        let keys = LocalKey::load_or_create(&kek_file, create_kek, &env)?;
        let ledger = LocalLedger::open(&data_dir.join("ledger"))?;
        let failure = ledger.failure();
        Ok(Storage { ledger: Arc::new(ledger), failure, keys: Arc::new(keys) })
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
        let opened = open_storage(file.join("data"), file.join("kek"), true, Env::system()).await;
        let error = causes(opened.err().unwrap().as_ref());
        assert!(error.starts_with("cannot ") && error.contains(&file.display().to_string()), "{error}");
    }
}
