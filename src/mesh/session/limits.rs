//! What a client may ask for, and the error that ends its stream when it asks for more.
//!
//! Owns the bounds on names. The size of a request as bytes is bounded by the gRPC server.

use thiserror::Error;

use super::Variant;
use crate::resource::ResourceType;

/// How many names a client may hold or ask for per type. Five times the largest mesh we have numbers for
/// (10,000 services); a proxy that asks for more is broken or hostile, and at 55 bytes each it is what
/// keeps one stream under 15 MiB.
pub const MAX_NAMES: usize = 50_000;

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
    /// A name longer than [`MAX_NAME_BYTES`].
    #[error("{} names a resource of {length} bytes, more than the {MAX_NAME_BYTES} allowed", kind.short())]
    NameTooLong {
        /// The type.
        kind: ResourceType,
        /// Its length in bytes.
        length: usize,
    },
}

/// Checks the names of one request.
pub(super) fn check_names<'a>(
    kind: ResourceType,
    names: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), ProtocolError> {
    check_count(kind, names.len())?;
    for name in names {
        if name.len() > MAX_NAME_BYTES {
            return Err(ProtocolError::NameTooLong { kind, length: name.len() });
        }
    }
    Ok(())
}

/// Checks how many names there are for one type.
pub(super) fn check_count(kind: ResourceType, count: usize) -> Result<(), ProtocolError> {
    if count > MAX_NAMES { Err(ProtocolError::TooManyNames { kind, count }) } else { Ok(()) }
}

/// The longest prefix of `text` that has at most `limit` bytes.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
