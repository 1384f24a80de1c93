//! The webhooks of a replica in a cluster.
//!
//! Owns their wiring.

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use smc_types::host_port::Host;
use smc_types::ids::{MeshName, MeshNamespace};
use tokio::sync::watch;

use super::replica::Replica;
use super::shutdown::Stages;
use super::{StartError, listen};
use crate::ca::ControllerNames;
use crate::ca::tls::{Clients, ServerTls};
use crate::crds::CONVERSION_SERVICE;
use crate::decode::Rules;
use crate::publisher::Published;
use crate::sources::CustomObjects;
use crate::status::StatusWriter;
use crate::tasks::Tasks;
use crate::webhook::body::Bodies;
use crate::webhook::ca_bundle::CaBundle;
use crate::webhook::collector::Collector;
use crate::webhook::injector::{self, Injector, SidecarImages};
use crate::webhook::namespaces::Namespaces;
use crate::webhook::pending::Pending;
use crate::webhook::uninjected::Uninjected;
use crate::webhook::{WEBHOOK_SERVICE, conversion, server, validator};

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
    /// What new sidecars are made of.
    pub images: SidecarImages,
}

/// The parts of a replica that the webhooks use.
pub(super) struct Parts<'a> {
    pub(super) namespace: MeshNamespace,
    pub(super) replica: &'a Replica,
    pub(super) mesh: &'a Published,
    /// The objects whose status is written.
    pub(super) custom: Option<watch::Receiver<CustomObjects>>,
    pub(super) stages: &'a Stages,
}

/// Starts the webhooks and what belongs to them. Returns the address that they listen on.
pub(super) async fn start(
    webhooks: Webhooks,
    parts: Parts<'_>,
    tasks: &mut Tasks,
) -> Result<SocketAddr, StartError> {
    let Webhooks { client, listen: address, address: reached_at, clients, mesh: name, images } = webhooks;
    let Parts { namespace, replica, mesh: published, custom, stages } = parts;
    let issuer = replica.issuer();
    let Replica { env, group, certificates, enroller, metrics, .. } = replica.clone();
    let (mesh, problems) = (published.mesh.clone(), published.problems.clone());
    let listener = listen(&*env.network, "webhooks", address).await?;
    let address = listener.address();
    let names = certificate_names(&namespace, reached_at);
    let tls = ServerTls::start_for(clients, Arc::clone(&issuer), env.clone(), names).await;
    let tls = Arc::new(tls.map_err(StartError::OwnCertificate)?);
    tls.start_renewal("webhooks' certificate", tasks);
    let injector = Injector {
        images,
        namespaces: Namespaces::new(mesh.clone(), client.clone(), Rules::api_server(name.clone())),
        enroller,
        client: client.clone(),
        served: published.served.clone(),
        pending: Pending::default(),
        env: env.clone(),
        metrics: metrics.clone(),
        places: Injector::places(),
    };
    let bodies = Bodies::new();
    let routes = injector::routes(Arc::new(injector), bodies.clone())
        .merge(validator::routes(mesh.clone(), bodies.clone()))
        .merge(conversion::routes(bodies));
    server::start(listener, tls, routes, stages.draining.clone(), tasks);
    if let Some(custom) = custom {
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
    }
    let (reporting, leading) = (client.clone(), Arc::clone(&group));
    Uninjected { client: reporting, group: leading, env: env.clone(), mesh, problems, metrics }.start(tasks);
    let (collecting, leading) = (client.clone(), Arc::clone(&group));
    Collector { client: collecting, group: leading, certificates, env }.start(tasks);
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
