//! The flags by which a person names a cluster.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use thiserror::Error;

/// How long a connection to the API server may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How the cluster is reached.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct KubeArgs {
    /// The kubeconfig [default: as kubectl, $KUBECONFIG or ~/.kube/config; in a pod, its service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// There is no way to a cluster.
#[derive(Debug, Error)]
pub(super) enum KubeAccessError {
    #[error("cannot read the kubeconfig {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    #[error("cannot use the kubeconfig")]
    Config(#[source] Box<kube::config::KubeconfigError>),
    #[error("no cluster is configured: there is no kubeconfig, and this is not a pod")]
    None(#[source] Box<kube::config::InferConfigError>),
    #[error("cannot use the credentials of the cluster")]
    Client(#[source] Box<kube::Error>),
}

impl KubeArgs {
    /// A client of the cluster. Does not connect yet. Speaks HTTP/1.1 only, as kube's own client does:
    /// programs in pods are run over WebSockets, to which an API server upgrades no HTTP/2 connection.
    pub(super) async fn client(&self) -> Result<Client, KubeAccessError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let read = Kubeconfig::read_from(path);
                let read = read
                    .map_err(|source| KubeAccessError::File { path: path.clone(), source: Box::new(source) });
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::client::stand_in::TlsServer;

    #[tokio::test]
    async fn what_runs_programs_in_pods_speaks_http_1() {
        let server = TlsServer::start(&["h2", "http/1.1"]).await;
        let args = KubeArgs { kubeconfig: Some(server.kubeconfig()), context: None };
        let request = http::Request::get("/version").body(kube::client::Body::empty()).unwrap();
        args.client().await.unwrap().send(request).await.unwrap();
        assert_eq!(server.book.versions(), [("HTTP/1.1".to_owned(), 1)].into());
    }
}
