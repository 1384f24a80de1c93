//! Tables for the verdict: a perfect run passes, and each single flaw in it fails with its own mismatch.

use super::super::expectation::identity::{BOOKBUYER, BOOKSTORE_V1, BOOKSTORE_V2};
use super::super::manifests::{WEIGHTS_AFTER, WEIGHTS_BEFORE};
use super::super::tally;
use super::*;
use crate::bookstore::record::{CallError, Outcome};

const THIEF: &str = "spiffe://cluster.local/ns/bookthief/sa/bookthief";

fn edge(from: &str, to: &str, request: &str) -> Edge {
    Edge { from: from.into(), to: to.into(), request: request.into() }
}

fn arrival(at: &str, from: Option<&str>, request: &str) -> Arrival {
    Arrival { at: at.into(), from: from.map(str::to_owned), request: request.into() }
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

/// A tally that matches policy, with this many responses of each version.
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
        tally.arrivals.insert(arrival(at, from, request), 10);
    }
    tally
}

fn perfect() -> Observations {
    let window = |weights, tally| Window { weights, tally, requests_min: 400 };
    Observations {
        since_start: perfect_tally(250, 750),
        settled: Some(perfect_tally(250, 650)),
        converged: true,
        windows: vec![
            window(WEIGHTS_BEFORE, perfect_tally(205, 200)),
            window(WEIGHTS_AFTER, perfect_tally(45, 360)),
        ],
        upgraded: Some(vec![SidecarReport { sidecar: "shop/buyer".into(), gaps_ms: vec![20], resent: 0 }]),
    }
}

