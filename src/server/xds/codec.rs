//! The gRPC framing of xDS: requests come from [`RequestBody`](super::request_body), which has framed them;
//! responses are sent from resources that are encoded once for all proxies.
//!
//! Owns the bridge between HTTP/2 and the messages of [`smc_xds::session`]. tonic's own encoder would copy
//! every resource for every stream, and keep the memory of a stream's largest response for as long as the
//! stream is open.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use hyper::body::{Body, Frame};
use smc_xds::session::{Request, Response, Variant};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};

use super::request_body::{Framed, Message, Reservation};

/// The bytes of a frame's header: whether it is compressed, and its length.
const HEADER: usize = 5;

/// The buffer of tonic's decoder, in bytes: it sees empty messages only.
const DECODER_BUFFER: usize = 64;

/// A response to send, boxed since a queue has room for many more than it holds; or the status that ends the
/// stream.
pub(super) type Outbound = Result<Box<Response>, Status>;

/// A request, and its place in the proxy's allowance of unhandled bytes until it is handled.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) request: Request,
    pub(super) reservation: Reservation,
}

/// The responses of one stream. Ends with OK when their sender is dropped.
#[derive(Debug)]
pub(super) struct ResponseBody {
    responses: mpsc::Receiver<Outbound>,
    /// The rest of the response that is being sent.
    parts: std::vec::IntoIter<Bytes>,
    ended: bool,
}

impl ResponseBody {
    pub(super) fn new(responses: mpsc::Receiver<Outbound>) -> Self {
        Self { responses, parts: Vec::new().into_iter(), ended: false }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(part) = self.parts.next() {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            self.parts = Vec::new().into_iter();
            let status = match ready!(self.responses.poll_recv(cx)) {
                Some(Ok(response)) => {
                    self.parts = framed(&response)?.into_iter();
                    continue;
                }
                Some(Err(status)) => status,
                None => Status::ok(""),
            };
            self.ended = true;
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
    }
}

/// The frame of a response.
fn framed(response: &Response) -> Result<Vec<Bytes>, Status> {
    let length = u32::try_from(response.encoded_len())
        .map_err(|_| Status::internal("the response is longer than gRPC allows"))?;
    let mut header = [0; HEADER];
    header[1..].copy_from_slice(&length.to_be_bytes());
    Ok(response.parts(&header))
}

/// Reads a request.
#[derive(Debug)]
pub(super) struct RequestDecoder {
    pub(super) variant: Variant,
    /// The messages that the stream's body has framed.
    pub(super) framed: Framed,
}

impl Decoder for RequestDecoder {
    type Item = Received;
    type Error = Status;

    fn decode(&mut self, placeholder: &mut DecodeBuf<'_>) -> Result<Option<Received>, Status> {
        placeholder.advance(placeholder.remaining());
        let message = self.framed.take().ok_or_else(|| Status::internal("a frame without a message"))?;
        let Message { bytes, reservation } = message;
        let request = Request::decode(self.variant, bytes)
            .map_err(|error| Status::invalid_argument(format!("this is not an xDS request: {error}")))?;
        Ok(Some(Received { request, reservation }))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(DECODER_BUFFER, DECODER_BUFFER)
    }
}
