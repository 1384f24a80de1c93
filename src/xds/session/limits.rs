//! Bounds on what a client may request, and the error that ends its stream beyond them.
//!
//! Owns the bounds on requests and names. The gRPC server enforces the bound on the size of a request,
//! before it reads one.

use thiserror::Error;

use super::Variant;
use crate::resource::ResourceType;

/// How many names per type a client may hold or subscribe to. Five times the largest mesh we have numbers for
/// (10,000 services); a proxy that subscribes to more is broken or hostile.
pub const MAX_NAMES: usize = 50_000;

/// How many bytes the names held or subscribed to may take, of all types and on all streams of a proxy,
/// each with its [`NAME_OVERHEAD`]. In a mesh of 10,000 services with names of 100 bytes they take 6.3
/// MiB: each service has a cluster, endpoints, routes and a secret.
pub const MAX_HELD_BYTES: usize = 16 << 20;

/// The bytes that a name takes besides its own: its allocation, and its entries in B-trees with the
/// version held.
pub const NAME_OVERHEAD: usize = 64;

/// The largest request accepted on a stream, in encoded bytes: a resume with 29,000 names of 100 bytes,
/// almost three times the largest mesh we have numbers for. Such a request names every resource of one
/// type that the proxy holds, with its version, and once more to subscribe to it.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;

/// How many bytes of requests that are not yet handled, complete or not, a replica holds for one proxy, on
/// all its streams together: two of the largest requests. A proxy with separate streams that resumes in a
/// mesh of 10,000 services sends 14 MB at once.
pub const MAX_UNHANDLED_BYTES: usize = 2 * MAX_REQUEST_BYTES;

/// The longest resource name, in bytes. The longest that translation makes joins two namespaced names
/// (64 + 253 bytes at most each, in practice far less) and a port.
pub const MAX_NAME_BYTES: usize = 1024;

/// A request that violates the protocol or its bounds. The stream ends; a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The request is of the other variant.
    #[error("request of the wrong variant on a {expected:?} stream")]
    WrongVariant {
        /// The variant of the stream.
        expected: Variant,
    },
    /// The request is for another type than the only one of the stream.
    #[error("request for type {url:?} on a stream for {} only", expected.url())]
    WrongType {
        /// The requested type URL, cut to 256 bytes.
        url: String,
        /// The type of the stream.
        expected: ResourceType,
    },
    /// More names than [`MAX_NAMES`].
    #[error("{} names {count} resources, more than the {MAX_NAMES} allowed", kind.short())]
    TooManyNames {
        /// The type.
        kind: ResourceType,
        /// The number of names.
        count: usize,
    },
    /// More bytes of names than [`MAX_HELD_BYTES`].
    #[error("the requested names take {bytes} bytes, more than the {MAX_HELD_BYTES} allowed")]
    TooManyBytes {
        /// The bytes of all names, or those of the first list in a request that exceeds the bound.
        bytes: usize,
    },
    /// A name longer than [`MAX_NAME_BYTES`].
    #[error("{} names a resource of {length} bytes, more than the {MAX_NAME_BYTES} allowed", kind.short())]
    NameTooLong {
        /// The type.
        kind: ResourceType,
        /// The length of the name in bytes.
        length: usize,
    },
}

/// What one list of names adds up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Total {
    /// The number of names, each as often as it is in the list.
    pub(super) count: usize,
    /// The memory that they would take.
    pub(super) bytes: usize,
    /// The length of the longest.
    pub(super) longest: usize,
    /// The wildcard `*` is among them.
    pub(super) wildcard: bool,
}

/// The memory that a name takes, in bytes.
pub(super) fn weight(name: &str) -> usize {
    name.len() + NAME_OVERHEAD
}

/// Checks one list of names in a request, before any of them is stored.
pub(super) fn check_names(kind: ResourceType, total: Total) -> Result<(), ProtocolError> {
    check_count(kind, total.count)?;
    if total.longest > MAX_NAME_BYTES {
        return Err(ProtocolError::NameTooLong { kind, length: total.longest });
    }
    check_bytes(total.bytes)
}

/// Checks the number of names of one type.
pub(super) fn check_count(kind: ResourceType, count: usize) -> Result<(), ProtocolError> {
    if count > MAX_NAMES { Err(ProtocolError::TooManyNames { kind, count }) } else { Ok(()) }
}

/// Checks the memory that all names take.
pub(super) fn check_bytes(bytes: usize) -> Result<(), ProtocolError> {
    if bytes > MAX_HELD_BYTES { Err(ProtocolError::TooManyBytes { bytes }) } else { Ok(()) }
}

/// The longest prefix of `text` with at most `limit` bytes.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
