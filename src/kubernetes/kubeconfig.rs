//! The cluster that a person names, as kubectl finds it.
//!
//! Owns the client of what a person runs. A replica has another one ([`crate::client`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use thiserror::Error;

/// How long a connection to the API server may take.
const CONNECT: Duration = Duration::from_secs(10);

/// There is no way to a cluster.
#[derive(Debug, Error)]
pub enum KubeAccessError {
    /// The file cannot be read.
    #[error("cannot read the kubeconfig {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// It names no cluster, or not this context.
    #[error("cannot use the kubeconfig")]
    Config(#[source] Box<kube::config::KubeconfigError>),
    /// Nothing names a cluster.
    #[error("no cluster is configured: there is no kubeconfig, and this is not a pod")]
    None(#[source] Box<kube::config::InferConfigError>),
    /// The credentials in it cannot be read.
    #[error("cannot use the credentials of the cluster")]
    Client(#[source] Box<kube::Error>),
}

/// A client of the cluster: of the kubeconfig, else as kubectl finds it, or of this pod's service account.
/// Does not connect yet. Speaks HTTP/1.1 only, as kube's own client does: programs in pods are run over
/// WebSockets, to which an API server upgrades no HTTP/2 connection.
pub async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, KubeAccessError> {
    let options =
        KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    let config = match (kubeconfig, context) {
        (Some(path), _) => {
            let read = Kubeconfig::read_from(path);
            let read = read
                .map_err(|source| KubeAccessError::File { path: path.to_owned(), source: Box::new(source) });
            kube::Config::from_custom_kubeconfig(read?, &options).await
        }
        (None, Some(_)) => kube::Config::from_kubeconfig(&options).await,
        (None, None) => {
            let inferred = kube::Config::infer().await;
            Ok(inferred.map_err(|error| KubeAccessError::None(Box::new(error)))?)
        }
    };
    let mut config = config.map_err(|error| KubeAccessError::Config(Box::new(error)))?;
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|error| KubeAccessError::Client(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::stand_in::TlsServer;

    #[tokio::test]
    async fn what_runs_programs_in_pods_speaks_http_1() {
        let server = TlsServer::start(&["h2", "http/1.1"]).await;
        let request = http::Request::get("/version").body(kube::client::Body::empty()).unwrap();
        client(Some(&server.kubeconfig()), None).await.unwrap().send(request).await.unwrap();
        assert_eq!(server.book.versions(), [("HTTP/1.1".to_owned(), 1)].into());
    }
}
