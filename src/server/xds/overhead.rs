//! What a proxy sends beside its requests: frames of HTTP/2 other than DATA, and their headers.
//!
//! Owns counting them, and reading a connection more slowly whose proxy sends too many. Nothing is parsed for
//! it: all bytes of a connection count until a stream has those of its DATA, which [`super::rate_limit`]
//! charges.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smc_host::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A proxy sends a few hundred bytes of headers for a stream, 9 for each request, and some 13 for each window
/// of what it received: less than a thousandth of this.
const BYTES_PER_SECOND: u32 = 64 << 10;

/// What may come at once: twice the DATA that streams may not have read yet, of which the windows of a
/// proxy's 8 connections let in 256 KiB each. So requests alone never delay a connection.
const BURST: usize = 4 << 20;

/// The bytes of one proxy, on all its connections. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub(super) struct Overhead(Arc<Mutex<Instant>>);

impl Overhead {
    /// None so far.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// Counts bytes that were read from a connection.
    fn read(&self, now: Instant, bytes: usize) {
        let mut spent_until = lock(&self.0);
        *spent_until = (*spent_until).max(now) + cost(bytes);
    }

    /// No longer counts bytes that are DATA which a stream has read.
    pub(super) fn was_data(&self, bytes: usize) {
        let mut spent_until = lock(&self.0);
        *spent_until = spent_until.checked_sub(cost(bytes)).unwrap_or(*spent_until);
    }

    /// When a connection may be read again: `now` or earlier unless too much came.
    fn ready_at(&self, now: Instant) -> Instant {
        lock(&self.0).checked_sub(cost(BURST)).unwrap_or(now)
    }

    /// Whether a new one is the same.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        *lock(&self.0) <= now
    }
}

/// The time that pays for so many bytes.
fn cost(bytes: usize) -> Duration {
    Duration::from_secs(u64::try_from(bytes).unwrap_or(u64::MAX)) / BYTES_PER_SECOND
}

/// A connection of which all that is read counts, and which is read when its proxy may go on.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    overhead: Overhead,
    delay: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S, overhead: Overhead) -> Self {
        Self { inner, overhead, delay: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let now = Instant::now();
            let ready_at = this.overhead.ready_at(now);
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
        this.overhead.read(Instant::now(), buffer.filled().len() - before);
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
        let (mut connection, mut read) = (Metered::new(repeat(7), overhead.clone()), 0);
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
    async fn what_a_stream_has_read_does_not_delay_its_connection() {
        let overhead = Overhead::new(Instant::now());
        let read = read(&overhead, Duration::from_secs(1), 64).await;
        assert!(read > 64 << 20, "{read}");
    }
}
