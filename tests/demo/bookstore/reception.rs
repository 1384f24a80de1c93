//! Owns the last step of every HTTP request: the response names the client's identity, and the
//! journal records the request.

use bytes::Bytes;
use http::{HeaderValue, Request, Response};

use super::identity::{IDENTITY_NONE, IDENTITY_SEEN_HEADER, peer_identity};
use super::record::{Journal, Received, Record};

/// Adds the client's identity, as `at` saw it, to the response, and records the request with its
/// status.
pub(super) async fn acknowledge(
    journal: &Journal,
    at: &str,
    request: &Request<Bytes>,
    mut response: Response<Bytes>,
) -> Response<Bytes> {
    let from = peer_identity(request.headers());
    if let Ok(seen) = HeaderValue::from_str(from.as_deref().unwrap_or(IDENTITY_NONE)) {
        response.headers_mut().insert(IDENTITY_SEEN_HEADER, seen);
    }
    journal
        .write(Record::Received(Received {
            t_ms: journal.now_ms(),
            at: at.to_owned(),
            from,
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            status: Some(response.status().as_u16()),
        }))
        .await;
    response
}
