//! Owns the expected results, as a hand-written table: each call with its result and the identity
//! the server sees, and every request that may arrive at an application. The table is not computed
//! from the policy, so that a bug in reading policy cannot hide itself.

use crate::bookstore::record::{CallError, Outcome};

use super::tally::{Arrival, Edge, Observed};

/// The expected result of a kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The application answers 200, and saw this identity.
    Served {
        /// SPIFFE ID of the caller.
        identity: &'static str,
    },
    /// The TCP server replies. No application sees an identity below HTTP; the reply itself shows
    /// that this client gets through.
    Answered,
    /// The server's sidecar answers 403: the caller may connect, but not make this request.
    Forbidden,
    /// The caller does not get through. The mesh may stop it at its own sidecar, which refuses the
    /// connection (no listener yet), closes it (no service that the caller may use at that address) or
    /// has no route (404); or at the server's sidecar (closed, or 403). Calls that are allowed show that
    /// the server itself works.
    Refused,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Name of the client.
    pub from: &'static str,
    /// Name of the server.
    pub to: &'static str,
    /// Method and path, as [`super::tally::request`] writes them.
    pub request: &'static str,
    /// The expected result.
    pub expected: Expected,
}

/// SPIFFE IDs of the demo.
pub mod identity {
    /// SPIFFE ID of bookbuyer.
    pub const BOOKBUYER: &str = "spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer";
    /// SPIFFE ID of bookstore-v1.
    pub const BOOKSTORE_V1: &str = "spiffe://cluster.local/ns/bookstore/sa/bookstore-v1";
    /// SPIFFE ID of bookstore-v2.
    pub const BOOKSTORE_V2: &str = "spiffe://cluster.local/ns/bookstore/sa/bookstore-v2";
}

const fn row(from: &'static str, to: &'static str, request: &'static str, expected: Expected) -> Expectation {
    Expectation { from, to, request, expected }
}

/// Every kind of call that the demo makes.
pub const EXPECTATIONS: [Expectation; 9] = [
    row("bookbuyer", "bookstore", "GET /books-bought", Expected::Served { identity: identity::BOOKBUYER }),
    row("bookbuyer", "bookstore", "GET /buy/*", Expected::Served { identity: identity::BOOKBUYER }),
    row("bookbuyer", "bookstore", "GET /admin", Expected::Forbidden),
    row("bookbuyer", "bookwarehouse", "POST /restock", Expected::Refused),
    row("bookthief", "bookstore", "GET /books-bought", Expected::Refused),
    row("bookthief", "bookstore", "GET /buy/*", Expected::Refused),
    row(
        "bookstore-v1",
        "bookwarehouse",
        "POST /restock",
        Expected::Served { identity: identity::BOOKSTORE_V1 },
    ),
    row(
        "bookstore-v2",
        "bookwarehouse",
        "POST /restock",
        Expected::Served { identity: identity::BOOKSTORE_V2 },
    ),
    row("bookwarehouse", "database", "TCP RESTOCK", Expected::Answered),
];

/// Every request that may arrive at an application: server, client identity, request. Any other
/// arrival violates policy.
pub const ARRIVALS: [(&str, Option<&str>, &str); 7] = [
    ("bookstore-v1", Some(identity::BOOKBUYER), "GET /books-bought"),
    ("bookstore-v1", Some(identity::BOOKBUYER), "GET /buy/*"),
    ("bookstore-v2", Some(identity::BOOKBUYER), "GET /books-bought"),
    ("bookstore-v2", Some(identity::BOOKBUYER), "GET /buy/*"),
    ("bookwarehouse", Some(identity::BOOKSTORE_V1), "POST /restock"),
    ("bookwarehouse", Some(identity::BOOKSTORE_V2), "POST /restock"),
    ("database", None, "TCP RESTOCK"),
];

impl Expectation {
    /// Returns true if this row describes that kind of call.
    pub fn is_about(&self, edge: &Edge) -> bool {
        edge.from == self.from && edge.to == self.to && edge.request == self.request
    }
}

