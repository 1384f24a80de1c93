//! What both HTTP servers do with every request, whatever came of it: the answer says whom was seen, the journal too.

use bytes::Bytes;
use http::{HeaderValue, Request, Response};

use super::identity::{IDENTITY_NONE, IDENTITY_SEEN_HEADER, peer_identity};
use super::record::{Journal, Received, Record};

/// Tells the caller whom `at` saw calling, and writes the request and its outcome down.
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
