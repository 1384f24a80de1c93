//! The encoded bytes of a resource, compressed while no stream sends them.
//!
//! Owns the form of the bytes in memory. A mesh has a listener for each identity, and most of a listener
//! is the same text for each of its ports: compressed, it takes a seventh. A stream that sends a
//! resource unpacks it, and streams that send it at the same time share the unpacked bytes.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use lz4_flex::block;

/// The shortest content that is compressed, in bytes. Shorter content repeats little, and saves less than an
/// allocation takes.
const SHORTEST: usize = 512;

/// Encoded bytes. A clone shares them.
#[derive(Clone)]
pub(super) enum Content {
    /// As they are sent.
    Plain(Bytes),
    /// Compressed.
    Packed(Arc<Packed>),
}

/// Compressed bytes.
pub(super) struct Packed {
    /// An LZ4 block.
    compressed: Box<[u8]>,
    /// The length of the unpacked bytes.
    length: usize,
    /// The unpacked bytes, while a stream has them.
    open: Mutex<Weak<Vec<u8>>>,
}

/// Unpacked bytes that streams share.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Content {
    /// The bytes as they are sent.
    pub(super) fn bytes(&self) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes.clone(),
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Packed(packed) => packed.length,
        }
    }

    /// The same bytes, compressed if that saves at least a third.
    pub(super) fn packed(self) -> Self {
        let Self::Plain(bytes) = &self else { return self };
        if bytes.len() < SHORTEST {
            return self;
        }
        let compressed = block::compress(bytes);
        if compressed.len() > bytes.len() / 3 * 2 {
            return self;
        }
        // A boxed slice keeps no room to grow.
        let (compressed, length) = (compressed.into_boxed_slice(), bytes.len());
        Self::Packed(Arc::new(Packed { compressed, length, open: Mutex::default() }))
    }
}

impl Packed {
    fn bytes(&self) -> Bytes {
        // A panic cannot leave the reference half written.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = open.upgrade().unwrap_or_else(|| {
            // Cannot fail: these are the bytes that `compress` made, and their length. Empty bytes would be
            // no resource, which Envoy rejects.
            let unpacked = block::decompress(&self.compressed, self.length).unwrap_or_default();
            debug_assert_eq!(unpacked.len(), self.length, "the block is what `compress` made");
            let shared = Arc::new(unpacked);
            *open = Arc::downgrade(&shared);
            shared
        });
        Bytes::from_owner(Shared(shared))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => one == other,
            // Equal bytes compress to equal bytes.
            (Self::Packed(one), Self::Packed(other)) => one.compressed == other.compressed,
            _ => self.len() == other.len() && self.bytes() == other.bytes(),
        }
    }
}

impl Eq for Content {}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> Content {
        Content::Plain(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn packed_bytes_are_the_same_and_take_less() {
        let chain =
            b"envoy.filters.network.http_connection_manager, access log, tracing, and so on; ".repeat(100);
        let packed = plain(&chain).packed();
        let Content::Packed(inner) = &packed else { panic!("it is packed") };
        assert!(inner.compressed.len() < chain.len() / 10, "{}", inner.compressed.len());
        assert_eq!((packed.len(), &*packed.bytes()), (chain.len(), &*chain));
        assert!(packed == plain(&chain) && packed == plain(&chain).packed());
        assert!(packed != plain(&chain[1..]));
    }

    #[test]
    fn what_saves_nothing_stays_as_it_is() {
        let distinct: Vec<u8> =
            (0..4096_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        for bytes in [&b""[..], b"short", &b"x".repeat(SHORTEST - 1), &distinct] {
            assert!(matches!(plain(bytes).packed(), Content::Plain(_)), "{}", bytes.len());
        }
    }

    #[test]
    fn streams_that_send_at_the_same_time_share_the_unpacked_bytes() {
        let packed = plain(&b"listener".repeat(1000)).packed();
        let (one, other) = (packed.bytes(), packed.bytes());
        assert_eq!(one.as_ptr(), other.as_ptr());
        let Content::Packed(inner) = &packed else { panic!("it is packed") };
        assert_eq!(inner.open.lock().unwrap().strong_count(), 2);
        drop((one, other));
        assert_eq!(inner.open.lock().unwrap().strong_count(), 0, "and are gone with the last of them");
    }
}