impl Expected {
    /// Returns true if policy allows this call.
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Served { .. } | Self::Answered)
    }

    /// Returns true if this result is the expected one. A timeout, an unreachable host or a 503 is
    /// never a refusal: it shows a broken mesh, not a strict one.
    pub fn accepts(self, observed: &Observed) -> bool {
        let by_proxy = !observed.by_application;
        match self {
            Self::Served { .. } => observed.by_application && observed.outcome == Outcome::Status(200),
            Self::Answered => observed.outcome == Outcome::Answered,
            Self::Forbidden => by_proxy && observed.outcome == Outcome::Status(403),
            Self::Refused => {
                by_proxy
                    && matches!(
                        observed.outcome,
                        Outcome::Status(403 | 404)
                            | Outcome::Failed(CallError::ConnectionClosed | CallError::ConnectionRefused)
                    )
            }
        }
    }
}

/// Finds the row of a kind of call, if the table has one.
pub fn expectation_of(edge: &Edge) -> Option<&'static Expectation> {
    EXPECTATIONS.iter().find(|expectation| expectation.is_about(edge))
}

/// Returns true if this request may arrive at an application.
pub fn may_arrive(arrival: &Arrival) -> bool {
    ARRIVALS.iter().any(|(at, from, request)| {
        arrival.at == *at && arrival.from.as_deref() == *from && arrival.request == *request
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_expectation_accepts_only_its_results() {
        let served = Expected::Served { identity: identity::BOOKBUYER };
        let (app, proxy) = (true, false);
        for (expected, outcome, by_application, accepted) in [
            (served, Outcome::Status(200), app, true),
            (served, Outcome::Status(200), proxy, false),
            (served, Outcome::Status(404), app, false),
            (served, Outcome::Status(403), proxy, false),
            (Expected::Forbidden, Outcome::Status(403), proxy, true),
            (Expected::Forbidden, Outcome::Status(403), app, false),
            (Expected::Forbidden, Outcome::Status(200), app, false),
            (Expected::Forbidden, Outcome::Failed(CallError::ConnectionClosed), proxy, false),
            (Expected::Refused, Outcome::Status(403), proxy, true),
            (Expected::Refused, Outcome::Status(404), proxy, true),
            (Expected::Refused, Outcome::Status(404), app, false),
            (Expected::Refused, Outcome::Failed(CallError::ConnectionClosed), proxy, true),
            (Expected::Refused, Outcome::Failed(CallError::ConnectionRefused), proxy, true),
            (Expected::Refused, Outcome::Failed(CallError::Unreachable), proxy, false),
            (Expected::Refused, Outcome::Failed(CallError::NameNotResolved), proxy, false),
            (Expected::Refused, Outcome::Failed(CallError::TimedOut), proxy, false),
            (Expected::Refused, Outcome::Status(503), proxy, false),
            (Expected::Refused, Outcome::Status(200), app, false),
            (Expected::Answered, Outcome::Answered, proxy, true),
            (Expected::Answered, Outcome::Failed(CallError::ConnectionClosed), proxy, false),
        ] {
            let observed = Observed { outcome, by_application };
            assert_eq!(expected.accepts(&observed), accepted, "{expected:?} {observed:?}");
        }
    }

    #[test]
    fn no_request_of_the_thief_or_without_identity_may_arrive() {
        for (at, from, request) in [
            ("bookstore-v1", Some("spiffe://cluster.local/ns/bookthief/sa/bookthief"), "GET /books-bought"),
            ("bookstore-v1", None, "GET /books-bought"),
            ("bookstore-v1", Some(identity::BOOKBUYER), "GET /admin"),
            ("bookwarehouse", Some(identity::BOOKBUYER), "POST /restock"),
        ] {
            let arrival = Arrival { at: at.into(), from: from.map(str::to_owned), request: request.into() };
            assert!(!may_arrive(&arrival), "{arrival:?}");
        }
    }
}
