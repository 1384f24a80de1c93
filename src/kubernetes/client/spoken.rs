//! What is spoken over a connection without TLS, where nothing negotiates it.
//!
//! Owns saying so to the pool of connections.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// What is spoken over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One request at a time on each connection.
    Http1,
    /// All requests on one connection, by prior knowledge (RFC 9113, section 3.3).
    Http2,
}

/// A stream over which a protocol is spoken.
pub(super) struct Spoken<S> {
    stream: S,
    protocol: Protocol,
}

impl<S> Spoken<S> {
    pub(super) fn new(stream: S, protocol: Protocol) -> Self {
        Self { stream, protocol }
    }
}

impl<S> Connection for Spoken<S> {
    fn connected(&self) -> Connected {
        match self.protocol {
            Protocol::Http1 => Connected::new(),
            Protocol::Http2 => Connected::new().negotiated_h2(),
        }
    }
}

impl<S: Read + Unpin> Read for Spoken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Write + Unpin> Write for Spoken<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
