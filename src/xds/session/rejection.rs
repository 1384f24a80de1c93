//! A rejected version and the client's error message.

use std::sync::Arc;

use super::limits::cut;
use super::status::RejectedStatus;
use crate::resource::Version;

/// How much of a client's error message is kept, in bytes. Envoy cuts its own at 4 KiB; the first line
/// says what is wrong.
const MAX_MESSAGE_BYTES: usize = 1024;

/// How many rejections of one type are kept with the whole message. A client that rejects more repeats
/// itself.
const MAX_WHOLE_MESSAGES: usize = 64;

/// How much of the message is kept for each further rejection, in bytes.
const MAX_SHORT_MESSAGE_BYTES: usize = 64;

/// A rejected version. It is kept until the content changes, so that it is not sent in a loop.
#[derive(Debug, Clone)]
pub(super) struct Rejection {
    pub(super) version: Version,
    pub(super) message: Arc<str>,
}

impl Rejection {
    /// A rejection beside `others` of the same type; these bound how much of the message is kept.
    pub(super) fn new(version: Version, message: &Arc<str>, others: usize) -> Self {
        let whole = others < MAX_WHOLE_MESSAGES;
        let message = if whole { Arc::clone(message) } else { cut(message, MAX_SHORT_MESSAGE_BYTES).into() };
        Self { version, message }
    }

    pub(super) fn status(&self) -> RejectedStatus {
        RejectedStatus { version: self.version.to_string(), message: self.message.to_string() }
    }
}

/// The error message of a NACK, cut to its bound.
pub(super) fn message(error: &str) -> Arc<str> {
    cut(error, MAX_MESSAGE_BYTES).into()
}
