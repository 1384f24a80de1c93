//! The administration of a replica that does not serve yet, because its group has no leader or it is in none.
//!
//! Owns the one answer that it has, the state of the group: `smc check`, `smc install` and `smc cluster
//! status` say by it what the replica waits for. Every other call fails with that reason, and may be tried
//! again.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use smc_issuing::ClockError;
use smc_proto::admin::v1 as pb;
use smc_proto::admin::v1::admin_server::SERVICE_NAME;
use smc_raft::{Group, ReplicatedLedger};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use super::report;
use super::socket::{self, AdminSocket, SocketError};

/// The path of the call that is answered.
const STATUS: &str = "/smc.admin.v1.Admin/GetClusterStatus";

/// How long open calls may take to end. One that stays open must not hold up the start.
const END: Duration = Duration::from_secs(2);

/// The administration while a replica starts. Dropping it ends it.
#[derive(Debug)]
pub struct StartingAdmin {
    /// What the replica waits for beside its group; empty if that is nothing.
    waits: watch::Sender<String>,
    socket: AdminSocket,
    ending: DropGuard,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl StartingAdmin {
    /// Answers at `path` for a member of `group`.
    ///
    /// # Errors
    ///
    /// The socket cannot be bound.
    pub async fn start(path: &Path, group: Arc<Group>) -> Result<Self, SocketError> {
        let socket = AdminSocket::bind(path).await?;
        let ending = CancellationToken::new();
        let (waits, waiting) = watch::channel(String::new());
        let service = Starting { group, waits: waiting };
        let task = tokio::spawn(socket::serve(socket.clone(), service, ending.clone()));
        Ok(Self { waits, socket, ending: ending.drop_guard(), task })
    }

    /// Says what the replica waits for from now on, once its group does not.
    pub fn waits_for(&self, what: String) {
        self.waits.send_replace(what);
    }

    /// Ends it. A client that connects to the socket that is returned waits for the next server at it.
    pub(crate) async fn end(self) -> AdminSocket {
        let Self { socket, ending, mut task, .. } = self;
        drop(ending);
        // What it failed with, the next server at this socket reports.
        if timeout(END, &mut task).await.is_err() {
            task.abort();
            let _ = task.await;
        }
        socket
    }
}

/// The service of the administration, of which a part answers.
#[derive(Clone)]
struct Starting {
    group: Arc<Group>,
    waits: watch::Receiver<String>,
}

impl NamedService for Starting {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for Starting {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (group, missing) = (Arc::clone(&self.group), self.missing());
        async move {
            if request.uri().path() != STATUS {
                return Ok(unavailable(&missing).into_http());
            }
            let answer = service_fn(move |_: Request<pb::GetClusterStatusRequest>| {
                let mut status = report::cluster_status(&group, 0);
                status.waits_for.clone_from(&missing);
                std::future::ready(Ok::<_, Status>(Response::new(status)))
            });
            let codec = ProstCodec::<pb::GetClusterStatusResponse, pb::GetClusterStatusRequest>::default();
            Ok(Grpc::new(codec).unary(answer, request).await)
        }
        .boxed()
    }
}

impl Starting {
    /// What the replica waits for: its group, then the clocks of the others, then what else is said, and then
    /// it is about to serve.
    fn missing(&self) -> String {
        let clocks =
            || ClockError::check(&self.group.time()).err().map(|error| format!("the clocks: {error}"));
        let said = || Some(self.waits.borrow().clone()).filter(|what| !what.is_empty());
        let missing = self.group.waits_for().or_else(clocks).or_else(said);
        missing.unwrap_or_else(|| "what its group committed".to_owned())
    }
}

fn unavailable(missing: &str) -> Status {
    let text = format!("this controller does not serve yet; it waits for {missing}");
    Status::new(Code::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use smc_host::env::Env;
    use smc_raft::{MemoryDisk, Storage};
    use smc_types::ids::ReplicaId;

    use super::*;
    use crate::admin::client::connect;

    #[tokio::test]
    async fn a_replica_that_starts_says_what_it_waits_for() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("admin.sock");
        let storage = Storage::Memory(MemoryDisk::default());
        let group = Arc::new(Group::alone(ReplicaId(0), storage, &Env::system()).await.unwrap());
        let starting = StartingAdmin::start(&socket, Arc::clone(&group)).await.unwrap();
        let mut client = connect(&socket).await.unwrap();
        let mut waits_for = async || {
            let status = client.get_cluster_status(pb::GetClusterStatusRequest {}).await.unwrap();
            status.into_inner().waits_for
        };
        assert_eq!(waits_for().await, "what its group committed");
        starting.waits_for("a person".to_owned());
        assert_eq!(waits_for().await, "a person");
        let refused = client.list_proxies(pb::ListProxiesRequest::default()).await.unwrap_err();
        assert!(refused.message().ends_with("it waits for a person"), "{refused}");
        let handed_over = starting.end().await;
        let connected = tokio::net::UnixStream::connect(&socket).await;
        assert!(connected.is_ok(), "there is no moment without the socket");
        drop(handed_over);
        assert!(!socket.exists());
        group.stop().await;
    }
}
