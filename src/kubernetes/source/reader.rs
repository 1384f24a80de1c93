//! Requests to the API server, with the limits of time and size that they need.
//!
//! Owns the requests' paths and how their bodies are read. What an answer means is decided elsewhere.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use smc_types::time::Timestamp;
use tokio::time::timeout;

use super::failure::Failure;
use super::lines::{Lines, MAX_LINE_BYTES};
use super::message::{self, Page};
use crate::api::{Answer, ApiServer, Unreachable};

/// How long the head of an answer may take. A list of 500 objects takes the API server some tens of
/// milliseconds; a conversion webhook may take some seconds.
const HEAD_LIMIT: Duration = Duration::from_secs(20);

/// How long a body that has an end may pause.
pub(super) const PAUSE_LIMIT: Duration = Duration::from_secs(20);

/// Bytes of a page of several objects: 500 of 16 KiB each, and a pod has some 8. All kinds may be listed at
/// once, so this counts 17 times. A page that is larger is asked for in smaller ones.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of a page of one object: as a line of a watch, of which that object is the most part.
const MAX_OBJECT_PAGE_BYTES: usize = MAX_LINE_BYTES;

/// Bytes of what an API server says that it serves. A group takes some 300 bytes, a resource less than 1 KiB.
const MAX_DISCOVERY_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of a refusal that are read.
const MAX_WRITTEN_BYTES: usize = 64 * 1024;

/// Asks the API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reader(pub(super) Arc<dyn ApiServer>);

impl Reader {
    /// The whole body of discovery at `path`, and the time by the API server's clock, if it says so.
    pub(super) async fn dated_body(&self, path: &str) -> Result<(Bytes, Option<Timestamp>), Failure> {
        let answer = self.open(path).await?;
        let date = answer.date;
        let body = read_body(answer, MAX_DISCOVERY_BYTES).await?.ok_or_else(|| {
            Failure::Malformed(format!("{path} is longer than {} MiB", MAX_DISCOVERY_BYTES / 1024 / 1024))
        })?;
        Ok((body, date))
    }

    /// A page of at most `limit` objects of the list at `path`: the first one, of what `query` asks for (such
    /// as `resourceVersion=5&resourceVersionMatch=Exact`), or the one after, which continues it.
    pub(super) async fn page(
        &self,
        path: &str,
        next: Option<&str>,
        limit: usize,
        query: &str,
    ) -> Result<Page, Failure> {
        let answer = self.open(&page_path(path, next, limit, query)).await?;
        let max = if limit > 1 { MAX_PAGE_BYTES } else { MAX_OBJECT_PAGE_BYTES };
        let body = read_body(answer, max).await?.ok_or(Failure::TooLarge { limit })?;
        message::page(&body).map_err(|error| Failure::Malformed(error.to_string()))
    }

    /// The version of the list at `path` as it is now: a consistent read, of one object at most.
    pub(super) async fn head_version(&self, path: &str) -> Result<String, Failure> {
        let answer = self.open(&page_path(path, None, 1, "")).await?;
        let body = read_body(answer, MAX_OBJECT_PAGE_BYTES).await?.ok_or(Failure::TooLarge { limit: 1 })?;
        message::list_version(&body).map_err(|error| Failure::Malformed(error.to_string()))
    }

    /// The events at `path` after this version. The API server ends the watch after `seconds`.
    pub(super) async fn watch(&self, path: &str, version: &str, seconds: u64) -> Result<Lines, Failure> {
        let version = encoded(version);
        let path = format!(
            "{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
        );
        Ok(Lines::new(self.open(&path).await?.body))
    }

    /// All objects at `path` as events, a bookmark, and then the events after it.
    pub(super) async fn streaming_list(&self, path: &str, seconds: u64) -> Result<Lines, Failure> {
        let path = format!(
            "{path}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&timeoutSeconds={seconds}"
        );
        Ok(Lines::new(self.open(&path).await?.body))
    }

    /// The answer at `path`, unless it is a refusal.
    async fn open(&self, path: &str) -> Result<Answer, Failure> {
        let answer = match timeout(HEAD_LIMIT, self.0.get(path)).await {
            Ok(answer) => answer.map_err(Failure::Unreachable)?,
            Err(_) => return Err(Failure::NoAnswer),
        };
        if answer.status == 200 {
            return Ok(answer);
        }
        let (code, retry_after) = (answer.status, answer.retry_after);
        let body = read_body(answer, MAX_WRITTEN_BYTES).await?.unwrap_or_default();
        Err(Failure::Refused { status: message::status(code, &body), retry_after })
    }
}

