//! A bound on what a peer may send before it has proved itself.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::Io;

/// A connection of which only so many bytes can be read, until the bound is lifted: what reads it, such as a
/// TLS handshake, then buffers no more for a stranger.
pub struct FirstBytes {
    io: Box<dyn Io>,
    /// Bytes that may still be read; `None` once the bound is lifted.
    left: Option<usize>,
    /// A read has found the bound.
    reached: bool,
}

impl FirstBytes {
    /// Bounds the reads of `io` to `bytes`. A read beyond them fails with [`io::ErrorKind::InvalidData`].
    ///
    /// The first of these is pending once. Rustls reads on after the end of a handshake when the peer's first
    /// data came with it and is incomplete, and sees that the handshake has ended when nothing more comes.
    pub fn new(io: Box<dyn Io>, bytes: usize) -> Self {
        Self { io, left: Some(bytes), reached: false }
    }

    /// Removes the bound.
    pub fn lift(&mut self) {
        self.left = None;
    }
}

impl AsyncRead for FirstBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(left) = self.left else { return Pin::new(&mut self.io).poll_read(cx, buffer) };
        if left == 0 && !self.reached {
            self.reached = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if left == 0 {
            let error = "the peer sent too much before it had proved itself";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        self.left = Some(left - read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FirstBytes {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn only_the_first_bytes_can_be_read_until_the_bound_is_lifted() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut bounded = FirstBytes::new(Box::new(far), 10);
        near.write_all(&[7; 30]).await.unwrap();
        let mut read = [0; 32];
        assert_eq!(bounded.read(&mut read[..6]).await.unwrap(), 6);
        assert_eq!(bounded.read(&mut read).await.unwrap(), 4);
        assert_eq!(bounded.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        bounded.lift();
        assert_eq!(bounded.read(&mut read).await.unwrap(), 20);
        assert_eq!(read[..20], [7; 20]);
    }

    /// A sidecar that comes back sends all that it holds behind the end of its handshake.
    #[tokio::test]
    async fn a_reader_at_the_bound_hears_first_that_nothing_more_comes() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut bounded = FirstBytes::new(Box::new(far), 10);
        near.write_all(&[7; 30]).await.unwrap();
        let mut read = [0; 32];
        assert_eq!(bounded.read(&mut read).await.unwrap(), 10);
        let polled = std::future::poll_fn(|cx| {
            Poll::Ready(Pin::new(&mut bounded).poll_read(cx, &mut ReadBuf::new(&mut [0; 8])).is_pending())
        });
        assert!(polled.await);
        bounded.lift();
        assert_eq!(bounded.read(&mut read).await.unwrap(), 20);
    }
}
