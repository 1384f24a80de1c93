//! A client's answer to a response: ACK or NACK.

use std::sync::Arc;

/// A client's answer to a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The client applied the response (ACK).
    Acked {
        /// The nonce of the response.
        nonce: u64,
        /// The number of resources in the response.
        resources: usize,
        /// The number of removals in the response.
        removed: usize,
    },
    /// The client rejected the response (NACK) and keeps what it held.
    Rejected {
        /// The nonce of the response.
        nonce: u64,
        /// The resources that may be at fault: in Delta all of the response, in State of the World
        /// those that it changed.
        names: Vec<Arc<str>>,
        /// The client's error message, cut to 1 KiB.
        message: Arc<str>,
        /// True if `names` stay rejected until their content changes. False if they are sent again in
        /// halves, to find the resource at fault and to deliver the others.
        conclusive: bool,
    },
}
