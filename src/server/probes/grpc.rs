//! The probes over gRPC, by the gRPC health checking protocol (`grpc.health.v1`), as kubelet asks them.
//!
//! Owns the port. The service names are `startup`, `liveness` and `readiness`. `Watch` is not served: the
//! protocol lets a server do without, and no kubelet asks for it.

use std::time::Duration;

use futures_util::stream::Empty;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use smc_host::accept::{Accepted, Acceptor, Bounds, FAIR, FirstBytes};
use smc_host::network::{Io, Listener};
use smc_host::tasks::{Tasks, Tracked};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tracing::debug;

use super::Probes;

/// Connections at once. A kubelet has three probes, each with a connection of its own from its node's
/// address; with fewer places for one address than for all, no other address can take them all.
const WAITING: Bounds = Bounds { total: 64, per_address: 32, fair: FAIR };

/// How long a connection may last: a probe asks once, and waits a few seconds at most.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The most streams of a connection; a probe has one.
const MAX_STREAMS: u32 = 4;

/// The bounds on the headers and the request of a probe, which take some hundred bytes.
const MAX_HEADER_BYTES: u32 = 8 << 10;
const MAX_REQUEST_BYTES: usize = 1 << 10;

/// What a connection may send in all. A probe sends less than 1 KiB, most of it headers.
const MAX_BYTES: usize = 16 << 10;

/// The least window that HTTP/2 lets a receiver announce for a connection.
const RECEIVE_WINDOW: u32 = 65_535;

/// Starts the server.
pub fn start(listener: Box<dyn Listener>, probes: Probes, tasks: &mut Tasks) {
    tasks.spawn("probes", |stopping| serve(listener, probes, stopping));
}

/// Serves until `stopping`, then drops open connections: a kubelet asks again.
async fn serve(listener: Box<dyn Listener>, probes: Probes, stopping: CancellationToken) {
    let mut acceptor = Acceptor::new(listener, "probes", WAITING);
    let mut connections = JoinSet::new();
    loop {
        let Accepted { socket, mut place, .. } = tokio::select! {
            () = stopping.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = acceptor.accept() => accepted,
        };
        let probes = probes.clone();
        connections.spawn(async move {
            let served = place.hold(timeout(CONNECTION_TIMEOUT, connection(socket, probes))).await;
            if !matches!(served, Ok(Ok(()))) {
                debug!("the connection of a probe was closed before its end");
            }
        });
    }
}

async fn connection(socket: Box<dyn Io>, probes: Probes) {
    let health = HealthServer::new(probes).max_decoding_message_size(MAX_REQUEST_BYTES);
    let requests = TaskTracker::new();
    let mut builder = http2::Builder::new(Tracked(requests.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .initial_stream_window_size(RECEIVE_WINDOW);
    // Never lifted: no peer of this port proves itself.
    let socket = TokioIo::new(FirstBytes::new(socket, MAX_BYTES));
    let served = builder.serve_connection(socket, TowerToHyperService::new(health)).await;
    if let Err(error) = served {
        debug!(%error, "the connection of a probe ended");
    }
    requests.close();
    requests.wait().await;
}

#[tonic::async_trait]
impl Health for Probes {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let probe = request.into_inner().service;
        let Some(serving) = self.answer(&probe) else {
            return Err(Status::not_found("the probes are startup, liveness and readiness"));
        };
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("ask with Check"))
    }
}

#[cfg(test)]
mod tests {
    use smc_host::network::{Network, Tcp};
    use tokio::io::AsyncWriteExt;
    use tonic::Code;
    use tonic::transport::Endpoint;
    use tonic_health::pb::health_client::HealthClient;

    use super::*;

    #[tokio::test]
    async fn a_kubelet_is_answered_and_further_connections_do_not_hinder_it() {
        let listener = Tcp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let stopping = CancellationToken::new();
        let mut tasks = Tasks::new(stopping.clone());
        let probes = Probes::default();
        start(listener, probes.clone(), &mut tasks);
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        let ask = async |service: &str| {
            let channel =
                Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
            let mut client = HealthClient::new(channel);
            let asked = client.check(HealthCheckRequest { service: service.to_owned() }).await;
            asked.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
        };
        assert_eq!(ask("startup").await, Ok(ServingStatus::NotServing));
        probes.note_start();
        assert_eq!(ask("startup").await, Ok(ServingStatus::Serving));
        assert_eq!(ask("liveness").await, Ok(ServingStatus::Serving));
        assert_eq!(ask("readiness").await, Ok(ServingStatus::NotServing));
        assert_eq!(ask("nothing").await, Err(Code::NotFound));
        assert_eq!(ask(&"x".repeat(2 * MAX_REQUEST_BYTES)).await, Err(Code::OutOfRange));
        stopping.cancel();
        tasks.all_ended().await.unwrap();
    }

    #[tokio::test]
    async fn a_stranger_that_goes_on_sending_loses_its_connection() {
        let listener = Tcp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let mut tasks = Tasks::new(CancellationToken::new());
        start(listener, Probes::default(), &mut tasks);
        let (mut read, mut write) = tokio::net::TcpStream::connect(address).await.unwrap().into_split();
        let unknown_frame = [0, 0, 8, 0xfe, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7];
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let sending = async {
            while write.write_all(&unknown_frame).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let ended = async { tokio::io::copy(&mut read, &mut tokio::io::sink()).await.map(drop) };
        let both = timeout(CONNECTION_TIMEOUT / 2, async { tokio::join!(sending, ended) });
        assert!(both.await.is_ok(), "still open");
    }
}