#[test]
fn a_run_that_matches_policy_passes() {
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

/// A part of a run, with a tally of its own.
#[derive(Clone, Copy)]
enum Period {
    Start,
    Settled,
    FirstWindow,
}

/// A count in a tally.
enum Count {
    Calls(Edge),
    Result(Edge, Observed),
    Identity(Edge, &'static str),
    Version(Edge, &'static str),
    Arrival(Arrival),
    Unreadable,
}

type Flaw = Box<dyn Fn(&mut Observations)>;

/// Flaw: a count has this value.
fn set(period: Period, count: Count, value: u64) -> Flaw {
    Box::new(move |run| {
        let tally = tally_of(run, period);
        match &count {
            Count::Calls(_) => unreachable!("calls are counted by result"),
            Count::Result(edge, observed) => calls(tally, edge).results.insert(*observed, value),
            Count::Identity(edge, identity) => {
                calls(tally, edge).identities.insert((*identity).to_owned(), value)
            }
            Count::Version(edge, version) => calls(tally, edge).versions.insert((*version).to_owned(), value),
            Count::Arrival(arrival) => tally.arrivals.insert(arrival.clone(), value),
            Count::Unreadable => Some(std::mem::replace(&mut tally.unreadable, value)),
        };
    })
}

/// Flaw: a count is missing.
fn remove(period: Period, count: Count) -> Flaw {
    Box::new(move |run| {
        let tally = tally_of(run, period);
        let removed = match &count {
            Count::Calls(edge) => tally.calls.remove(edge).is_some(),
            Count::Arrival(arrival) => tally.arrivals.remove(arrival).is_some(),
            _ => false,
        };
        assert!(removed, "the perfect run has this count");
    })
}

fn calls<'a>(tally: &'a mut Tally, edge: &Edge) -> &'a mut tally::Calls {
    tally.calls.entry(edge.clone()).or_default()
}

fn tally_of(run: &mut Observations, period: Period) -> &mut Tally {
    match period {
        Period::Start => &mut run.since_start,
        Period::Settled => run.settled.as_mut().unwrap(),
        Period::FirstWindow => &mut run.windows[0].tally,
    }
}

fn steal() -> Edge {
    edge("bookthief", "bookstore", "GET /books-bought")
}

fn read() -> Edge {
    edge("bookbuyer", "bookstore", "GET /books-bought")
}

fn admin() -> Edge {
    edge("bookbuyer", "bookstore", "GET /admin")
}

fn direct() -> Edge {
    edge("bookbuyer", "bookwarehouse", "POST /restock")
}

fn order() -> Edge {
    edge("bookstore-v1", "bookwarehouse", "POST /restock")
}

fn write() -> Edge {
    edge("bookwarehouse", "database", "TCP RESTOCK")
}

fn stranger() -> Edge {
    edge("bookthief", "database", "TCP RESTOCK")
}

fn stolen() -> Arrival {
    arrival("bookstore-v1", Some(THIEF), "GET /buy/*")
}

fn unidentified() -> Arrival {
    arrival("bookwarehouse", None, "POST /restock")
}

fn bought() -> Arrival {
    arrival("bookstore-v2", Some(BOOKBUYER), "GET /buy/*")
}

/// Judges the perfect run with one flaw.
fn judge_flawed(flaw: impl Fn(&mut Observations)) -> Vec<Mismatch> {
    let mut observations = perfect();
    flaw(&mut observations);
    judge(&observations)
}

/// Each row has one flaw in the calls of the perfect run, and the one mismatch that must follow.
#[test]
fn each_single_flaw_of_the_calls_fails() {
    use Count::{Calls, Identity, Result, Unreadable};
    use Mismatch::{
        Breach, MissingArrival, TooFewCalls, UnexpectedArrival, UnexpectedIdentity, UnexpectedResult,
        UnknownCall,
    };
    use Period::{Settled, Start};

    let answered = by_proxy(Outcome::Answered);
    let broken = by_proxy(Outcome::Status(503));

    for (name, flaw, expected) in [
        (
            "the thief was served, if only while starting",
            set(Start, Result(steal(), by_application(200)), 1),
            Breach(steal(), 1),
        ),
        (
            "the thief reached the application, whatever it answered",
            set(Start, Result(steal(), by_application(502)), 1),
            Breach(steal(), 1),
        ),
        (
            "the thief's request arrived, though it got no answer",
            set(Start, Count::Arrival(stolen()), 2),
            UnexpectedArrival(stolen(), 2),
        ),
        (
            "a request arrived without identity",
            set(Start, Count::Arrival(unidentified()), 1),
            UnexpectedArrival(unidentified(), 1),
        ),
        (
            "the administration page was reached",
            set(Start, Result(admin(), by_application(200)), 1),
            Breach(admin(), 1),
        ),
        (
            "the administration page was closed in another way than by policy",
            set(Settled, Result(admin(), closed()), 1),
            UnexpectedResult(admin(), closed(), 1),
        ),
        (
            "a refusal that was only an outage",
            set(Settled, Result(direct(), broken), 3),
            UnexpectedResult(direct(), broken, 3),
        ),
        (
            "one failure of an allowed call during the shift",
            set(Settled, Result(read(), broken), 1),
            UnexpectedResult(read(), broken, 1),
        ),
        ("a call never made", remove(Settled, Calls(write())), TooFewCalls(write(), 0)),
        (
            "a call made too rarely",
            set(Settled, Result(write(), answered), CALLS_MIN - 1),
            TooFewCalls(write(), CALLS_MIN - 1),
        ),
        (
            "the wrong identity",
            set(Settled, Identity(order(), BOOKSTORE_V2), 4),
            UnexpectedIdentity(order(), BOOKSTORE_V2.into(), 4),
        ),
        (
            "no identity",
            set(Settled, Identity(order(), BOOKSTORE_V1), 890),
            UnexpectedIdentity(order(), "(no identity)".into(), 10),
        ),
        (
            "a call that the table does not know",
            set(Settled, Result(stranger(), closed()), 2),
            UnknownCall(stranger(), 2),
        ),
        (
            "a version that never received anything",
            remove(Settled, Count::Arrival(bought())),
            MissingArrival(bought()),
        ),
        ("a line that is not a record", set(Start, Unreadable, 1), Mismatch::Unreadable(1)),
    ] {
        assert_eq!(judge_flawed(flaw), vec![expected], "{name}");
    }
}

/// Each row has one flaw in the shift or the upgrade of the perfect run, and the one mismatch that must
/// follow.
#[test]
fn each_single_flaw_of_the_shift_fails() {
    use Mismatch::{
        MissingWindow, NeverSettled, NotConverged, NotUpgraded, Resent, TooFewRequests, UnexpectedShare,
        UnknownVersion,
    };

    let run = |flaw: fn(&mut Observations)| -> Flaw { Box::new(flaw) };

    for (name, flaw, expected) in [
        ("a split that no sidecar acknowledged", run(|run| run.converged = false), NotConverged),
        ("a mesh that never settled", run(|run| run.settled = None), NeverSettled),
        ("a second window that was never observed", run(|run| run.windows.truncate(1)), MissingWindow(1)),
        (
            "a window with too few requests",
            run(|run| run.windows[0].tally = perfect_tally(100, 100)),
            TooFewRequests(WEIGHTS_BEFORE, 200, 400),
        ),
        (
            "a window without requests",
            run(|run| {
                run.windows[0].tally = Tally::default();
                run.windows[0].requests_min = 0;
            }),
            TooFewRequests(WEIGHTS_BEFORE, 0, 0),
        ),
        (
            "a share that did not move",
            run(|run| run.windows[1].tally = perfect_tally(200, 200)),
            UnexpectedShare(WEIGHTS_AFTER, Share::of(200, 400, 0.9).unwrap()),
        ),
        (
            "a share that moved before its time",
            run(|run| run.windows[0].tally = perfect_tally(40, 360)),
            UnexpectedShare(WEIGHTS_BEFORE, Share::of(360, 400, 0.5).unwrap()),
        ),
        (
            "an unknown version",
            set(Period::FirstWindow, Count::Version(read(), "v3"), 1),
            UnknownVersion(WEIGHTS_BEFORE, "v3".into(), 1),
        ),
        ("an upgrade that did not end", run(|run| run.upgraded = None), NotUpgraded),
        (
            "an upgrade that sent something again",
            run(|run| run.upgraded.as_mut().unwrap()[0].resent = 2),
            Resent("shop/buyer".into(), 2),
        ),
    ] {
        assert_eq!(judge_flawed(flaw), vec![expected], "{name}");
    }
}

#[test]
fn a_mismatch_names_the_call_and_the_result() {
    let text =
        Mismatch::UnexpectedResult(edge("bookbuyer", "bookstore", "GET /admin"), by_application(200), 3);
    assert_eq!(text.to_string(), "bookbuyer → bookstore, GET /admin: 200 from the application, 3 times");
    assert_eq!(
        serde_json::to_value(Mismatch::NotConverged).unwrap(),
        "the shifted split was not acknowledged in time"
    );
}
