//! Traces of requests.
//!
//! Owns where sidecars report what they did with a request, and of how many requests.

use crate::outside_server::OutsideServer;

/// The spans that sidecars report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tracing {
    /// The server that takes them, in Zipkin's JSON (`/api/v2/spans` of its API).
    pub collector: OutsideServer,
    /// The path at which it takes them.
    pub path: String,
    /// Of how many of the requests that bring no decision with them, in hundredths of a percent: 10,000 is
    /// all.
    pub sampling: u16,
}

impl Tracing {
    /// All requests, as `sampling`.
    pub const ALL: u16 = 10_000;

    /// The length of the address and the path, in bytes.
    pub fn address_bytes(&self) -> usize {
        self.collector.to_string().len() + self.path.len()
    }
}
