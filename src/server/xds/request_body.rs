//! The body of a stream's requests: gRPC's frames, taken apart under the proxy's bounds.
//!
//! Owns the framing of requests and the bounds on those that are not handled yet: how many bytes a proxy
//! may have of them, on all its streams together, and how long one may take to arrive. tonic's own
//! framing would reserve what a message says it is long, and keep the largest for as long as the stream
//! lives. It is shown an empty message for each one that is complete; [`Framed`] has the message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame};
use smc_host::sync::lock;
use smc_xds::session::{MAX_REQUEST_BYTES, MAX_UNHANDLED_BYTES};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use super::overhead::Overhead;
use super::rate_limit::RateLimit;

/// The time from the first byte of a request to its last. The largest has to come at 140 KB/s.
const ARRIVAL_LIMIT: Duration = Duration::from_mins(1);

/// The header of a gRPC message: whether it is compressed, and its length.
const HEADER: usize = 5;

/// An uncompressed message without content.
const EMPTY_MESSAGE: [u8; HEADER] = [0; HEADER];

/// The least that a message's memory grows by.
const GROWTH: usize = 16 << 10;

/// The bytes of a proxy's requests that are not handled, complete or not. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Unhandled(Arc<AtomicUsize>);

impl Unhandled {
    /// Makes room for a request. `None` if the proxy has too many unhandled.
    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= MAX_UNHANDLED_BYTES);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Reservation { unhandled: self.clone(), bytes })
    }
}

/// The room that a request takes, until this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    unhandled: Unhandled,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.unhandled.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A complete message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Bytes,
    pub(super) reservation: Reservation,
}

/// The complete messages of one stream that have not been taken. Clones are the same queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Framed(Arc<Mutex<VecDeque<Message>>>);

impl Framed {
    pub(super) fn take(&self) -> Option<Message> {
        lock(&self.0).pop_front()
    }
}

/// A message of which a part has arrived.
#[derive(Debug)]
struct Partial {
    length: usize,
    bytes: Vec<u8>,
    reservation: Reservation,
}

/// Takes the frames of one stream apart.
#[derive(Debug)]
struct Framing {
    unhandled: Unhandled,
    framed: Framed,
    header: [u8; HEADER],
    /// The bytes of the header that have arrived.
    arrived: usize,
    partial: Option<Partial>,
}

impl Framing {
    /// Reads up to the end of a message. Returns true if one is complete.
    fn read(&mut self, data: &mut Bytes) -> Result<bool, Status> {
        while data.has_remaining() || self.partial.as_ref().is_some_and(|partial| partial.length == 0) {
            let Some(partial) = &mut self.partial else {
                let part = data.split_to((HEADER - self.arrived).min(data.len()));
                self.header[self.arrived..self.arrived + part.len()].copy_from_slice(&part);
                self.arrived += part.len();
                if self.arrived == HEADER {
                    self.begin()?;
                }
                continue;
            };
            let missing = partial.length - partial.bytes.len();
            let part = data.split_to(missing.min(data.len()));
            if partial.bytes.capacity() < partial.bytes.len() + part.len() {
                // Twice what has arrived, and no more than will.
                let held = partial.bytes.len();
                let grown = (2 * held).max(held + part.len()).max(GROWTH).min(partial.length);
                partial.bytes.reserve_exact(grown - held);
            }
            partial.bytes.extend_from_slice(&part);
            if partial.bytes.len() == partial.length
                && let Some(Partial { bytes, reservation, .. }) = self.partial.take()
            {
                lock(&self.framed.0).push_back(Message { bytes: bytes.into(), reservation });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Begins the message that the header announces.
    fn begin(&mut self) -> Result<(), Status> {
        let mut header = self.header.as_slice();
        let (compressed, length) = (header.get_u8(), header.get_u32());
        self.arrived = 0;
        if compressed != 0 {
            return Err(Status::unimplemented("requests are not accepted compressed"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_REQUEST_BYTES {
            return Err(Status::out_of_range(format!(
                "the request has {length} bytes, more than the {MAX_REQUEST_BYTES} allowed"
            )));
        }
        let reservation = self.unhandled.reserve(length).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "the proxy's streams have requests of more than {MAX_UNHANDLED_BYTES} bytes unfinished"
            ))
        })?;
        self.partial = Some(Partial { length, bytes: Vec::new(), reservation });
        Ok(())
    }

    /// Whether a message has begun and not ended.
    fn is_within(&self) -> bool {
        self.partial.is_some() || self.arrived > 0
    }
}

/// A body of requests, as tonic gets it.
#[derive(Debug)]
pub(super) struct RequestBody<B> {
    inner: B,
    framing: Framing,
    rate_limit: RateLimit,
    overhead: Overhead,
    /// Data that follows the last complete message.
    rest: Bytes,
    /// When the message that has begun must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    /// The body of a stream of a proxy that has these bounds, and the messages in it.
    pub(super) fn new(
        inner: B,
        unhandled: Unhandled,
        rate_limit: RateLimit,
        overhead: Overhead,
    ) -> (Self, Framed) {
        let framed = Framed::default();
        let header = [0; HEADER];
        let framing = Framing { unhandled, framed: framed.clone(), header, arrived: 0, partial: None };
        (Self { inner, framing, rate_limit, overhead, rest: Bytes::new(), deadline: None }, framed)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            if this.framing.read(&mut this.rest)? {
                this.deadline = None;
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&EMPTY_MESSAGE)))));
            }
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        this.rate_limit.take_bytes(Instant::now(), data.len());
                        this.overhead.was_data(data.len());
                        this.rest = data;
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if this.framing.is_within() => {
                    let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(ARRIVAL_LIMIT)));
                    return match deadline.as_mut().poll(cx) {
                        Poll::Ready(()) => {
                            let late =
                                format!("the request has not arrived within {} s", ARRIVAL_LIMIT.as_secs());
                            Poll::Ready(Some(Err(Status::deadline_exceeded(late).into())))
                        }
                        Poll::Pending => Poll::Pending,
                    };
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests;
