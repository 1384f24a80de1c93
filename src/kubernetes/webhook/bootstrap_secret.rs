//! The Secret with a sidecar's bootstrap, in the API.
//!
//! Owns its form, and the requests that make, adopt and delete it. SMC never reads one: the controller needs
//! no right to read Secrets.

use std::collections::BTreeMap;

use http::HeaderValue;
use http::header::ACCEPT;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use serde_json::json;
use smc_sidecar::injection::{
    BOOTSTRAP_KEY, MANAGED_BY_LABEL, MANAGED_BY_VALUE, PROXY_UUID_LABEL, secret_name,
};
use smc_types::ids::ProxyName;
use thiserror::Error;
use tokio::time::timeout;

use super::API_LIMIT;
use crate::names::FIELD_MANAGER;

/// The answer that is wanted: <https://kubernetes.io/docs/reference/using-api/api-concepts/>, "metadata-only
/// fetches".
const METADATA_ALONE: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// A request about a Secret failed.
#[derive(Debug, Error)]
#[error("cannot {action} the Secret {namespace}/{name}")]
pub(crate) struct SecretError {
    action: &'static str,
    namespace: String,
    name: String,
    #[source]
    source: Cause,
}

#[derive(Debug, Error)]
enum Cause {
    #[error("no answer of the API server within {} s", API_LIMIT.as_secs())]
    Silence,
    #[error(transparent)]
    Api(#[from] Box<Error>),
}

/// A Pod as the owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodOwner {
    /// The pod's name.
    pub(crate) name: String,
    /// The UID that the API server gave it.
    pub(crate) uid: String,
}

/// Makes the Secret of a new sidecar. It has no owner yet, since its Pod does not exist.
pub(crate) async fn create(client: &Client, proxy: &ProxyName, bootstrap: String) -> Result<(), SecretError> {
    let labels = BTreeMap::from([
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY_VALUE.to_owned()),
        (PROXY_UUID_LABEL.to_owned(), proxy.uuid.to_string()),
    ]);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(proxy.uuid)),
            namespace: Some(proxy.namespace.to_string()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(BOOTSTRAP_KEY.to_owned(), ByteString(bootstrap.into_bytes()))])),
        // The kubelet need not watch it.
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let created = timeout(API_LIMIT, send(client, proxy, &secret)).await;
    outcome("create", proxy, created)
}

/// As [`Api::create`], but for the answer: it has the metadata alone, and the content does not come back.
async fn send(client: &Client, proxy: &ProxyName, secret: &Secret) -> Result<(), Error> {
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let body = serde_json::to_vec(secret).map_err(Error::SerdeError)?;
    let url = secrets(client, proxy).resource_url().to_owned();
    let mut request = Request::new(url).create(&parameters, body).map_err(Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, METADATA_ALONE);
    client.request::<PartialObjectMeta<Secret>>(request).await.map(drop)
}

/// Makes the Pod the owner of the Secret, so that Kubernetes deletes the Secret after the Pod. Returns
/// whether the Secret is there.
pub(crate) async fn adopt(client: &Client, proxy: &ProxyName, pod: &PodOwner) -> Result<bool, SecretError> {
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid });
    let patch = json!({ "metadata": { "ownerReferences": [owner] } });
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let (api, name) = (secrets(client, proxy), secret_name(proxy.uuid));
    let merge = Patch::Merge(&patch);
    let patched = timeout(API_LIMIT, api.patch_metadata(&name, &parameters, &merge)).await;
    existed("adopt", proxy, patched.map(|patched| patched.map(drop)))
}

/// Deletes the Secret. Returns whether it was there.
pub(crate) async fn delete(client: &Client, proxy: &ProxyName) -> Result<bool, SecretError> {
    let (api, name) = (secrets(client, proxy), secret_name(proxy.uuid));
    let deleted = timeout(API_LIMIT, api.delete(&name, &DeleteParams::default())).await;
    existed("delete", proxy, deleted.map(|deleted| deleted.map(drop)))
}

fn secrets(client: &Client, proxy: &ProxyName) -> Api<Secret> {
    Api::namespaced(client.clone(), &proxy.namespace)
}

type Answer = Result<Result<(), Error>, tokio::time::error::Elapsed>;

fn existed(action: &'static str, proxy: &ProxyName, answer: Answer) -> Result<bool, SecretError> {
    if let Ok(Err(Error::Api(status))) = &answer
        && status.code == 404
    {
        return Ok(false);
    }
    outcome(action, proxy, answer).map(|()| true)
}

fn outcome(action: &'static str, proxy: &ProxyName, answer: Answer) -> Result<(), SecretError> {
    let source = match answer {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => Cause::Api(error.into()),
        Err(_) => Cause::Silence,
    };
    let (namespace, name) = (proxy.namespace.to_string(), secret_name(proxy.uuid));
    Err(SecretError { action, namespace, name, source })
}
