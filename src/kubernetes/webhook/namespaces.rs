//! What the injector knows about a namespace.
//!
//! Owns where it comes from: the mesh as it was read, and the API itself for a namespace that the replica has
//! not heard of as one of the mesh. The API server asks for those that carry the label, and the news of a
//! label may be on its way.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use kube::Client;
use kube::api::Api;
use smc_api::osm::MeshConfig;
use smc_decode::Rules;
use smc_decode::core::read_namespace;
use smc_host::accept::Turns;
use smc_model::topology::Namespace;
use smc_server::publisher::MeshHandle;
use smc_types::ids::check_label;
use thiserror::Error;
use tokio::time::timeout;

use super::API_LIMIT;

/// Questions to the API at a time: a peer that names namespaces at random must not keep it busy.
const QUESTIONS: usize = 8;

/// A namespace is not known.
#[derive(Debug, Error)]
pub(crate) enum NamespaceError {
    /// The replica is shutting down.
    #[error(transparent)]
    Stopping(#[from] smc_server::publisher::PublisherStopped),
    /// The API does not say.
    #[error("cannot read the Namespace {name}")]
    Api {
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API does not answer.
    #[error("cannot read the Namespace {0}: no answer of the API server in time")]
    Silence(String),
}

/// Looks namespaces up. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Namespaces {
    mesh: MeshHandle,
    client: Client,
    rules: Rules,
    questions: Turns,
}

impl Namespaces {
    pub(crate) fn new(mesh: MeshHandle, client: Client, rules: Rules) -> Self {
        Self { mesh, client, rules, questions: Turns::new(QUESTIONS) }
    }

    /// The namespace that a peer names, and the settings of the mesh. `None` if it does not exist.
    pub(crate) async fn look_up(
        &self,
        name: &str,
        peer: IpAddr,
    ) -> Result<Option<(Namespace, MeshConfig)>, NamespaceError> {
        if check_label("namespace", name).is_err() {
            return Ok(None);
        }
        let wanted = name.to_owned();
        let known = self.mesh.about(move |mesh| {
            let catalog = mesh.compiler.catalog();
            (catalog.namespace(&wanted).cloned(), catalog.mesh_config())
        });
        let (namespace, config) = known.await?;
        if let Some(namespace) = namespace.filter(|namespace| namespace.monitored) {
            return Ok(Some((namespace, config)));
        }
        let _question = self.questions.wait(peer).await;
        let api: Api<core::Namespace> = Api::all(self.client.clone());
        let got = timeout(API_LIMIT, api.get_opt(name)).await;
        let got = got.map_err(|_| NamespaceError::Silence(name.to_owned()))?;
        let failed = |error| NamespaceError::Api { name: name.to_owned(), source: Box::new(error) };
        let namespace = got.map_err(failed)?;
        let read = namespace.and_then(|namespace| read_namespace(&namespace, &self.rules).object);
        Ok(read.map(|namespace| (namespace, config)))
    }
}
