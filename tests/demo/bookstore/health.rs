//! Owns `GET /health` on a port of its own, so that probes do not depend on the sidecar's policy.
//! It reports that this program serves, and is independent of the other programs.

use std::net::SocketAddr;

use http::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::http_server::{json, problem, serve};
use super::{BookstoreError, bind};

/// Opens the health port.
pub(super) async fn bind_health(address: SocketAddr) -> Result<TcpListener, BookstoreError> {
    bind("health", address).await
}

/// Answers probes until shutdown.
pub(super) async fn serve_health(listener: TcpListener, shutdown: CancellationToken) {
    serve(listener, shutdown, |request| async move {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/health") => json(StatusCode::OK, &serde_json::json!({ "healthy": true })),
            _ => problem(StatusCode::NOT_FOUND, "only GET /health is here"),
        }
    })
    .await;
}
