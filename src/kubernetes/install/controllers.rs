//! The controllers of a cluster, called through its API server.
//!
//! Owns which pod is called, and the stream to it: the program runs itself there and connects the stream to
//! the administration socket, which no port leads to.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, AttachedProcess, ListParams};
use kube::{Api, Client as KubeClient};
use smc_server::admin::client::{Client, over};
use smc_types::ids::{MeshNamespace, ReplicaId};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf, ReadHalf, SimplexStream, WriteHalf, join};
use tokio::time::timeout;

/// The labels of the controllers' pods.
pub const SELECTOR: &str = "app.kubernetes.io/part-of=smc,app.kubernetes.io/component=controller";

/// The container of the controller.
const CONTAINER: &str = "controller";

/// How long the way to a pod may take: the API server, the kubelet, and the start of a process.
const REACH: Duration = Duration::from_secs(15);

/// The bytes that wait in each direction.
const BUFFER: usize = 64 << 10;

/// No controller can be called.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// The pods cannot be listed.
    #[error("cannot list the controllers in {namespace}")]
    List {
        /// The control plane's namespace.
        namespace: MeshNamespace,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// There is none that runs.
    #[error("no controller in the namespace {0} runs; --mesh-namespace names another, `smc check` says more")]
    NoneRuns(MeshNamespace),
    /// No process can be started in the pod.
    #[error("cannot call the administration of {pod}")]
    Exec {
        /// The pod.
        pod: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The pod, or the way to it, does not answer.
    #[error("{0} does not answer in time")]
    Silent(String),
    /// The pod's process answers no calls.
    #[error("the administration of {pod} does not answer")]
    Channel {
        /// The pod.
        pod: String,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
}

/// The controllers of one namespace.
pub struct Controllers {
    pods: Api<Pod>,
    namespace: MeshNamespace,
}

impl Controllers {
    /// The controllers in `namespace`.
    pub fn new(client: KubeClient, namespace: MeshNamespace) -> Self {
        Self { pods: Api::namespaced(client, namespace.as_str()), namespace }
    }

    /// A client of `replica`, or of the first controller that is ready; where none is, of the first that
    /// runs, which says what it waits for. A call may take `limit`.
    pub async fn client(
        &self,
        replica: Option<ReplicaId>,
        limit: Duration,
    ) -> Result<Client, ControllerError> {
        let pod = if let Some(replica) = replica {
            format!("smc-controller-{replica}")
        } else {
            let first = self.callable().await?.into_iter().next();
            first.ok_or_else(|| ControllerError::NoneRuns(self.namespace.clone()))?
        };
        self.call(pod, limit).await
    }

    /// A client of each controller that is ready, or of each that runs where none is; there is one at least.
    pub async fn clients(&self, limit: Duration) -> Result<Vec<Client>, ControllerError> {
        let mut clients = Vec::new();
        for pod in self.callable().await? {
            clients.push(self.call(pod, limit).await?);
        }
        if clients.is_empty() {
            return Err(ControllerError::NoneRuns(self.namespace.clone()));
        }
        Ok(clients)
    }

    /// A client of each controller that runs, ready or not, or why there is none; there is one at least.
    pub async fn all(
        &self,
        limit: Duration,
    ) -> Result<Vec<Result<Client, ControllerError>>, ControllerError> {
        let mut clients = Vec::new();
        for pod in self.chosen(runs).await? {
            clients.push(self.call(pod, limit).await);
        }
        if clients.is_empty() {
            return Err(ControllerError::NoneRuns(self.namespace.clone()));
        }
        Ok(clients)
    }

    /// The names of the pods that are ready, or of those that run if none is, sorted.
    async fn callable(&self) -> Result<BTreeSet<String>, ControllerError> {
        let ready = self.chosen(is_ready).await?;
        if ready.is_empty() { self.chosen(runs).await } else { Ok(ready) }
    }

    /// The names of the pods that are to be called, sorted.
    async fn chosen(&self, chosen: fn(&Pod) -> bool) -> Result<BTreeSet<String>, ControllerError> {
        let listed = timeout(REACH, self.pods.list(&ListParams::default().labels(SELECTOR))).await;
        let listed = listed.map_err(|_| ControllerError::Silent("the API server".to_owned()))?;
        let namespace = self.namespace.clone();
        let pods = listed.map_err(|source| ControllerError::List { namespace, source: Box::new(source) })?;
        Ok(pods.items.into_iter().filter(chosen).filter_map(|pod| pod.metadata.name).collect())
    }

    async fn call(&self, pod: String, limit: Duration) -> Result<Client, ControllerError> {
        let how = AttachParams {
            container: Some(CONTAINER.to_owned()),
            stdin: true,
            stdout: true,
            stderr: false,
            max_stdin_buf_size: Some(BUFFER),
            max_stdout_buf_size: Some(BUFFER),
            ..AttachParams::default()
        };
        let started = timeout(REACH, self.pods.exec(&pod, ["/usr/local/bin/smc", "admin-pipe"], &how)).await;
        let started = started.map_err(|_| ControllerError::Silent(pod.clone()))?;
        let failed = |source| ControllerError::Exec { pod: pod.clone(), source: Box::new(source) };
        let process = started.map_err(failed)?;
        let Some(stream) = PodStream::of(process) else { return Err(ControllerError::Silent(pod)) };
        let connected = timeout(REACH, over(stream, limit)).await;
        let connected = connected.map_err(|_| ControllerError::Silent(pod.clone()))?;
        connected.map_err(|source| ControllerError::Channel { pod, source })
    }
}

/// Whether a pod is ready, and is not about to end.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = |conditions: &Vec<_>| {
        conditions.iter().any(|condition: &k8s_openapi::api::core::v1::PodCondition| {
            condition.type_ == "Ready" && condition.status == "True"
        })
    };
    pod.metadata.deletion_timestamp.is_none() && conditions.is_some_and(ready)
}

/// Whether the controller of a pod runs.
fn runs(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let running = |container: &k8s_openapi::api::core::v1::ContainerStatus| {
        container.name == CONTAINER && container.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    pod.metadata.deletion_timestamp.is_none() && containers.is_some_and(|all| all.iter().any(running))
}

/// The standard streams of a process in a pod. The process ends with it.
struct PodStream {
    streams: Join<ReadHalf<SimplexStream>, WriteHalf<SimplexStream>>,
    _process: AttachedProcess,
}

impl PodStream {
    fn of(mut process: AttachedProcess) -> Option<Self> {
        let (output, input) = (process.stdout()?, process.stdin()?);
        Some(Self { streams: join(output, input), _process: process })
    }
}

impl AsyncRead for PodStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.streams).poll_read(cx, buf)
    }
}

impl AsyncWrite for PodStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.streams).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.streams).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.streams).poll_shutdown(cx)
    }
}
