//! How much each sidecar of a service lets in over time.
//!
//! Owns the limits of requests and of connections, and the bound on what the limits of one service take when
//! they are written out. Each limit is a token bucket: it is full at first, one request or connection takes
//! one token, and tokens come back at the rate.

use std::time::Duration;

use crate::regex::Pattern;

/// The most that the limits of one object take, in bytes ([`LocalRateLimits::bytes`]): a hundred paths of 200
/// characters. They are repeated on each port of the service, and for each way in.
pub const MAX_BYTES: usize = 128 << 10;

/// What a limit takes beside its path, with the longest names; what a filter for another answer takes, and a
/// header of it. Each is above what the translation writes; a test compares.
const LIMIT_BYTES: usize = 512;
const CONNECTIONS_BYTES: usize = 1024;
const ANSWER_BYTES: usize = 768;
const HEADER_BYTES: usize = 64;

/// The status of an answer above a limit that names none.
pub const TOO_MANY_REQUESTS: u16 = 429;

/// The limits of one service, each for one of its ports in one sidecar.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LocalRateLimits {
    /// Of connections, over whatever protocol.
    pub connections: Option<Rate>,
    /// Of the requests that no route matches.
    pub requests: Option<RequestLimit>,
    /// Of the requests to some paths. The first that matches takes a request, and the limit above does not
    /// count it.
    pub routes: Vec<RouteLimit>,
}

impl LocalRateLimits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.connections.is_none() && !self.counts_requests()
    }

    /// Whether requests are limited.
    pub fn counts_requests(&self) -> bool {
        self.requests.is_some() || !self.routes.is_empty()
    }

    /// What the limits take when they are written out once for a port, which carries HTTP or does not, from
    /// above.
    pub fn bytes(&self, http: bool) -> usize {
        let connections = self.connections.map_or(0, |_| CONNECTIONS_BYTES);
        if !http || !self.counts_requests() {
            return connections;
        }
        let requests = self.requests.as_ref().map_or(0, RequestLimit::bytes);
        let routes = self.routes.iter().map(RouteLimit::bytes).fold(requests, usize::saturating_add);
        ANSWER_BYTES + connections + routes
    }
}

/// A limit of the requests to a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteLimit {
    /// The paths.
    pub path: Pattern,
    /// The limit.
    pub limit: RequestLimit,
}

impl RouteLimit {
    /// What it takes when it is written out once, from above.
    pub fn bytes(&self) -> usize {
        self.path.as_str().len() + self.limit.bytes()
    }
}

/// A limit of requests, and the answer to one above it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLimit {
    /// The limit.
    pub rate: Rate,
    /// The status of the answer: one of which [`is_status`] says so.
    pub status: u16,
    /// Headers of the answer, in the order in which they are declared.
    pub headers: Vec<(String, String)>,
}

impl RequestLimit {
    /// What it takes when it is written out once, from above. A `%` takes two bytes.
    pub fn bytes(&self) -> usize {
        let usual = self.status == TOO_MANY_REQUESTS && self.headers.is_empty();
        let headers = self.headers.iter().map(|(name, value)| HEADER_BYTES + name.len() + 2 * value.len());
        let answer = headers.fold(ANSWER_BYTES, usize::saturating_add);
        LIMIT_BYTES + if usual { 0 } else { answer }
    }
}

/// How many in a unit of time, and how many more at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// How many in a unit; never zero.
    pub amount: u32,
    /// The unit.
    pub unit: RateUnit,
    /// How many more after a time without any.
    pub burst: u32,
}

impl Rate {
    /// The most at once.
    pub fn most(self) -> u32 {
        self.amount.saturating_add(self.burst)
    }
}

/// A unit of time, as it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateUnit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl RateUnit {
    /// All units.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// Its name in an object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }

    /// How long it is.
    pub const fn length(self) -> Duration {
        match self {
            Self::Second => Duration::from_secs(1),
            Self::Minute => Duration::from_mins(1),
            Self::Hour => Duration::from_hours(1),
        }
    }
}

/// Whether a status is an error that Envoy can give: it has its own list (`envoy.type.v3.StatusCode`), and
/// refuses a listener with another one.
pub const fn is_status(status: u16) -> bool {
    matches!(status, 400..=417 | 421..=424 | 426 | 428 | 429 | 431 | 500..=508 | 510 | 511)
}
