//! The door to an API server: a path goes in, a status and a stream of bytes come out.
//!
//! Owns the trait that the Kubernetes source reads through, and its implementation by the real client. What
//! is asked and what an answer means is decided behind it, so a stand-in for an API server needs no HTTP.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, DATE, RETRY_AFTER};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use smc_types::time::Timestamp;
use thiserror::Error;

/// The API server cannot be reached, or an answer was interrupted.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Unreachable(#[source] pub Box<dyn Error + Send + Sync>);

/// The head of a response, and its body as it arrives.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// How long the API server asks to be left alone, if it does.
    pub retry_after: Option<Duration>,
    /// The time by the API server's clock, if it says so (RFC 9110, section 6.6.1).
    pub date: Option<Timestamp>,
    /// The body in pieces of any size. It ends with `None`; after an error there is nothing more.
    pub body: BoxStream<'static, Result<Bytes, Unreachable>>,
}

/// An API server, to read from.
pub trait ApiServer: Send + Sync {
    /// Sends `GET path`, where `path` begins with `/` and has its query. Returns with the head of the answer.
    /// The caller limits the time. Dropping the future or the body ends the request.
    fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>>;
}

impl ApiServer for Client {
    fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
        get(self.clone(), path, "application/json")
    }
}

/// An API server of whose objects only the metadata is wanted.
pub(crate) struct MetadataOnly(pub(crate) Client);

impl ApiServer for MetadataOnly {
    fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
        get(self.0.clone(), path, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
    }
}

fn get(client: Client, path: &str, accept: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
    // A compressed watch would have to be decompressed event by event.
    let request =
        Request::get(path).header(ACCEPT, accept).header(ACCEPT_ENCODING, "identity").body(Body::empty());
    async move {
        let request = request.map_err(|error| Unreachable(error.into()))?;
        let response = client.send(request).await.map_err(|error| Unreachable(error.into()))?;
        let status = response.status().as_u16();
        let (retry_after, date) = (retry_after(response.headers()), date(response.headers()));
        let body = response.into_body().into_data_stream().map_err(|error| Unreachable(error.into()));
        Ok(Answer { status, retry_after, date, body: body.boxed() })
    }
    .boxed()
}

/// The header `Retry-After` in seconds, the only form that an API server sends.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The header `Date`, in the only form that servers may send, which is one of RFC 2822's.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let date = headers.get(DATE)?.to_str().ok()?;
    Some(Timestamp(rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?.as_second()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_date_is_read_and_anything_else_is_none() {
        let read = |text: &'static str| date(&HeaderMap::from_iter([(DATE, HeaderValue::from_static(text))]));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Timestamp(784_111_777)));
        for text in ["", "yesterday", "784111777", "Sun, 06 Nov 99999 08:49:37 GMT"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(date(&HeaderMap::new()), None);
    }
}
