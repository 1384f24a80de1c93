//! The gRPC codec of xDS: requests come from [`RequestBody`](super::request_body), which has framed them;
//! responses are written from resources that are encoded once for all proxies.
//!
//! Owns the bridge between tonic's codec and the messages of [`smc_mesh::session`].

use bytes::Buf;
use smc_mesh::session::{Request, Response, Variant};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::request_body::{Framed, Message, Reservation};

/// A request, and its place in the proxy's allowance of unhandled bytes until it is handled.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) request: Request,
    pub(super) reservation: Reservation,
}

/// Decodes requests of one stream, encodes [`Response`].
#[derive(Debug)]
pub(super) struct XdsCodec {
    pub(super) variant: Variant,
    /// The messages that the stream's body has framed.
    pub(super) framed: Framed,
}

impl Codec for XdsCodec {
    type Encode = Response;
    type Decode = Received;
    type Encoder = ResponseEncoder;
    type Decoder = RequestDecoder;

    fn encoder(&mut self) -> ResponseEncoder {
        ResponseEncoder
    }

    fn decoder(&mut self) -> RequestDecoder {
        RequestDecoder { variant: self.variant, framed: self.framed.clone() }
    }
}

/// Writes a response from the shared bytes of its resources.
#[derive(Debug)]
pub(super) struct ResponseEncoder;

impl Encoder for ResponseEncoder {
    type Item = Response;
    type Error = Status;

    fn encode(&mut self, response: Response, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(response.encoded_len());
        response.encode(out);
        Ok(())
    }
}

/// Reads a request.
#[derive(Debug)]
pub(super) struct RequestDecoder {
    variant: Variant,
    framed: Framed,
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
}
