//! A version that the client refused, and what it said.

use std::sync::Arc;

use envoy_types::pb::google::rpc::Status;

use super::limits::cut;
use crate::resource::Version;

/// How much of a client's error message is kept, in bytes. Envoy cuts its own at 4 KiB; the first line
/// says what is wrong.
const MAX_MESSAGE_BYTES: usize = 1024;

/// How many refusals of one type are kept with all that was said. Whoever refuses more says much the same of all.
const MAX_LONG: usize = 64;

/// How much is kept of what was said of each of the others, in bytes.
const MAX_SHORT_BYTES: usize = 64;

/// A refused version. Kept until the content changes, so that it is not sent in a loop.
#[derive(Debug, Clone)]
pub(super) struct Rejection {
    pub(super) version: Version,
    pub(super) message: Arc<str>,
}

/// What the client said, cut to its bound.
pub(super) fn message(error: &Status) -> Arc<str> {
    cut(&error.message, MAX_MESSAGE_BYTES).into()
}

/// What is kept of a message, beside so many others.
pub(super) fn kept(message: &Arc<str>, others: usize) -> Arc<str> {
    if others < MAX_LONG { Arc::clone(message) } else { cut(message, MAX_SHORT_BYTES).into() }
}
