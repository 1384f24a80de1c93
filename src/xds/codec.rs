//! How xDS messages cross the wire: requests are decoded by prost, responses are written from resources
//! that were encoded once for everybody.
//!
//! Owns the bridge between tonic's codec and [`smc_mesh::session::Response`]. Refuses to encode a resource.

use std::marker::PhantomData;

use prost::Message;
use smc_mesh::session::Response;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The largest request taken. A resuming delta request names every resource the proxy holds, about 100 bytes
/// each; xDS servers are expected to take 32 MiB (DESIGN §3). Only an admitted proxy's stream gets to
/// send a second one.
pub(super) const MAX_REQUEST_BYTES: usize = 32 << 20;

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
    type Decode = R;
    type Encoder = ResponseEncoder;
    type Decoder = RequestDecoder<R>;

    fn encoder(&mut self) -> ResponseEncoder {
        ResponseEncoder
    }

    fn decoder(&mut self) -> RequestDecoder<R> {
        RequestDecoder(PhantomData)
    }
}

/// Writes a response from its resources' shared bytes.
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
    type Item = R;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<R>, Status> {
        R::decode(bytes).map(Some).map_err(|error| Status::invalid_argument(format!("request: {error}")))
    }
}
