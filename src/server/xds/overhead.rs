//! What a proxy sends beside its requests: frames of HTTP/2 other than DATA, and their headers.
//!
//! Owns counting them, and reading a connection more slowly whose proxy sends too many. Nothing is parsed for
//! it: all bytes of a connection, those of TLS included, count until a stream has those of its DATA, which
//! [`super::rate_limit`] charges. So a frame, a record or a message of any type costs what it weighs.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smc_host::gcra::Gcra;
use smc_host::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A proxy sends a few hundred bytes of headers for a stream, 9 for each request, some 13 for each window of
/// what it received, and 22 of TLS around each of these: less than a hundredth of this.
const BYTES_PER_SECOND: u32 = 64 << 10;

/// What may come at once: twice the DATA that streams may not have read yet, of which the windows of a
/// proxy's 8 connections let in 256 KiB each. So requests alone never delay a connection.
const BURST: usize = 4 << 20;

/// What a peer may send at once whose certificate is refused: the head of one request, which is answered with
/// the reason.
const REFUSED_BURST: usize = 64 << 10;

/// The bytes of one proxy, on all its connections. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub(super) struct Overhead(Arc<Mutex<Gcra>>);

impl Overhead {
    /// None so far.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Gcra::new(now))))
    }

    /// For a connection whose peer is no proxy, however many such the peer makes.
    pub(super) fn of_refused(now: Instant) -> Self {
        let overhead = Self::new(now);
        overhead.read(now, BURST - REFUSED_BURST);
        overhead
    }

    /// Counts bytes that were read from a connection.
    fn read(&self, now: Instant, bytes: usize) {
        lock(&self.0).spend(now, cost(bytes));
    }

    /// No longer counts bytes that are DATA which a stream has read.
    pub(super) fn was_data(&self, bytes: usize) {
        lock(&self.0).refund(cost(bytes));
    }

    /// When a connection may be read again: `now` or earlier unless too much came.
    fn ready_at(&self, now: Instant) -> Instant {
        lock(&self.0).ready_at(now, cost(BURST))
    }

    /// Whether a new one is the same.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        lock(&self.0).is_full(now)
    }
}

/// The time that pays for so many bytes.
fn cost(bytes: usize) -> Duration {
    Duration::from_secs(u64::try_from(bytes).unwrap_or(u64::MAX)) / BYTES_PER_SECOND
}

/// A socket of which all that is read counts from when its proxy is known, and which is read when that proxy
/// may go on.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    overhead: Option<Overhead>,
    delay: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    /// A socket whose bytes do not count yet.
    pub(super) fn new(inner: S) -> Self {
        Self { inner, overhead: None, delay: None }
    }

    /// Charges what is read from now on.
    pub(super) fn charge(&mut self, overhead: Overhead) {
        self.overhead = Some(overhead);
    }

    /// The socket itself.
    pub(super) fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(overhead) = &this.overhead else { return Pin::new(&mut this.inner).poll_read(cx, buffer) };
        loop {
            let now = Instant::now();
            let ready_at = overhead.ready_at(now);
            if ready_at <= now {
                break;
            }
            let delay = this.delay.get_or_insert_with(|| Box::pin(sleep_until(ready_at)));
            ready!(delay.as_mut().poll(cx));
            this.delay = None;
        }
        this.delay = None;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        overhead.read(Instant::now(), buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::io::repeat;

    use super::*;

    /// How many bytes a connection is read of in `time`, of which a stream has `data` parts in 64.
    async fn read(overhead: &Overhead, time: Duration, data: usize) -> usize {
        let (mut connection, mut read) = (Metered::new(repeat(7)), 0);
        connection.charge(overhead.clone());
        let mut buffer = vec![0; 64 << 8];
        let end = Instant::now() + time;
        while let Ok(bytes) = tokio::time::timeout_at(end, connection.read(&mut buffer)).await {
            let bytes = bytes.unwrap();
            overhead.was_data(bytes / 64 * data);
            read += bytes;
            if read > 64 << 20 {
                break;
            }
        }
        read
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_request_is_read_at_its_rate_on_all_connections_together() {
        let overhead = Overhead::new(Instant::now());
        assert!(overhead.is_idle(Instant::now()));
        let most = |seconds: usize| BURST + (seconds << 16) + (64 << 8);
        let first = read(&overhead, Duration::from_secs(10), 0).await;
        assert!((most(9)..=most(10)).contains(&first), "{first}");
        let second = read(&overhead, Duration::from_secs(10), 0).await;
        assert!(second <= (10 << 16) + (64 << 8), "{second}: a new connection brings no new allowance");
        assert!(!overhead.is_idle(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_peer_may_send_the_head_of_a_request_and_little_more() {
        let overhead = Overhead::of_refused(Instant::now());
        let read = read(&overhead, Duration::from_secs(3), 0).await;
        assert!((64 << 10..=(64 << 10) + (3 << 16) + (64 << 8)).contains(&read), "{read}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_stream_has_read_does_not_delay_its_connection() {
        let overhead = Overhead::new(Instant::now());
        let read = read(&overhead, Duration::from_secs(1), 64).await;
        assert!(read > 64 << 20, "{read}");
    }
}
