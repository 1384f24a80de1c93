//! A response whose pauses are limited.
//!
//! Owns the limit of one response. The limit of a connection's reads does not end a response that
//! hangs on an HTTP/2 connection, since others and pings keep that connection busy.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::{Sleep, sleep};
use tower::BoxError;

/// A response paused for too long.
#[derive(Debug, Error)]
#[error("the response paused for {} seconds", .0.as_secs())]
struct Paused(Duration);

/// A body that ends with an error when its next part takes longer than the limit. The time counts
/// while it is read: a reader may leave it alone for as long as it likes.
pub(super) struct Paced<B> {
    body: B,
    limit: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<B> Paced<B> {
    pub(super) fn new(body: B, limit: Duration) -> Self {
        Self { body, limit, pause: None }
    }
}

impl<B: Body + Unpin> Body for Paced<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.pause = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = self.limit;
        ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Some(Err(Paused(limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
