//! What a replica in a cluster does beside serving proxies.
//!
//! Owns the wiring of the webhooks, the status of objects, and what the leader keeps up in the API.

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use smc_decode::Rules;
use smc_host::log_limit::LogLimits;
use smc_host::tasks::Tasks;
use smc_issuing::tls::{Clients, ServerTls};
use smc_issuing::{CaError, ControllerNames, until_available};
use smc_server::Parts;
use smc_types::host_port::Host;
use smc_types::ids::{MeshName, MeshNamespace};
use thiserror::Error;
use tokio::sync::watch;

use crate::custom_objects::CustomObjects;
use crate::gateway_secret::ClusterSecrets;
use crate::names::{CONVERSION_SERVICE, WEBHOOK_SERVICE};
use crate::status::StatusWriter;
use crate::webhook::body::Bodies;
use crate::webhook::ca_bundle::CaBundle;
use crate::webhook::injector::{self, Injector, SidecarImages};
use crate::webhook::missing_sidecars::Uninjected;
use crate::webhook::namespaces::Namespaces;
use crate::webhook::secret_gc::Collector;
use crate::webhook::unclaimed_sidecars::Pending;
use crate::webhook::{conversion, server, validator};

/// The webhooks, and the API that they serve.
#[derive(Clone)]
pub struct Webhooks {
    /// The client of the API.
    pub client: Client,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The host at which API servers reach it, if that is not the Service.
    pub address: Option<Host>,
    /// The clients that may ask. API servers have a certificate only where their operator gives them one.
    pub clients: Clients,
    /// The mesh's name.
    pub mesh: MeshName,
    /// The control plane's namespace.
    pub namespace: MeshNamespace,
    /// What new sidecars are made of.
    pub images: SidecarImages,
    /// The objects whose status is written.
    pub custom: watch::Receiver<CustomObjects>,
}

impl Webhooks {
    /// Where the certificates of gateways are kept.
    pub fn gateway_secrets(&self) -> ClusterSecrets {
        ClusterSecrets { client: self.client.clone(), mesh: self.mesh.clone() }
    }
}

/// The webhooks cannot be served.
#[derive(Debug, Error)]
pub enum WebhookError {
    /// The port cannot be opened.
    #[error("cannot listen on {address} for webhooks")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Their certificate cannot be issued.
    #[error("cannot issue the webhooks' certificate")]
    Certificate(#[source] CaError),
}

/// Starts the webhooks and what belongs to them. Returns the address that they listen on.
pub async fn start(webhooks: Webhooks, parts: Parts, tasks: &mut Tasks) -> Result<SocketAddr, WebhookError> {
    let Webhooks { client, listen, address: reached_at, clients, mesh: name, namespace, images, custom } =
        webhooks;
    let Parts { env, group, issuer, certificates, enroller, metrics, mesh, problems, served, draining } =
        parts;
    let names = certificate_names(&namespace, reached_at);
    let start = || ServerTls::start_for(clients.clone(), Arc::clone(&issuer), env.clone(), names.clone());
    let tls = Arc::new(until_available(&env, start).await.map_err(WebhookError::Certificate)?);
    // After the certificate, for which the group may keep it waiting: an API server that connects is
    // answered.
    let listening = env.network.listen(listen).await;
    let listener = listening.map_err(|source| WebhookError::Listen { address: listen, source })?;
    let address = listener.address();
    tls.start_renewal("webhooks' certificate", tasks);
    let injector = Injector {
        images,
        namespaces: Namespaces::new(mesh.clone(), client.clone(), Rules::api_server(name.clone())),
        enroller,
        client: client.clone(),
        served: served.clone(),
        pending: Pending::default(),
        env: env.clone(),
        metrics: metrics.clone(),
        places: Injector::places(),
        refusals: LogLimits::default(),
    };
    let reviews = Bodies::of_reviews();
    let routes = injector::routes(Arc::new(injector), reviews.clone())
        .merge(validator::routes(mesh.clone(), reviews))
        .merge(conversion::routes(Bodies::of_conversions()));
    server::start(listener, tls, routes, draining, tasks);
    StatusWriter {
        client: client.clone(),
        group: Arc::clone(&group),
        mesh: mesh.clone(),
        problems: problems.clone(),
        namespace: namespace.clone(),
        custom,
        env: env.clone(),
    }
    .start(tasks);
    let (reporting, leading) = (client.clone(), Arc::clone(&group));
    Uninjected { client: reporting, group: leading, env: env.clone(), mesh, problems, metrics }.start(tasks);
    let (collecting, leading) = (client.clone(), Arc::clone(&group));
    Collector { client: collecting, group: leading, certificates, served, env }.start(tasks);
    CaBundle { client, issuer, group, mesh: name, namespace }.start(tasks);
    Ok(address)
}

/// The names of the Services as API servers verify them, and of the address beside them.
fn certificate_names(namespace: &MeshNamespace, address: Option<Host>) -> ControllerNames {
    let of = |service| ["svc", "svc.cluster.local"].map(|end| format!("{service}.{namespace}.{end}"));
    let dns = [WEBHOOK_SERVICE, CONVERSION_SERVICE].into_iter().flat_map(of).collect();
    let mut names = ControllerNames { dns, ips: Vec::new() };
    match address {
        Some(Host::Name(name)) => names.dns.push(name),
        Some(Host::Ip(ip)) => names.ips.push(ip),
        None => {}
    }
    names
}
