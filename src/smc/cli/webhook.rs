//! The flags of `smc controller` for the webhooks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use kube::Client;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use smc_issuing::tls::Clients;
use smc_kubernetes::KubernetesSource;
use smc_kubernetes::install::settings::{ENVOY_IMAGE, default_image};
use smc_kubernetes::replica::Webhooks;
use smc_kubernetes::webhook::injector::SidecarImages;
use smc_types::host_port::HostPort;
use thiserror::Error;

use super::mesh_source::MeshArgs;

/// Flags of the webhooks.
#[derive(Debug, Args)]
pub(super) struct WebhookArgs {
    /// The address to serve the webhooks of Kubernetes on; needs --kubernetes [default: not served]
    #[arg(long, value_name = "ADDR")]
    webhook_listen: Option<SocketAddr>,
    /// The address at which API servers reach the webhooks, if that is not the Service smc-webhook
    ///
    /// Its host is named in the webhooks' certificate as well. For controllers outside of the cluster, whose
    /// webhook configurations have an URL.
    #[arg(long, value_name = "HOST:PORT", requires = "webhook_listen")]
    webhook_address: Option<HostPort>,
    /// The CAs, as PEM, of which API servers have client certificates
    ///
    /// Without it, any client may ask the webhooks. API servers show a certificate if their operator
    /// configures one, with --admission-control-config-file.
    #[arg(long, value_name = "FILE", requires = "webhook_listen")]
    webhook_client_ca: Option<PathBuf>,
    /// The image of Envoy in sidecars, unless MeshConfig names one
    #[arg(long, value_name = "IMAGE", default_value = ENVOY_IMAGE)]
    envoy_image: String,
    /// The image with smc in sidecars' init containers, unless MeshConfig names one
    #[arg(long, value_name = "IMAGE", default_value_t = default_image())]
    init_image: String,
    /// A Secret, in the namespace of each pod, with which the images of sidecars are pulled (repeatable)
    ///
    /// Pods get it in their imagePullSecrets. The kubelet goes on without a Secret that does not exist.
    #[arg(long = "image-pull-secret", value_name = "NAME")]
    image_pull_secrets: Vec<String>,
}

/// The webhooks cannot be served.
#[derive(Debug, Error)]
pub(super) enum WebhookError {
    /// The mesh is read from a directory.
    #[error("--webhook-listen needs --kubernetes")]
    NoApi,
    /// The CAs of the API servers cannot be read.
    #[error("cannot read the CA certificates in {}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl WebhookArgs {
    /// The webhooks, if they are to be served. `client` is that of the source, which holds the objects whose
    /// status is written. Sends nothing to the API yet.
    pub(super) async fn webhooks(
        self,
        args: &MeshArgs,
        source: Option<(&Client, &KubernetesSource)>,
    ) -> Result<Option<Webhooks>, WebhookError> {
        let Some(listen) = self.webhook_listen else { return Ok(None) };
        let (client, source) = source.ok_or(WebhookError::NoApi)?;
        let (client, custom) = (client.clone(), source.custom_objects());
        let (mesh, namespace) = (args.name.clone(), args.namespace.clone());
        let clients = match self.webhook_client_ca {
            None => Clients::All,
            Some(path) => match roots(&path).await {
                Ok(roots) => Clients::Of(Arc::new(roots)),
                Err(source) => return Err(WebhookError::ClientCa { path, source }),
            },
        };
        let address = self.webhook_address.map(|address| address.host);
        let Self { envoy_image: envoy, init_image: init, image_pull_secrets: pull_secrets, .. } = self;
        let images = SidecarImages { envoy, init, pull_secrets };
        Ok(Some(Webhooks { client, listen, address, clients, mesh, namespace, images, custom }))
    }
}

async fn roots(path: &std::path::Path) -> Result<RootCertStore, Box<dyn std::error::Error + Send + Sync>> {
    let pem = tokio::fs::read(path).await?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&pem) {
        roots.add(root?)?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".into());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_without_a_client_ca_lets_no_controller_start() {
        let directory = tempfile::tempdir().unwrap();
        let damaged = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        for content in [None, Some(""), Some("no PEM"), Some(damaged)] {
            let path = directory.path().join("clients.pem");
            let _ = std::fs::remove_file(&path);
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            assert!(roots(&path).await.is_err(), "{content:?}");
        }
    }
}
