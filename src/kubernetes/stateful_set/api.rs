//! The objects of the control plane's own namespace that a replica reads and creates.
//!
//! Owns the requests and their bounds. Their verbs are those of the Role `smc-controller` in `charts/smc`:
//! `get` on the own StatefulSet, `get` on the records of the founding and of the group, `patch` on the
//! latter, `create` on ConfigMaps and Secrets; and `list` on pods, of the ClusterRole.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use smc_types::ids::MeshNamespace;
use thiserror::Error;
use tokio::time::timeout;

use super::scaling::Desired;
use crate::names::FIELD_MANAGER;

/// How long a request may take. The API server answers in milliseconds; one that hangs must hold up neither
/// the end of a replica nor its start.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// The HTTP status of a name that is taken.
const ALREADY_EXISTS: u16 = 409;

/// The label of what SMC creates.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "smc");

/// A request to the API server that failed.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The pod has no way to the API server.
    #[error("cannot find the API server of the cluster")]
    Unconfigured(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It did not answer.
    #[error("the API server did not {action} within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout {
        /// The operation and its object.
        action: String,
    },
    /// It refused, or could not be reached.
    #[error("cannot {action}")]
    Failed {
        /// The operation and its object.
        action: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Access to the own namespace.
#[derive(Clone)]
pub struct OwnObjects {
    client: Client,
    namespace: MeshNamespace,
}

impl std::fmt::Debug for OwnObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnObjects").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl OwnObjects {
    /// Access with the pod's own service account. Asks nothing yet.
    pub fn in_cluster(namespace: MeshNamespace) -> Result<Self, ApiError> {
        let mut config = kube::Config::incluster().map_err(|error| ApiError::Unconfigured(error.into()))?;
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        config.read_timeout = Some(REQUEST_TIMEOUT);
        config.write_timeout = Some(REQUEST_TIMEOUT);
        let client = Client::try_from(config).map_err(|error| ApiError::Unconfigured(error.into()))?;
        Ok(Self { client, namespace })
    }

    /// The number of replicas that the StatefulSet `name` asks for.
    pub(crate) async fn desired(&self, name: &str) -> Result<Desired, ApiError> {
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let action = format!("read the StatefulSet {}/{name}", self.namespace);
        let set = bounded(action, sets.get(name)).await?;
        // The API fills in 1 where none is written; below zero it admits nothing.
        let replicas = set.spec.replicas.unwrap_or(1);
        Ok(Desired {
            replicas: u64::try_from(replicas).unwrap_or(0),
            ending: set.metadata.deletion_timestamp.is_some(),
        })
    }

    /// Creates a ConfigMap, unless one of that name exists. Returns the data of the one that is there then.
    pub(crate) async fn create_once(
        &self,
        name: &str,
        data: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ApiError> {
        let map = ConfigMap {
            metadata: metadata(name),
            data: Some(data.clone()),
            immutable: Some(true),
            ..ConfigMap::default()
        };
        let action = format!("create the ConfigMap {}/{name}", self.namespace);
        match bounded(action, self.config_maps().create(&PostParams::default(), &map)).await {
            Ok(_) => Ok(data),
            Err(error) if error.is(ALREADY_EXISTS) => Ok(self.config_map(name).await?.unwrap_or_default()),
            Err(error) => Err(error),
        }
    }

    /// Makes the ConfigMap `name` hold `data` and nothing else.
    pub(crate) async fn keep_config_map(
        &self,
        name: &str,
        data: BTreeMap<String, String>,
    ) -> Result<(), ApiError> {
        let map = ConfigMap { metadata: metadata(name), data: Some(data), ..ConfigMap::default() };
        let action = format!("write the ConfigMap {}/{name}", self.namespace);
        let how = PatchParams::apply(FIELD_MANAGER).force();
        bounded(action, self.config_maps().patch(name, &how, &Patch::Apply(&map))).await.map(drop)
    }

    /// The UID of the pod `name`, if there is one.
    pub(crate) async fn pod_uid(&self, name: &str) -> Result<Option<String>, ApiError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let action = format!("read the pod {}/{name}", self.namespace);
        let named = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        let listed = bounded(action, pods.list_metadata(&named)).await?;
        Ok(listed.items.into_iter().next().and_then(|pod| pod.metadata.uid))
    }

    /// The data of a ConfigMap, if there is one of that name.
    pub(crate) async fn config_map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let action = format!("read the ConfigMap {}/{name}", self.namespace);
        let map = bounded(action, self.config_maps().get_opt(name)).await?;
        Ok(map.map(|map| map.data.unwrap_or_default()))
    }

    /// Creates a Secret, and returns whether there was none of its name. With `only_try` it is not kept.
    pub(crate) async fn create_secret(&self, secret: &Secret, only_try: bool) -> Result<bool, ApiError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let action = format!("create the Secret {}/{name}", self.namespace);
        let how = PostParams { dry_run: only_try, ..PostParams::default() };
        match bounded(action, secrets.create(&how, secret)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is(ALREADY_EXISTS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), self.namespace.as_str())
    }

    pub(crate) fn namespace(&self) -> &MeshNamespace {
        &self.namespace
    }
}

impl ApiError {
    /// Whether the API server answered with this HTTP status.
    fn is(&self, code: u16) -> bool {
        let Self::Failed { source, .. } = self else { return false };
        matches!(&**source, kube::Error::Api(status) if status.code == code)
    }
}

/// The metadata of an object that SMC creates.
pub(super) fn metadata(name: &str) -> ObjectMeta {
    let labels = BTreeMap::from([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())]);
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

async fn bounded<T>(action: String, request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ApiError::Failed { action, source: Box::new(error) }),
        Err(_) => Err(ApiError::Timeout { action }),
    }
}
