//! A request to a sidecar, through the API server.
//!
//! Owns the way, which is that of `kubectl port-forward`, and the bounds on it. Who may ask is decided by the
//! right to `pods/portforward` in the pod's namespace.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Portforwarder;
use kube::{Api, Client};
use smc_types::ids::WorkloadId;
use smc_types::ports::ADMIN_PORT;
use smc_types::text::truncated;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the reason of a failed way may take after the failure.
const REASON_LIMIT: Duration = Duration::from_secs(1);

/// Where a sidecar is asked, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// The port, on the loopback address of the pod too.
    pub(crate) port: u16,
    pub(crate) path: &'static str,
    /// The most bytes of an answer.
    pub(crate) most: usize,
    /// How long the sidecar may take, with the way to it.
    pub(crate) limit: Duration,
}

/// A sidecar was not asked, or did not answer.
#[derive(Debug, Error)]
pub enum SidecarError {
    /// It is no pod.
    #[error("a machine is not reached through the API server")]
    Machine,
    /// The API server does not lead to it.
    #[error("cannot forward a port to it")]
    Forward(#[source] Box<kube::Error>),
    /// Its node does not lead to it.
    #[error("its node cannot reach port {port}: {reason}")]
    Node {
        /// The port.
        port: u16,
        /// What the node says.
        reason: String,
    },
    /// Its answer is no HTTP, or ends early.
    #[error("cannot read its answer")]
    Http(#[from] hyper::Error),
    /// It refuses to answer.
    #[error("it refuses with {0}")]
    Status(StatusCode),
    /// The answer is beyond the bound.
    #[error("its answer is longer than {0} bytes")]
    TooLong(usize),
    /// It does not answer.
    #[error("it does not answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// What Envoy has: its listeners, clusters and the rest, in its own JSON. 64 MiB are the endpoints of some
/// 100,000 pods.
const DUMP: Question = Question {
    port: ADMIN_PORT,
    path: "/config_dump?include_eds",
    most: 64 << 20,
    limit: Duration::from_secs(30),
};

/// The configuration that the Envoy of a pod has now, as its administration prints it. Envoy leaves out
/// private keys.
///
/// # Errors
///
/// The pod is a machine, or does not answer.
pub async fn config_dump(client: &Client, pod: &WorkloadId) -> Result<Vec<u8>, SidecarError> {
    DUMP.ask(client, pod).await
}

/// Ends the connection to the API server with it, also while that hangs.
struct Forward(Portforwarder);

impl Drop for Forward {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Question {
    /// Asks the sidecar of a pod.
    pub(crate) async fn ask(self, client: &Client, pod: &WorkloadId) -> Result<Vec<u8>, SidecarError> {
        if pod.is_machine() {
            return Err(SidecarError::Machine);
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace());
        timeout(self.limit, self.forwarded(&pods, pod.name()))
            .await
            .unwrap_or(Err(SidecarError::Silent(self.limit)))
    }

    async fn forwarded(self, pods: &Api<Pod>, pod: &str) -> Result<Vec<u8>, SidecarError> {
        let port = self.port;
        let forward = pods.portforward(pod, &[port]).await;
        let mut forward = Forward(forward.map_err(|error| SidecarError::Forward(Box::new(error)))?);
        let (stream, reason) = (forward.0.take_stream(port), forward.0.take_error(port));
        let Some(stream) = stream else { return Err(SidecarError::Silent(self.limit)) };
        match (self.read(stream).await, reason) {
            (Err(SidecarError::Http(error)), Some(reason)) => {
                let reason = timeout(REASON_LIMIT, reason).await.ok().flatten();
                let node = |reason: String| SidecarError::Node { port, reason: truncated(&reason, 200) };
                Err(reason.map_or(SidecarError::Http(error), node))
            }
            (read, _) => read,
        }
    }

    /// Asks the sidecar at the end of `stream`.
    async fn read(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Vec<u8>, SidecarError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the set.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = http::Uri::from_static(self.path);
        request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("sidecar"));
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(SidecarError::Status(response.status()));
        }
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if bytes.len() + data.len() > self.most {
                return Err(SidecarError::TooLong(self.most));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const QUESTION: Question =
        Question { port: 1, path: "/what", most: 100 << 10, limit: Duration::from_secs(1) };

    /// What comes of a sidecar that answers with `head` and `body`, again and again if `endless`, and the
    /// request that it got.
    async fn answered(head: &str, body: &str, endless: bool) -> (Result<Vec<u8>, SidecarError>, String) {
        let (ours, mut theirs) = duplex(64 << 10);
        let (head, body) = (head.to_owned(), body.to_owned());
        let server = tokio::spawn(async move {
            let mut request = vec![0; 4096];
            let length = theirs.read(&mut request).await.unwrap();
            request.truncate(length);
            theirs.write_all(head.as_bytes()).await.unwrap();
            while theirs.write_all(body.as_bytes()).await.is_ok() && endless {}
            String::from_utf8(request).unwrap()
        });
        (QUESTION.read(ours).await, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_sidecar_is_asked_once_and_believed_within_bounds() {
        let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let (answer, request) = answered(ok, "said", false).await;
        assert_eq!(answer.unwrap(), b"said");
        assert!(request.starts_with("GET /what HTTP/1.1\r\n"), "{request}");

        let (answer, _) = answered(ok, "said", true).await;
        assert!(matches!(answer, Err(SidecarError::TooLong(102_400))), "{answer:?}");
        let (answer, _) = answered("HTTP/1.1 404 Not Found\r\n\r\n", "said", false).await;
        assert!(matches!(answer, Err(SidecarError::Status(StatusCode::NOT_FOUND))), "{answer:?}");
        for cut_short in ["HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", "", "SSH-2.0\r\n"] {
            let (answer, _) = answered(cut_short, "said", false).await;
            assert!(matches!(answer, Err(SidecarError::Http(_))), "{cut_short:?}: {answer:?}");
        }
    }
}
