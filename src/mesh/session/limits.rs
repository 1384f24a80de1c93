//! What a client may ask for, and the error that ends its stream when it asks for more.
//!
//! Owns the bounds on requests and names. The gRPC server keeps the one on requests, which it has to before it reads
//! one.

use thiserror::Error;

use super::{Scope, Variant};
use crate::resource::ResourceType;

/// How many names a client may hold or ask for per type. Five times the largest mesh we have numbers for
/// (10,000 services); a proxy that asks for more is broken or hostile.
pub const MAX_NAMES: usize = 50_000;

/// How many bytes the names may take that a client holds or asks for, of all types and on all streams of a proxy, each
/// with its [`NAME_OVERHEAD`]. In a mesh of 10,000 services with names of 100 bytes they take 6.3 MiB: each service has a
/// cluster, endpoints, routes and a secret.
pub const MAX_HELD_BYTES: usize = 16 << 20;

/// What a name takes beside its own bytes: its allocation, and its places in B-trees with the version held.
pub const NAME_OVERHEAD: usize = 64;

/// The largest request taken on the aggregated stream. A resuming delta request names every resource of a type that the
/// proxy holds, and for some types once more to ask for it, 100 to 250 bytes each; xDS servers are expected to take
/// 32 MiB (DESIGN §3).
const MAX_REQUEST_BYTES: usize = 32 << 20;

/// The largest request taken on a stream for one type: a resume with 30,000 names of 100 bytes. A proxy may have many of
/// those streams, and what is half sent on each of them waits in memory.
const MAX_SEPARATE_REQUEST_BYTES: usize = 8 << 20;

/// The largest request taken on a stream, in encoded bytes.
pub const fn max_request_bytes(scope: Scope) -> usize {
    match scope {
        Scope::Aggregated => MAX_REQUEST_BYTES,
        Scope::Only(_) => MAX_SEPARATE_REQUEST_BYTES,
    }
}

/// How long a resource name may be, in bytes. The longest that translation makes joins two namespaced
/// names (64 + 253 bytes at most each, in practice far less) and a port.
pub const MAX_NAME_BYTES: usize = 1024;

/// A request that breaks the protocol or its bounds. The stream ends; trying again does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The request is of the other variant than the stream.
    #[error("request of the wrong variant on a {expected:?} stream")]
    WrongVariant {
        /// What the stream speaks.
        expected: Variant,
    },
    /// The request is for another type than the stream's only one.
    #[error("request for type {url:?} on a stream for {} only", expected.url())]
    WrongType {
        /// What was asked for, cut to 256 bytes.
        url: String,
        /// What the stream carries.
        expected: ResourceType,
    },
    /// More names than [`MAX_NAMES`].
    #[error("{} names {count} resources, more than the {MAX_NAMES} allowed", kind.short())]
    TooManyNames {
        /// The type.
        kind: ResourceType,
        /// How many there are.
        count: usize,
    },
    /// More bytes of names than [`MAX_HELD_BYTES`].
    #[error("the names asked for take {bytes} bytes, more than the {MAX_HELD_BYTES} allowed")]
    TooManyBytes {
        /// How many there are, or those of the first request that has too many.
        bytes: usize,
    },
    /// A name longer than [`MAX_NAME_BYTES`].
    #[error("{} names a resource of {length} bytes, more than the {MAX_NAME_BYTES} allowed", kind.short())]
    NameTooLong {
        /// The type.
        kind: ResourceType,
        /// Its length in bytes.
        length: usize,
    },
}

/// What a name takes.
pub(super) fn weight(name: &str) -> usize {
    name.len() + NAME_OVERHEAD
}

/// Checks one list of names in a request, before any of it is taken.
pub(super) fn check_names<'a>(
    kind: ResourceType,
    names: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), ProtocolError> {
    check_count(kind, names.len())?;
    let mut bytes = 0;
    for name in names {
        if name.len() > MAX_NAME_BYTES {
            return Err(ProtocolError::NameTooLong { kind, length: name.len() });
        }
        bytes += weight(name);
    }
    check_bytes(bytes)
}

/// Checks how many names there are for one type.
pub(super) fn check_count(kind: ResourceType, count: usize) -> Result<(), ProtocolError> {
    if count > MAX_NAMES { Err(ProtocolError::TooManyNames { kind, count }) } else { Ok(()) }
}

/// Checks what all names take.
pub(super) fn check_bytes(bytes: usize) -> Result<(), ProtocolError> {
    if bytes > MAX_HELD_BYTES { Err(ProtocolError::TooManyBytes { bytes }) } else { Ok(()) }
}

/// The longest prefix of `text` that has at most `limit` bytes.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
