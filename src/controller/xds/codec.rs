//! The gRPC codec of xDS: prost decodes requests; responses are written from resources that are encoded
//! once for all proxies.
//!
//! Owns the bridge between tonic's codec and [`smc_mesh::session::Response`].

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use smc_mesh::session::Response;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A request and its length on the wire, which includes what decoding drops, such as unknown fields.
#[derive(Debug)]
pub(super) struct Received<R> {
    pub(super) request: R,
    pub(super) bytes: usize,
}

/// Decodes requests of type `R`, encodes [`Response`].
#[derive(Debug)]
pub(super) struct XdsCodec<R>(PhantomData<R>);

impl<R> Default for XdsCodec<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Message + Default + 'static> Codec for XdsCodec<R> {
    type Encode = Response;
    type Decode = Received<R>;
    type Encoder = ResponseEncoder;
    type Decoder = RequestDecoder<R>;

    fn encoder(&mut self) -> ResponseEncoder {
        ResponseEncoder
    }

    fn decoder(&mut self) -> RequestDecoder<R> {
        RequestDecoder(PhantomData)
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
pub(super) struct RequestDecoder<R>(PhantomData<R>);

impl<R: Message + Default> Decoder for RequestDecoder<R> {
    type Item = Received<R>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Received<R>>, Status> {
        let bytes = buffer.remaining();
        let request = R::decode(buffer)
            .map_err(|error| Status::invalid_argument(format!("this is not an xDS request: {error}")))?;
        Ok(Some(Received { request, bytes }))
    }
}
