//! The client of the API server: where it is, who the replica is there, and how long anything may take.
//!
//! Owns the configuration (the pod's service account, or a kubeconfig) and the limits of time. A request
//! without a limit would wait for ever for an API server that hangs without closing its connections.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;
use tower::BoxError;
use tower::util::MapFutureLayer;

/// How long a connection may take to be made, TLS included. The API server is in the same cluster.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long the head of a response may take. The API server itself gives up on a request after a minute,
/// and on the webhooks of a write after 30 seconds at most.
const RESPONSE_LIMIT: Duration = Duration::from_secs(65);

/// How long a response may pause. A watch has a bookmark every minute; what reads a watch notices silence
/// sooner. Pooled connections without a request end after it, too.
const READ_LIMIT: Duration = Duration::from_mins(5);

/// How long a write to a connection may take.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// There is no usable configuration of the API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The replica is in no cluster, and no kubeconfig was named.
    #[error("no kubeconfig is named, and this is not a pod with a service account")]
    NotInCluster(#[source] Box<kube::config::InClusterError>),
    /// A kubeconfig cannot be read.
    #[error("cannot read the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The credentials cannot be used.
    #[error("cannot use the configuration of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// A client of the API server that the kubeconfig names, else of the cluster that this process is a pod of.
/// `kubeconfig` is one path or several, as the variable KUBECONFIG has them. Does not connect yet: the first
/// request does. Requests are not repeated; the caller knows whether and when to try again.
pub async fn connect(kubeconfig: Option<&OsString>) -> Result<Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(paths) => from_files(std::env::split_paths(paths)).await?,
        None => Config::incluster().map_err(|error| ConnectError::NotInCluster(error.into()))?,
    };
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.read_timeout = Some(READ_LIMIT);
    config.reset_reader_on_write = true;
    config.write_timeout = Some(WRITE_LIMIT);
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).map_err(|error| ConnectError::Client(error.into()))?;
    Ok(builder.with_layer(&MapFutureLayer::new(limited)).build())
}

/// Reads kubeconfigs and merges them; of two values, the first counts.
async fn from_files(paths: impl Iterator<Item = PathBuf>) -> Result<Config, ConnectError> {
    let mut merged = Kubeconfig::default();
    let mut last = PathBuf::new();
    let failed =
        |path: &Path, source| ConnectError::Kubeconfig { path: path.into(), source: Box::new(source) };
    for path in paths.filter(|path| !path.as_os_str().is_empty()) {
        let read = Kubeconfig::read_from(&path).map_err(|error| failed(&path, error))?;
        merged = merged.merge(read).map_err(|error| failed(&path, error))?;
        last = path;
    }
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(merged, &options).await.map_err(|error| failed(&last, error))
}

/// A request, and the time that its response's head may take.
async fn limited<T>(request: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    match tokio::time::timeout(RESPONSE_LIMIT, request).await {
        Ok(response) => response,
        Err(elapsed) => Err(elapsed.into()),
    }
}

#[cfg(test)]
mod tests {
    use smc_types::causes::causes;

    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let refused = async || causes(&connect(Some(&path.clone().into())).await.err().unwrap());
        assert!(refused().await.contains(&path.display().to_string()));
        std::fs::write(&path, "{apiVersion: v1, kind: Config}").unwrap();
        let error = refused().await;
        assert!(error.contains(&path.display().to_string()) && error.contains("context"), "{error}");
    }

    #[tokio::test]
    async fn of_several_kubeconfigs_the_first_value_counts() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        std::fs::write(&one, "{apiVersion: v1, kind: Config, current-context: a}").unwrap();
        let text = "{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: a, context: {cluster: c, \
                    namespace: here}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}";
        std::fs::write(&two, text).unwrap();
        let paths = std::env::join_paths([one, two]).unwrap();
        assert_eq!(connect(Some(&paths)).await.unwrap().default_namespace(), "here");
    }
}
