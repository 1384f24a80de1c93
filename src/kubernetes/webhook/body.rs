//! Reading what a client of the webhooks sends.
//!
//! Owns the bounds: of one body, of all bodies at a time, and of the time. Any peer that reaches the port may
//! send, so a body is charged as it arrives and not by the length that it claims.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The most bytes of one review. The API server takes objects of 3 MiB; an update has the old one, too.
pub(crate) const MAX_REVIEW: usize = 8 << 20;

/// Bytes of all bodies that are read or being answered, in KiB: 64 MiB. As JSON values they take a few times
/// that.
const MAX_TOGETHER_KIB: usize = 64 << 10;

/// How long a body may take. The API server sends it at once.
const LIMIT: Duration = Duration::from_secs(5);

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is longer than allowed.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// There is no room for more of it.
    #[error("too many requests at once")]
    Busy,
    /// It did not arrive in time.
    #[error("the body did not arrive within {} s", LIMIT.as_secs())]
    Slow,
    /// The connection was interrupted.
    #[error("the body was interrupted")]
    BrokeOff,
    /// It is not JSON, or not what was asked for.
    #[error("the body cannot be read: {0}")]
    Unreadable(String),
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::BrokeOff | Self::Unreadable(_) => StatusCode::BAD_REQUEST,
        };
        (status, self.to_string()).into_response()
    }
}

/// The room for bodies. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bodies(Arc<Semaphore>);

/// What was read, and its place in the room until it is answered.
pub(crate) struct Read<T> {
    pub(crate) value: T,
    _place: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    /// Empty.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TOGETHER_KIB)))
    }

    /// Reads JSON of at most `max` bytes.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        body: Body,
        max: usize,
    ) -> Result<Read<T>, BodyError> {
        let collected = timeout(LIMIT, self.collect(body, max)).await.map_err(|_| BodyError::Slow)?;
        let (bytes, place) = collected?;
        let unreadable = |error: serde_json::Error| {
            BodyError::Unreadable(smc_types::text::truncated(&error.to_string(), 200))
        };
        let value = serde_json::from_slice(&bytes).map_err(unreadable)?;
        Ok(Read { value, _place: place })
    }

    async fn collect(
        &self,
        mut body: Body,
        max: usize,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), BodyError> {
        let mut bytes = Vec::new();
        let mut place: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyError::BrokeOff)?.into_data() else { continue };
            if bytes.len() + data.len() > max {
                return Err(BodyError::TooLarge(max));
            }
            let held = place.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = (bytes.len() + data.len()).div_ceil(1024).saturating_sub(held);
            let more = u32::try_from(more).map_err(|_| BodyError::Busy)?;
            let room = Arc::clone(&self.0).try_acquire_many_owned(more).map_err(|_| BodyError::Busy)?;
            match &mut place {
                Some(place) => place.merge(room),
                None => place = Some(room),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, place))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_is_refused_for_its_size_its_slowness_and_its_content() {
        let bodies = Bodies::new();
        let read = async |body: Body| bodies.read::<Value>(body, 10).await.map(|read| read.value);
        assert_eq!(read(Body::from("{\"a\": 1}")).await, Ok(json!({"a": 1})));
        assert_eq!(read(Body::from("{\"a\": 11111}")).await, Err(BodyError::TooLarge(10)));
        assert!(matches!(read(Body::from("{\"a\"")).await, Err(BodyError::Unreadable(_))));
        assert!(matches!(read(Body::empty()).await, Err(BodyError::Unreadable(_))));
        let silent =
            Body::from_stream(futures_util::stream::pending::<Result<&'static str, std::io::Error>>());
        assert_eq!(read(silent).await, Err(BodyError::Slow));
        let nested = "[".repeat(200);
        let deep = bodies.read::<Value>(Body::from(nested), 1000).await.map(|read| read.value);
        assert!(matches!(deep, Err(BodyError::Unreadable(_))));
    }

    #[tokio::test]
    async fn bodies_share_a_room_and_leave_it() {
        let bodies = Bodies(Arc::new(Semaphore::new(2)));
        let body = || Body::from(format!("\"{}\"", "x".repeat(1500)));
        let first = bodies.read::<String>(body(), 4096).await.unwrap();
        assert_eq!(first.value.len(), 1500);
        assert_eq!(bodies.read::<String>(body(), 4096).await.err(), Some(BodyError::Busy));
        drop(first);
        assert!(bodies.read::<String>(body(), 4096).await.is_ok());
    }
}