/// The body as a whole; `None` if it is longer than `max` bytes.
async fn read_body(mut answer: Answer, max: usize) -> Result<Option<Bytes>, Failure> {
    let mut body = BytesMut::new();
    loop {
        let piece: Option<Result<Bytes, Unreachable>> =
            timeout(PAUSE_LIMIT, answer.body.next()).await.map_err(|_| Failure::NoAnswer)?;
        match piece {
            None => return Ok(Some(body.freeze())),
            Some(piece) => body.extend_from_slice(&piece.map_err(Failure::Unreachable)?),
        }
        if body.len() > max {
            return Ok(None);
        }
    }
}

/// The query of a list as it was at this version.
pub(super) fn exact(version: &str) -> String {
    format!("resourceVersion={}&resourceVersionMatch=Exact", encoded(version))
}

/// The path of a page of the list at `path`. What is asked for with `next` has a version already, and an API
/// server refuses another one beside it.
fn page_path(path: &str, next: Option<&str>, limit: usize, query: &str) -> String {
    let mut path = format!("{path}?limit={limit}");
    for part in [query, &next.map(|next| format!("continue={}", encoded(next))).unwrap_or_default()] {
        if !part.is_empty() {
            path.push('&');
            path.push_str(part);
        }
    }
    path
}

/// A value of a query (RFC 3986).
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                encoded.push('%');
                encoded.push(HEX[usize::from(byte >> 4)].into());
                encoded.push(HEX[usize::from(byte & 15)].into());
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    /// Answers every request with a list of this many bytes, in pieces.
    struct Long(usize);

    impl ApiServer for Long {
        fn get(&self, _: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
            let (head, tail) = (r#"{"metadata":{"resourceVersion":"9"},"items":["#, "]}");
            let spaces = Bytes::from(" ".repeat(self.0 - head.len() - tail.len()));
            let middle = (0..spaces.len()).step_by(100_000);
            let middle = middle.map(move |from| spaces.slice(from..spaces.len().min(from + 100_000)));
            let pieces = std::iter::once(Bytes::from(head)).chain(middle).chain([Bytes::from(tail)]);
            let body = futures_util::stream::iter(pieces.map(Ok)).boxed();
            std::future::ready(Ok(Answer { status: 200, retry_after: None, date: None, body })).boxed()
        }
    }

    #[tokio::test]
    async fn a_page_is_too_large_by_the_number_of_its_objects() {
        for (bytes, limit, too_large) in [
            (MAX_PAGE_BYTES, 500, false),
            (MAX_PAGE_BYTES + 1, 500, true),
            (MAX_PAGE_BYTES + 1, 2, true),
            (MAX_PAGE_BYTES + 1, 1, false),
            (MAX_OBJECT_PAGE_BYTES, 1, false),
            (MAX_OBJECT_PAGE_BYTES + 1, 1, true),
        ] {
            let reader = Reader(Arc::new(Long(bytes)));
            match reader.page("/api/v1/pods", None, limit, "").await {
                Err(Failure::TooLarge { limit: of }) => assert!(too_large && of == limit, "{bytes} {limit}"),
                page => {
                    assert_eq!(page.unwrap().version, "9");
                    assert!(!too_large, "{bytes} {limit}");
                }
            }
            let version = reader.head_version("/api/v1/pods").await;
            assert_eq!(version.ok().as_deref(), (bytes <= MAX_OBJECT_PAGE_BYTES).then_some("9"));
        }
    }

    #[test]
    fn a_page_is_of_one_version_whatever_its_size() {
        let exact = &*exact("5");
        for (next, query, expected) in [
            (None, "", "/api/v1/pods?limit=7"),
            (None, exact, "/api/v1/pods?limit=7&resourceVersion=5&resourceVersionMatch=Exact"),
            (Some("a/b="), "", "/api/v1/pods?limit=7&continue=a%2Fb%3D"),
            (Some("a"), "labelSelector=b", "/api/v1/pods?limit=7&labelSelector=b&continue=a"),
        ] {
            assert_eq!(page_path("/api/v1/pods", next, 7, query), expected);
        }
    }

    #[test]
    fn a_value_of_a_query_is_encoded() {
        assert_eq!(encoded("eyJ2Ijoi-_~.a+b/c=&d"), "eyJ2Ijoi-_~.a%2Bb%2Fc%3D%26d");
    }
}
