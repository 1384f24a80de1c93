//! Tables for the verdict: a perfect run passes, and each single flaw in it fails with its own mismatch.

use super::super::expectation::identity::{BOOKBUYER, BOOKSTORE_V1, BOOKSTORE_V2};
use super::super::manifests::{WEIGHTS_AFTER, WEIGHTS_BEFORE};
use super::*;
use crate::bookstore::record::{CallError, Outcome};

const THIEF: &str = "spiffe://cluster.local/ns/bookthief/sa/bookthief";

fn edge(from: &str, to: &str, request: &str) -> Edge {
    Edge { from: from.into(), to: to.into(), request: request.into() }
}

fn by_proxy(outcome: Outcome) -> Observed {
    Observed { outcome, by_application: false }
}

fn by_application(status: u16) -> Observed {
    Observed { outcome: Outcome::Status(status), by_application: true }
}

fn closed() -> Observed {
    by_proxy(Outcome::Failed(CallError::ConnectionClosed))
}

/// A tally in which everything is as policy says, with so many answers per version.
fn perfect_tally(v1: u64, v2: u64) -> Tally {
    let mut tally = Tally::default();
    for expectation in &EXPECTATIONS {
        let calls =
            tally.calls.entry(edge(expectation.from, expectation.to, expectation.request)).or_default();
        let observed = match expectation.expected {
            Expected::Served { identity } => {
                calls.identities.insert(identity.to_owned(), v1 + v2);
                by_application(200)
            }
            Expected::Answered => by_proxy(Outcome::Answered),
            Expected::Forbidden => by_proxy(Outcome::Status(403)),
            Expected::Refused => closed(),
        };
        calls.results.insert(observed, v1 + v2);
        if expectation.request == "GET /books-bought" && expectation.from == "bookbuyer" {
            calls.versions = [("v1".to_owned(), v1), ("v2".to_owned(), v2)].into();
        }
    }
    for (at, from, request) in ARRIVALS {
        let arrival = Arrival { at: at.into(), from: from.map(str::to_owned), request: request.into() };
        tally.arrivals.insert(arrival, 10);
    }
    tally
}

fn perfect() -> Observations {
    let window = |weights, tally| Window { weights, tally, requests_min: 400 };
    Observations {
        ever: perfect_tally(250, 750),
        settled: Some(perfect_tally(250, 650)),
        converged: true,
        windows: vec![
            window(WEIGHTS_BEFORE, perfect_tally(205, 200)),
            window(WEIGHTS_AFTER, perfect_tally(45, 360)),
        ],
    }
}

fn settled(observations: &mut Observations) -> &mut Tally {
    observations.settled.as_mut().unwrap()
}

#[test]
fn a_run_in_which_all_is_as_policy_says_passes() {
    assert_eq!(judge(&perfect()), vec![]);
}

#[test]
fn nothing_observed_fails() {
    let nothing = judge(&Observations::default());
    assert_eq!(nothing, vec![Mismatch::NeverSettled, Mismatch::NotConverged, Mismatch::MissingWindow(0)]);
    let empty = judge(&Observations { settled: Some(Tally::default()), ..Observations::default() });
    assert_eq!(empty.iter().filter(|m| matches!(m, Mismatch::TooFewCalls(_, 0))).count(), EXPECTATIONS.len());
    assert_eq!(empty.iter().filter(|m| matches!(m, Mismatch::MissingArrival(_))).count(), ARRIVALS.len());
}

