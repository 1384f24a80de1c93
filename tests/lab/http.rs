//! Owns one HTTP/1.1 GET over an existing connection.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::reports::HttpReply;

/// Envoy's `/config_dump` of a large mesh has tens of megabytes.
const MAX_BODY_BYTES: usize = 128 << 20;

/// Sends the request and reads the whole response.
pub(super) async fn get(stream: TcpStream, path: &str, timeout: Duration) -> io::Result<HttpReply> {
    let exchange = async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::builder()
            .uri(path)
            .header("host", "localhost")
            .body(Full::new(Bytes::new()))
            .map_err(io::Error::other)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_BODY_BYTES);
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            Ok(HttpReply { status, body: String::from_utf8_lossy(&body).into_owned() })
        };
        tokio::pin!(answer);
        tokio::select! {
            // The connection ends with a complete or a broken response; `answer` reports which.
            _ = connection => (&mut answer).await,
            reply = &mut answer => reply,
        }
    };
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}
