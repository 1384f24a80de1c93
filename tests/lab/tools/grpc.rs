//! Owns gRPC's message framing: one byte for the compression flag, four for the length.

use bytes::{BufMut, Bytes, BytesMut};

/// Frames one uncompressed message.
pub(super) fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    // Messages here have some hundreds of bytes.
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// The first message of a body; `None` if it is incomplete or compressed.
pub(super) fn first_message(body: &[u8]) -> Option<&[u8]> {
    let (&compressed, rest) = body.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    if compressed == 0 { rest.get(..length) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_framed_is_found_and_what_is_cut_off_is_not() {
        let framed = frame(b"hello");
        assert_eq!(first_message(&framed), Some(&b"hello"[..]));
        assert_eq!(first_message(&framed[..framed.len() - 1]), None);
        assert_eq!(first_message(b""), None);
    }
}
