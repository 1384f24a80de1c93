//! A stream that begins while a cluster warms at the client, because the previous stream broke between
//! the cluster and its endpoints. Envoy then states everything except its clusters, which follow when
//! all are warm.

use super::support::{
    CDS, EDS, LDS, RDS, SDS, Spec, ack, delta, resume, sotw, sotw_ack, subscribe, texts, view,
};
use crate::session::{Scope, Session, Variant};

/// What the client holds: `a` warms, in a version that is newer than its endpoints.
const HELD: [Spec<'_>; 4] = [(CDS, "a", "2"), (EDS, "a", "1"), (LDS, "out", "1"), (RDS, "r", "a")];

/// The current view: it has another cluster and a route to it.
const NOW: [Spec<'_>; 6] = [
    (CDS, "a", "2"),
    (CDS, "new", "1"),
    (EDS, "a", "1"),
    (EDS, "new", "1"),
    (LDS, "out", "2 new"),
    (RDS, "r", "a new"),
];

fn ads() -> Session {
    Session::new(Variant::Delta, Scope::Aggregated)
}

#[test]
fn endpoints_are_sent_again_to_a_client_that_states_them_first() {
    let held = [(EDS, "a", "1"), (EDS, "b", "1"), (EDS, "gone", "1")];
    let now = view(&[(CDS, "a", "2"), (CDS, "b", "1"), held[0], held[1]]);
    let request = resume(EDS, &["a", "b", "gone"], &held);
    let step = ads().on_delta(&request, Some(&now)).unwrap();
    assert_eq!(texts(&step), ["eds +a +b -gone"], "which of them a cluster waits for is not said");
}

#[test]
fn endpoints_are_not_sent_again_if_clusters_are_warm_or_separate() {
    let now = view(&HELD);
    let mut session = ads();
    session.on_delta(&resume(CDS, &[], &HELD[..1]), Some(&now)).unwrap();
    let request = resume(EDS, &["a"], &HELD[1..2]);
    assert!(session.on_delta(&request, None).unwrap().responses.is_empty());
    let mut alone = Session::new(Variant::Delta, Scope::Only(EDS));
    assert_eq!(texts(&alone.on_delta(&request, Some(&now)).unwrap()), ["eds"]);
}

#[test]
fn listeners_and_routes_wait_for_unstated_clusters() {
    let mut session = ads();
    let endpoints = session.on_delta(&resume(EDS, &["a"], &HELD[1..2]), Some(&view(&NOW))).unwrap();
    assert_eq!(texts(&endpoints), ["eds +a"]);
    for request in [resume(LDS, &[], &HELD[2..3]), resume(RDS, &["r"], &HELD[3..])] {
        assert!(session.on_delta(&request, None).unwrap().responses.is_empty());
    }
    let step = session.on_delta(&ack(&endpoints.responses[0]), None).unwrap();
    assert!(step.responses.is_empty(), "warm, and yet without the new cluster: {:?}", texts(&step));
    let clusters = session.on_delta(&resume(CDS, &[], &HELD[..1]), None).unwrap();
    assert_eq!(texts(&clusters), ["cds +new"]);
    let step = session.on_delta(&subscribe(EDS, &["new"]), None).unwrap();
    assert_eq!(texts(&step), ["eds +new"]);
    let step = session.on_delta(&ack(&clusters.responses[0]), None).unwrap();
    assert_eq!(texts(&step), ["lds +out", "rds +r"]);
}

/// Envoy states types in the order of its first subscriptions: endpoints come after listeners if its
/// first clusters had none.
#[test]
fn a_client_that_states_listeners_first_is_probed_before_updates() {
    let mut session = ads();
    let first = session.on_delta(&resume(LDS, &[], &HELD[2..3]), Some(&view(&NOW))).unwrap();
    assert_eq!(texts(&first), ["lds"], "something to answer, and nothing in it");
    let endpoints = session.on_delta(&subscribe(EDS, &["a"]), None).unwrap();
    assert_eq!(texts(&endpoints), ["eds +a"]);
    assert!(session.on_delta(&ack(&first.responses[0]), None).unwrap().responses.is_empty());
    let clusters = session.on_delta(&resume(CDS, &[], &HELD[..1]), None).unwrap();
    assert_eq!(texts(&clusters), ["cds +new"]);
    let step = session.on_delta(&ack(&clusters.responses[0]), None).unwrap();
    assert_eq!(texts(&step), ["lds +out"]);
}

#[test]
fn a_client_that_asks_for_no_clusters_gets_its_listeners_all_the_same() {
    let now = view(&NOW);
    let mut resumed = ads();
    let first = resumed.on_delta(&resume(LDS, &[], &HELD[2..3]), Some(&now)).unwrap();
    let step = resumed.on_delta(&ack(&first.responses[0]), None).unwrap();
    assert_eq!(texts(&step), ["lds +out"]);
    assert_eq!(texts(&ads().on_delta(&delta(LDS), Some(&now)).unwrap()), ["lds +out"]);
    let mut fresh = ads();
    fresh.on_delta(&subscribe(EDS, &["a"]), Some(&now)).unwrap();
    assert_eq!(texts(&fresh.on_delta(&delta(LDS), None).unwrap()), ["lds +out"]);
}

#[test]
fn a_secret_stays_while_a_cluster_that_was_not_stated_may_refer_to_it() {
    let mut session = ads();
    let first = session.on_delta(&resume(SDS, &["s"], &[(SDS, "s", "1")]), Some(&view(&HELD))).unwrap();
    session.on_delta(&resume(EDS, &["a"], &HELD[1..2]), None).unwrap();
    let step = session.on_delta(&ack(&first.responses[0]), None).unwrap();
    assert!(step.responses.is_empty(), "{:?}", texts(&step));
    let step = session.on_delta(&resume(CDS, &[], &HELD[..1]), None).unwrap();
    assert_eq!(texts(&step), ["sds -s"]);
}

#[test]
fn in_sotw_listeners_wait_for_unstated_clusters() {
    let mut session = Session::new(Variant::Sotw, Scope::Aggregated);
    let resumed = |kind, names: &[&str]| {
        let mut request = sotw(kind, names);
        request.version_info = "0".repeat(32);
        request
    };
    let endpoints = session.on_sotw(&resumed(EDS, &["a"]), Some(&view(&NOW))).unwrap();
    assert_eq!(texts(&endpoints), ["eds +a"]);
    assert!(session.on_sotw(&resumed(LDS, &[]), None).unwrap().responses.is_empty());
    let clusters = session.on_sotw(&resumed(CDS, &[]), None).unwrap();
    assert_eq!(texts(&clusters), ["cds +a +new"]);
    let step = session.on_sotw(&sotw_ack(&clusters.responses[0], &[]), None).unwrap();
    assert_eq!(texts(&step), ["lds +out"]);
}
