//! Requests that write and delete Secrets.
//!
//! Owns that none of them answers with the content of a Secret. SMC reads none: the controller has no right
//! whose answer is the content of one that others made, as those of `get` and `patch` are.

use http::HeaderValue;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ObjectMeta, PartialObjectMeta, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use thiserror::Error;
use tokio::time::timeout;

use crate::names::FIELD_MANAGER;
use crate::webhook::API_LIMIT;

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
    /// In the words of the API server, without the rest of its answer.
    #[error("{message}")]
    Refused { code: u16, message: String },
    #[error(transparent)]
    Other(#[from] Box<Error>),
}

impl SecretError {
    /// Whether this admission policy refused the request, and not another's.
    pub(crate) fn is_refused_by(&self, policy: &str) -> bool {
        let by = format!("ValidatingAdmissionPolicy '{policy}'");
        matches!(&self.source, Cause::Refused { message, .. } if message.contains(&by))
    }

    fn code(&self) -> Option<u16> {
        match self.source {
            Cause::Refused { code, .. } => Some(code),
            Cause::Silence | Cause::Other(_) => None,
        }
    }
}

/// Makes a Secret, which has a namespace and a name.
pub(crate) async fn create(client: &Client, secret: &Secret) -> Result<(), SecretError> {
    send("create", client, secret, |request, body| request.create(&parameters(), body)).await
}

/// Writes a Secret whole, whatever is there, and makes it if nothing is.
pub(crate) async fn replace(client: &Client, secret: &Secret) -> Result<(), SecretError> {
    let (_, name) = place(secret);
    match send("write", client, secret, |request, body| request.replace(name, &parameters(), body)).await {
        Err(error) if error.code() == Some(404) => create(client, secret).await,
        replaced => replaced,
    }
}

/// Deletes a Secret. Returns whether it was there.
pub(crate) async fn delete(client: &Client, namespace: &str, name: &str) -> Result<bool, SecretError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let deleted = timeout(API_LIMIT, api.delete(name, &DeleteParams::default())).await;
    match outcome("delete", (namespace, name), deleted.map(|deleted| deleted.map(drop))) {
        Err(error) if error.code() == Some(404) => Ok(false),
        deleted => deleted.map(|()| true),
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn place(secret: &Secret) -> (&str, &str) {
    let ObjectMeta { namespace, name, .. } = &secret.metadata;
    (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}

/// Sends a Secret as the methods of [`Api`] do, but for the answer: it has the metadata alone, and the
/// content does not come back.
async fn send(
    action: &'static str,
    client: &Client,
    secret: &Secret,
    request: impl FnOnce(Request, Vec<u8>) -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(), SecretError> {
    let sent = async {
        let body = serde_json::to_vec(secret).map_err(Error::SerdeError)?;
        let api: Api<Secret> = Api::namespaced(client.clone(), place(secret).0);
        let mut request = request(Request::new(api.resource_url()), body).map_err(Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, METADATA_ALONE);
        client.request::<PartialObjectMeta<Secret>>(request).await.map(drop)
    };
    outcome(action, place(secret), timeout(API_LIMIT, sent).await)
}

type Answer = Result<Result<(), Error>, tokio::time::error::Elapsed>;

fn outcome(action: &'static str, (namespace, name): (&str, &str), answer: Answer) -> Result<(), SecretError> {
    let source = match answer {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(Error::Api(status))) => Cause::Refused { code: status.code, message: status.message },
        Ok(Err(error)) => Cause::Other(error.into()),
        Err(_) => Cause::Silence,
    };
    Err(SecretError { action, namespace: namespace.to_owned(), name: name.to_owned(), source })
}
