//! Settings with which a replica does not start.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::replica::{Limits, parts};
use crate::config::Config;
use crate::server::{Server, StartError};

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
