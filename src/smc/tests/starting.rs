//! The start of a replica: settings with which there is none, and when it takes proxies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_server::config::Config;
use smc_server::source::{Batch, Source, SourceError};
use smc_server::{Server, StartError};
use smc_testkit::eventually::{Patience, eventually};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::replica::{Limits, PATIENCE, parts};

/// The error of starting a replica with adjusted settings.
async fn refusal(directory: &Path, adjust: impl FnOnce(&mut Config)) -> StartError {
    let (mut config, env, storage) = parts(directory, Limits::default()).await;
    adjust(&mut config);
    let group = Arc::clone(&storage.group);
    let started = Server::start(config, env, storage, CancellationToken::new()).await;
    group.stop().await;
    match started {
        Ok(_) => panic!("it starts"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_replica_that_listens_on_all_addresses_needs_the_one_for_proxies() {
    let directory = tempfile::tempdir().unwrap();
    let error = refusal(directory.path(), |config| config.xds_listen = "0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(error, StartError::NoAddress), "{error:?}");
    assert!(!directory.path().join("admin.sock").exists(), "nothing is left behind");
}

#[tokio::test]
async fn a_lifetime_out_of_bounds_is_refused_before_anything_is_issued() {
    for lifetime in [Duration::from_secs(9), Duration::from_hours(30 * 24 + 1)] {
        let directory = tempfile::tempdir().unwrap();
        let error = refusal(directory.path(), |config| config.service_cert_lifetime = lifetime).await;
        assert!(matches!(error, StartError::Lifetime(_)), "{lifetime:?}: {error:?}");
    }
}

/// An empty mesh that is known when the other end says so.
struct Late(oneshot::Receiver<()>);

impl Source for Late {
    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            self.0.await.unwrap();
            let batch = Batch { events: Vec::new(), problems: Vec::new(), synced: true, revision: None };
            batches.send(batch).await.unwrap();
            shutdown.cancelled().await;
            Ok(())
        })
    }
}

/// A proxy that is refused goes on to another replica. One that was accepted would wait here.
#[tokio::test]
async fn the_port_opens_when_the_sources_have_synced() {
    let directory = tempfile::tempdir().unwrap();
    let (sync, late) = oneshot::channel();
    let (config, env, mut storage) = parts(directory.path(), Limits::default()).await;
    storage.mesh = Box::new(Late(late));
    let (group, shutdown) = (Arc::clone(&storage.group), CancellationToken::new());
    let server = Server::start(config, env, storage, shutdown.clone()).await.unwrap();
    let (xds, ready) = (server.addresses().xds, server.readiness());
    let refused = TcpStream::connect(xds).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(!ready());
    sync.send(()).unwrap();
    let patience = Patience { limit: PATIENCE, pause: Duration::from_millis(10) };
    eventually(patience, "the port is open", async || TcpStream::connect(xds).await.is_ok() && ready()).await;
    shutdown.cancel();
    server.join().await.unwrap();
    group.stop().await;
}
