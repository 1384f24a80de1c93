//! What policy says must happen, written down by hand as a table: who calls whom, with what result, seen as whom; and
//! everything that may arrive at an application at all. It is not computed from the policy, so that a mistake in
//! reading policy cannot excuse itself.

use crate::bookstore::record::{CallError, Outcome};

use super::tally::{Arrival, Edge, Observed};

/// What must come of a kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The application answers 200, and saw this identity.
    Served {
        /// The SPIFFE ID of the caller.
        identity: &'static str,
    },
    /// A TCP conversation takes place. No application sees an identity below HTTP; that only this client gets
    /// through is shown by the conversation itself.
    Answered,
    /// The sidecar of the server answers 403: the caller may connect, but not ask this.
    Forbidden,
    /// The caller does not get through. Where it is stopped is the mesh's choice: at its own sidecar, which refuses the
    /// connection if it has no service to offer at all, closes it if it has none at that address, or has no route
    /// (404); or at the server's (closed, or 403). That the server itself is well is shown by those who may call it.
    Refused,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Who calls.
    pub from: &'static str,
    /// Whom.
    pub to: &'static str,
    /// Method and path, as [`super::tally::request`] writes them.
    pub request: &'static str,
    /// What must come of it.
    pub expected: Expected,
}

/// Identities of the demo.
pub mod identity {
    /// bookbuyer's.
    pub const BOOKBUYER: &str = "spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer";
    /// The first bookstore's.
    pub const BOOKSTORE_V1: &str = "spiffe://cluster.local/ns/bookstore/sa/bookstore-v1";
    /// The second bookstore's.
    pub const BOOKSTORE_V2: &str = "spiffe://cluster.local/ns/bookstore/sa/bookstore-v2";
}

const fn row(from: &'static str, to: &'static str, request: &'static str, expected: Expected) -> Expectation {
    Expectation { from, to, request, expected }
}

/// Every call the demo makes.
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

/// Everything that may arrive at an application: where, from which identity, what. Anything else that arrives got
/// past policy.
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
    /// Whether this row is about that kind of call.
    pub fn is_about(&self, edge: &Edge) -> bool {
        edge.from == self.from && edge.to == self.to && edge.request == self.request
    }
}

impl Expected {
    /// Whether policy wants this call to succeed.
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Served { .. } | Self::Answered)
    }

    /// Whether this result is what policy says. A timeout, an unreachable host or a 503 is never a refusal: that is a
    /// broken mesh, not a strict one.
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

/// The row about a kind of call, if the table has one.
pub fn expectation_of(edge: &Edge) -> Option<&'static Expectation> {
    EXPECTATIONS.iter().find(|expectation| expectation.is_about(edge))
}

/// Whether this may arrive at an application.
pub fn may_arrive(arrival: &Arrival) -> bool {
    ARRIVALS.iter().any(|(at, from, request)| {
        arrival.at == *at && arrival.from.as_deref() == *from && arrival.request == *request
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_told_apart_by_what_they_mean() {
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
    fn nothing_of_the_thief_and_nothing_unidentified_may_arrive() {
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
