//! The calls that sidecars have counted, asked through the API server.
//!
//! Owns the way to a sidecar's statistics, which is that of `kubectl port-forward`, and the bounds on it. Who
//! may ask is decided by the right to `pods/portforward` in the pod's namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Portforwarder;
use kube::{Api, Client};
use smc_sidecar::statistics::{CALLS_PATH, NotStatistics, called};
use smc_types::ids::{ServiceId, WorkloadId};
use smc_types::ports::METRICS_PORT;
use smc_types::text::truncated;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The sidecars that are asked at a time. Each costs the API server and a kubelet a connection, and a whole
/// mesh is asked by one person.
const PARALLEL: usize = 8;

/// The most sidecars that are asked: at 50 ms each, this takes half a minute.
const MAX_SIDECARS: usize = 5_000;

/// How long a sidecar may take, with the way to it.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the reason of a failed way may take after the failure.
const REASON_LIMIT: Duration = Duration::from_secs(1);

/// The most bytes of an answer: some 40,000 service ports.
const MAX_BYTES: usize = 4 << 20;

/// The service ports that an application has called.
pub type Called = BTreeSet<(ServiceId, u16)>;

/// A sidecar was not asked, or did not answer.
#[derive(Debug, Error)]
pub enum CallsError {
    /// It is no pod.
    #[error("a machine is not reached through the API server")]
    Machine,
    /// It is beyond the bound.
    #[error("not more than {MAX_SIDECARS} sidecars are asked")]
    TooMany,
    /// The API server does not lead to it.
    #[error("cannot forward a port to it")]
    Forward(#[source] Box<kube::Error>),
    /// Its node does not lead to it.
    #[error("its node cannot reach port {METRICS_PORT}: {0}")]
    Node(String),
    /// Its answer is no HTTP, or ends early.
    #[error("cannot read its statistics")]
    Http(#[from] hyper::Error),
    /// It refuses to answer.
    #[error("its statistics are refused with {0}")]
    Status(StatusCode),
    /// The answer is beyond the bound.
    #[error("its statistics are longer than {MAX_BYTES} bytes")]
    TooLong,
    /// It does not answer.
    #[error("it does not answer within {} s", LIMIT.as_secs())]
    Silent,
    /// Something else answers.
    #[error(transparent)]
    NotStatistics(#[from] NotStatistics),
}

/// What the applications of these workloads have called since their sidecars started. Every workload has an
/// entry.
pub async fn calls(
    client: &Client,
    workloads: BTreeSet<WorkloadId>,
) -> BTreeMap<WorkloadId, Result<Called, CallsError>> {
    ask_all(workloads, async |pod: &WorkloadId| {
        let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace());
        forwarded(&pods, pod.name()).await
    })
    .await
}

async fn ask_all(
    workloads: BTreeSet<WorkloadId>,
    ask: impl AsyncFn(&WorkloadId) -> Result<Called, CallsError>,
) -> BTreeMap<WorkloadId, Result<Called, CallsError>> {
    let ask = &ask;
    let answers = workloads.into_iter().enumerate().map(|(at, workload)| async move {
        let answer = if workload.is_machine() {
            Err(CallsError::Machine)
        } else if at >= MAX_SIDECARS {
            Err(CallsError::TooMany)
        } else {
            timeout(LIMIT, ask(&workload)).await.unwrap_or(Err(CallsError::Silent))
        };
        (workload, answer)
    });
    stream::iter(answers).buffer_unordered(PARALLEL).collect().await
}

/// Ends the connection to the API server with it, also while that hangs.
struct Forward(Portforwarder);

impl Drop for Forward {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn forwarded(pods: &Api<Pod>, pod: &str) -> Result<Called, CallsError> {
    let forward = pods.portforward(pod, &[METRICS_PORT]).await;
    let mut forward = Forward(forward.map_err(|error| CallsError::Forward(Box::new(error)))?);
    let (stream, reason) = (forward.0.take_stream(METRICS_PORT), forward.0.take_error(METRICS_PORT));
    let Some(stream) = stream else { return Err(CallsError::Silent) };
    match (read(stream).await, reason) {
        (Err(CallsError::Http(error)), Some(reason)) => {
            let reason = timeout(REASON_LIMIT, reason).await.ok().flatten();
            Err(reason.map_or(CallsError::Http(error), |reason| CallsError::Node(truncated(&reason, 200))))
        }
        (read, _) => read,
    }
}

/// Asks the sidecar at the end of `stream`.
async fn read(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Called, CallsError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the set.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = http::Uri::from_static(CALLS_PATH);
    request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("sidecar"));
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(CallsError::Status(response.status()));
    }
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > MAX_BYTES {
            return Err(CallsError::TooLong);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(called(&String::from_utf8_lossy(&bytes))?)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::sleep;

    use super::*;

    const OWN: &str = "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"envoy-admin\"} 1\n";

    /// What comes of a sidecar that answers with `head` and `body`, again and again if `endless`, and the
    /// request that it got.
    async fn answered(head: &str, body: &str, endless: bool) -> (Result<Called, CallsError>, String) {
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
        (read(ours).await, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_sidecar_is_asked_for_its_calls_and_believed_within_bounds() {
        let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let line = "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"shop/web|80\"} 2\n";
        let (answer, request) = answered(ok, &format!("{OWN}{line}"), false).await;
        assert_eq!(answer.unwrap(), BTreeSet::from([("shop/web".parse().unwrap(), 80)]));
        assert!(request.starts_with(&format!("GET {CALLS_PATH} HTTP/1.1\r\n")), "{request}");

        let (answer, _) = answered(ok, line, true).await;
        assert!(matches!(answer, Err(CallsError::TooLong)), "{answer:?}");
        let (answer, _) = answered("HTTP/1.1 404 Not Found\r\n\r\n", OWN, false).await;
        assert!(matches!(answer, Err(CallsError::Status(StatusCode::NOT_FOUND))), "{answer:?}");
        let (answer, _) = answered(ok, "<html>", false).await;
        assert!(matches!(answer, Err(CallsError::NotStatistics(_))), "{answer:?}");
        for cut_short in ["HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", "", "SSH-2.0\r\n"] {
            let (answer, _) = answered(cut_short, OWN, false).await;
            assert!(matches!(answer, Err(CallsError::Http(_))), "{cut_short:?}: {answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_workload_has_an_answer_and_few_are_asked_at_a_time() {
        let (open, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut workloads: BTreeSet<WorkloadId> =
            (0..MAX_SIDECARS).map(|i| format!("shop/p{i:04}").parse().unwrap()).collect();
        for one in ["shop/zzz", "machine/shop/m"] {
            workloads.insert(one.parse().unwrap());
        }
        let answers = ask_all(workloads.clone(), async |pod: &WorkloadId| {
            most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            if pod.name() == "p0007" {
                pending::<()>().await;
            }
            sleep(Duration::from_millis(1)).await;
            open.fetch_sub(1, Ordering::Relaxed);
            Ok(Called::new())
        })
        .await;
        assert!(answers.keys().eq(&workloads));
        assert!(most.into_inner() <= PARALLEL + 1, "the one that hangs counts on");
        let of = |name: &str| &answers[&name.parse::<WorkloadId>().unwrap()];
        assert!(matches!(of("shop/p0007"), Err(CallsError::Silent)));
        assert!(matches!(of("shop/zzz"), Err(CallsError::TooMany)));
        assert!(matches!(of("machine/shop/m"), Err(CallsError::Machine)));
        assert_eq!(answers.values().filter(|answer| answer.is_ok()).count(), MAX_SIDECARS - 1);
    }
}