/// Each row changes one thing in the perfect run and names the one mismatch that must follow.
#[test]
fn each_single_flaw_fails() {
    type Change = fn(&mut Observations);
    let steal = edge("bookthief", "bookstore", "GET /books-bought");
    let read = edge("bookbuyer", "bookstore", "GET /books-bought");
    let admin = edge("bookbuyer", "bookstore", "GET /admin");
    let direct = edge("bookbuyer", "bookwarehouse", "POST /restock");
    let order = edge("bookstore-v1", "bookwarehouse", "POST /restock");
    let write = edge("bookwarehouse", "database", "TCP RESTOCK");
    let stranger = edge("bookthief", "database", "TCP RESTOCK");
    let arrival = |at: &str, from: Option<&str>, request: &str| Arrival {
        at: at.into(),
        from: from.map(str::to_owned),
        request: request.into(),
    };

    let table: Vec<(&str, Change, Mismatch)> = vec![
        (
            "the thief was served, if only while starting",
            |o| {
                let steal = edge("bookthief", "bookstore", "GET /books-bought");
                o.ever.calls.get_mut(&steal).unwrap().results.insert(by_application(200), 1);
            },
            Mismatch::Breach(steal.clone(), 1),
        ),
        (
            "the thief reached the application, whatever it answered",
            |o| {
                let steal = edge("bookthief", "bookstore", "GET /books-bought");
                o.ever.calls.get_mut(&steal).unwrap().results.insert(by_application(502), 1);
            },
            Mismatch::Breach(steal.clone(), 1),
        ),
        (
            "the thief's request arrived, though it got no answer",
            |o| {
                let arrival = Arrival {
                    at: "bookstore-v1".into(),
                    from: Some(THIEF.into()),
                    request: "GET /buy/*".into(),
                };
                o.ever.arrivals.insert(arrival, 2);
            },
            Mismatch::UnexpectedArrival(arrival("bookstore-v1", Some(THIEF), "GET /buy/*"), 2),
        ),
        (
            "a request arrived without identity",
            |o| {
                let arrival =
                    Arrival { at: "bookwarehouse".into(), from: None, request: "POST /restock".into() };
                o.ever.arrivals.insert(arrival, 1);
            },
            Mismatch::UnexpectedArrival(arrival("bookwarehouse", None, "POST /restock"), 1),
        ),
        (
            "the administration page was reached",
            |o| {
                let admin = edge("bookbuyer", "bookstore", "GET /admin");
                o.ever.calls.get_mut(&admin).unwrap().results.insert(by_application(200), 1);
            },
            Mismatch::Breach(admin.clone(), 1),
        ),
        (
            "the administration page was closed in another way than by policy",
            |o| {
                let admin = edge("bookbuyer", "bookstore", "GET /admin");
                settled(o).calls.get_mut(&admin).unwrap().results.insert(closed(), 1);
            },
            Mismatch::UnexpectedResult(admin, closed(), 1),
        ),
        (
            "a refusal that was only an outage",
            |o| {
                let direct = edge("bookbuyer", "bookwarehouse", "POST /restock");
                let broken = by_proxy(Outcome::Status(503));
                settled(o).calls.get_mut(&direct).unwrap().results.insert(broken, 3);
            },
            Mismatch::UnexpectedResult(direct, by_proxy(Outcome::Status(503)), 3),
        ),
        (
            "one failure of an allowed call during the shift",
            |o| {
                let read = edge("bookbuyer", "bookstore", "GET /books-bought");
                let broken = by_proxy(Outcome::Status(503));
                settled(o).calls.get_mut(&read).unwrap().results.insert(broken, 1);
            },
            Mismatch::UnexpectedResult(read.clone(), by_proxy(Outcome::Status(503)), 1),
        ),
        (
            "a call never made",
            |o| {
                settled(o).calls.remove(&edge("bookwarehouse", "database", "TCP RESTOCK"));
            },
            Mismatch::TooFewCalls(write.clone(), 0),
        ),
        (
            "a call made too rarely",
            |o| {
                let write = edge("bookwarehouse", "database", "TCP RESTOCK");
                let calls = settled(o).calls.get_mut(&write).unwrap();
                calls.results = [(by_proxy(Outcome::Answered), CALLS_MIN - 1)].into();
            },
            Mismatch::TooFewCalls(write, CALLS_MIN - 1),
        ),
        (
            "the wrong identity",
            |o| {
                let order = edge("bookstore-v1", "bookwarehouse", "POST /restock");
                let calls = settled(o).calls.get_mut(&order).unwrap();
                calls.identities.insert(BOOKSTORE_V2.into(), 4);
            },
            Mismatch::UnexpectedIdentity(order.clone(), BOOKSTORE_V2.into(), 4),
        ),
        (
            "no identity",
            |o| {
                let order = edge("bookstore-v1", "bookwarehouse", "POST /restock");
                let calls = settled(o).calls.get_mut(&order).unwrap();
                calls.identities = [(BOOKSTORE_V1.into(), 890)].into();
            },
            Mismatch::UnexpectedIdentity(order, "(not told)".into(), 10),
        ),
        (
            "a call that the table does not know",
            |o| {
                let stranger = edge("bookthief", "database", "TCP RESTOCK");
                settled(o).calls.entry(stranger).or_default().results.insert(closed(), 2);
            },
            Mismatch::UnknownCall(stranger, 2),
        ),
        (
            "a version that never received anything",
            |o| {
                let arrival = Arrival {
                    at: "bookstore-v2".into(),
                    from: Some(BOOKBUYER.into()),
                    request: "GET /buy/*".into(),
                };
                settled(o).arrivals.remove(&arrival);
            },
            Mismatch::MissingArrival(arrival("bookstore-v2", Some(BOOKBUYER), "GET /buy/*")),
        ),
        ("a split nobody took", |o| o.converged = false, Mismatch::NotConverged),
        ("a mesh that never settled", |o| o.settled = None, Mismatch::NeverSettled),
        (
            "a second window that was never observed",
            |o| {
                o.windows.pop();
            },
            Mismatch::MissingWindow(1),
        ),
        (
            "a window with too few requests",
            |o| o.windows[0].tally = perfect_tally(100, 100),
            Mismatch::TooFewRequests(WEIGHTS_BEFORE, 200, 400),
        ),
        (
            "a window without requests",
            |o| o.windows[0] = Window { tally: Tally::default(), requests_min: 0, ..o.windows[0].clone() },
            Mismatch::TooFewRequests(WEIGHTS_BEFORE, 0, 0),
        ),
        (
            "a share that did not move",
            |o| o.windows[1].tally = perfect_tally(200, 200),
            Mismatch::UnexpectedShare(WEIGHTS_AFTER, Share::of(200, 400, 0.9).unwrap()),
        ),
        (
            "a share that moved before its time",
            |o| o.windows[0].tally = perfect_tally(40, 360),
            Mismatch::UnexpectedShare(WEIGHTS_BEFORE, Share::of(360, 400, 0.5).unwrap()),
        ),
        (
            "a version from nowhere",
            |o| {
                let read = edge("bookbuyer", "bookstore", "GET /books-bought");
                o.windows[0].tally.calls.get_mut(&read).unwrap().versions.insert("v3".into(), 1);
            },
            Mismatch::UnknownVersion(WEIGHTS_BEFORE, "v3".into(), 1),
        ),
        ("a line that is no record", |o| o.ever.unreadable = 1, Mismatch::Unreadable(1)),
    ];
    for (name, change, expected) in table {
        let mut observations = perfect();
        change(&mut observations);
        assert_eq!(judge(&observations), vec![expected], "{name}");
    }
}

#[test]
fn every_mismatch_names_who_and_what() {
    let text =
        Mismatch::UnexpectedResult(edge("bookbuyer", "bookstore", "GET /admin"), by_application(200), 3);
    assert_eq!(text.to_string(), "bookbuyer → bookstore, GET /admin: 200 from the application, 3 times");
    assert_eq!(
        serde_json::to_value(Mismatch::NotConverged).unwrap(),
        "the shifted split was not acknowledged in time"
    );
}
