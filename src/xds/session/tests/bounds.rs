//! Bounds on what a client can make a session store.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use proptest::prelude::*;
use prost::Message;

use super::support::{
    CDS, EDS, LDS, RDS, SDS, ack, changes, delta, nack, resume, sotw, subscribe, unsubscribe, view,
};
use crate::resource::ResourceType;
use crate::served_state::View;
use crate::session::{
    MAX_HELD_BYTES, MAX_NAME_BYTES, MAX_REQUEST_BYTES, NAME_OVERHEAD, ProtocolError, Response, Scope,
    Session, Variant,
};

fn ads() -> Session {
    Session::new(Variant::Delta, Scope::Aggregated)
}

/// `count` names of `length` bytes each, numbered from `from`.
fn names(from: usize, count: usize, length: usize) -> Vec<String> {
    (from..from + count).map(|i| format!("{i:0length$}")).collect()
}

fn asking(kind: ResourceType, names: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { resource_names_subscribe: names, ..delta(kind) }
}

fn dropping(kind: ResourceType, names: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { resource_names_unsubscribe: names, ..delta(kind) }
}

#[test]
fn a_mesh_of_5000_services_takes_a_quarter_of_the_bound() {
    let services = names(0, 5000, 100);
    let versions = |names: &[String]| names.iter().map(|name| (name.clone(), "0".repeat(32))).collect();
    let mut session = ads();
    for kind in [CDS, EDS, LDS, RDS, SDS] {
        let request = DeltaDiscoveryRequest {
            resource_names_subscribe: if kind.is_wildcard() { Vec::new() } else { services.clone() },
            initial_resource_versions: versions(if kind == LDS { &services[..3] } else { &services }),
            ..delta(kind)
        };
        session.on_delta(&request, None).unwrap();
    }
    assert!(session.held_bytes() < MAX_HELD_BYTES / 4, "{}", session.held_bytes());
    let mut session = Session::new(Variant::Sotw, Scope::Aggregated);
    for kind in [EDS, RDS, SDS] {
        let request = DiscoveryRequest { resource_names: services.clone(), ..sotw(kind, &[]) };
        session.on_sotw(&request, None).unwrap();
    }
    assert!(session.held_bytes() < MAX_HELD_BYTES / 4, "{}", session.held_bytes());
}

#[test]
fn a_resume_with_29000_names_of_100_bytes_fits_into_a_request() {
    let names = names(0, 29_000, 100);
    // With the longest suffix that eight kinds have at ten million changes.
    let version = format!("{}@{}", "0".repeat(32), "N10000S10000A10000P10000E10000T1000H1000C1000");
    assert_eq!(version.len(), 32 + 46);
    let initial_resource_versions = names.iter().map(|name| (name.clone(), version.clone())).collect();
    let request = DeltaDiscoveryRequest { initial_resource_versions, ..asking(EDS, names) };
    for scope in [Scope::Aggregated, Scope::Only(EDS)] {
        assert!(request.encoded_len() < MAX_REQUEST_BYTES, "{}", request.encoded_len());
        Session::new(Variant::Delta, scope).on_delta(&request, None).unwrap();
    }
}

#[test]
fn the_names_of_all_types_are_bounded_together_in_bytes() {
    let mut session = ads();
    let long = || names(0, 10_000, MAX_NAME_BYTES);
    let each = 10_000 * (MAX_NAME_BYTES + NAME_OVERHEAD);
    session.on_delta(&asking(EDS, long()), None).unwrap();
    assert_eq!(session.held_bytes(), each);
    let error = session.on_delta(&asking(RDS, long()), None).unwrap_err();
    assert_eq!(error, ProtocolError::TooManyBytes { bytes: 2 * each });

    let mut session = Session::new(Variant::Sotw, Scope::Aggregated);
    let asking = |kind| DiscoveryRequest { resource_names: long(), ..sotw(kind, &[]) };
    session.on_sotw(&asking(EDS), None).unwrap();
    assert_eq!(session.held_bytes(), each);
    session.on_sotw(&asking(EDS), None).unwrap();
    assert_eq!(session.held_bytes(), each, "the same names");
    let error = session.on_sotw(&asking(RDS), None).unwrap_err();
    assert_eq!(error, ProtocolError::TooManyBytes { bytes: 2 * each });
}

#[test]
fn nothing_is_stored_of_a_request_with_too_many_bytes_of_names() {
    let count = MAX_HELD_BYTES / (MAX_NAME_BYTES + NAME_OVERHEAD) + 1;
    let long = || names(0, count, MAX_NAME_BYTES);
    let held = long().into_iter().map(|name| (name, String::new())).collect();
    let requests = [
        asking(CDS, long()),
        DeltaDiscoveryRequest { initial_resource_versions: held, ..delta(CDS) },
        dropping(CDS, long()),
    ];
    for request in requests {
        let mut session = ads();
        let error = session.on_delta(&request, None).unwrap_err();
        assert!(matches!(error, ProtocolError::TooManyBytes { .. }), "{error}");
        assert_eq!(session.held_bytes(), 0);
    }
}

#[test]
fn dropped_names_make_room() {
    let mut session = ads();
    let long = |from| names(from, 10_000, MAX_NAME_BYTES);
    for round in 0..4 {
        session.on_delta(&asking(EDS, long(10_000 * round)), None).unwrap();
        session.on_delta(&dropping(EDS, long(10_000 * round)), None).unwrap();
        assert_eq!(session.held_bytes(), 0);
    }
}

/// The client leaves a response unanswered while it subscribes to new names and drops them again.
#[test]
fn a_client_that_subscribes_without_answering_makes_nothing_grow() {
    for wildcard in [false, true] {
        let mut session = ads();
        let first = if wildcard { &["*", "a"][..] } else { &["a"] };
        session.on_delta(&subscribe(EDS, first), Some(&view(&[(EDS, "a", "1")]))).unwrap();
        let before = session.kept(EDS);
        for round in 0..50 {
            let some = names(100 * round, 100, 20);
            if wildcard {
                session.on_delta(&subscribe(EDS, &["*"]), None).unwrap();
            }
            session.on_delta(&asking(EDS, some.clone()), None).unwrap();
            session.on_delta(&dropping(EDS, some), None).unwrap();
            if wildcard {
                session.on_delta(&unsubscribe(EDS, &["*"]), None).unwrap();
            }
        }
        assert_eq!(session.kept(EDS), before, "wildcard: {wildcard}");
    }
}

#[test]
fn unanswered_removals_count() {
    let mut session = ads();
    let some = names(0, 100, 36);
    let step = session.on_delta(&asking(EDS, some.clone()), Some(&view(&[]))).unwrap();
    assert_eq!(session.held_bytes(), 2 * 100 * 100, "subscribed to, and answered with a removal");
    session.on_delta(&dropping(EDS, some), None).unwrap();
    assert_eq!(session.held_bytes(), 100 * 100);
    session.on_delta(&ack(&step.responses[0]), None).unwrap();
    assert_eq!(session.held_bytes(), 0);
}

#[test]
fn of_many_rejections_only_the_first_keep_the_whole_message() {
    let names: Vec<String> = (0..200).map(|i| format!("l{i:03}")).collect();
    let specs: Vec<_> = names.iter().map(|name| (LDS, name.as_str(), "1")).collect();
    let mut session = ads();
    let mut queue = session.on_delta(&delta(LDS), Some(&view(&specs))).unwrap().responses;
    while let Some(response) = queue.pop() {
        queue = session.on_delta(&nack(&response, &"x".repeat(2000)), None).unwrap().responses;
    }
    let rejected = &session.status().types[&LDS].rejected;
    assert_eq!(rejected.len(), 200);
    let kept: usize = rejected.values().map(|rejection| rejection.message.len()).sum();
    assert_eq!(kept, 64 * 1024 + 136 * 64);
}

#[derive(Debug, Clone)]
enum Op {
    Ask(Vec<u8>),
    Drop(Vec<u8>),
    Wildcard(bool),
    Answer(bool),
    View(Vec<u8>),
}

fn any_op() -> impl Strategy<Value = Op> {
    let some = || proptest::collection::vec(0..12_u8, 0..5);
    prop_oneof![
        3 => some().prop_map(Op::Ask),
        3 => some().prop_map(Op::Drop),
        1 => any::<bool>().prop_map(Op::Wildcard),
        2 => any::<bool>().prop_map(Op::Answer),
        1 => some().prop_map(Op::View),
    ]
}

/// Endpoints and clusters of these names, of which only some ever exist.
fn some_view(names: &[u8]) -> View {
    let names: BTreeSet<String> = names.iter().filter(|n| **n < 4).map(ToString::to_string).collect();
    let of = |kind| names.iter().map(move |name| (kind, name.as_str(), "1"));
    view(&of(CDS).chain(of(EDS)).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_name_kept_beyond_the_mesh_counts(
        held in proptest::collection::vec(0..12_u8, 0..5),
        ops in proptest::collection::vec((any::<bool>(), any_op()), 1..60),
    ) {
        let mut session = ads();
        let mut current = some_view(&[]);
        let held: BTreeSet<String> = held.iter().map(ToString::to_string).collect();
        let held: Vec<_> = held.iter().map(|name| (CDS, name.as_str(), "0")).collect();
        let step = session.on_delta(&resume(CDS, &[], &held), Some(&current)).unwrap();
        let mut sent: Vec<Response> = step.responses;
        for (clusters, op) in ops {
            let kind = if clusters { CDS } else { EDS };
            let texts = |numbers: &[u8]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>();
            let request = match op {
                Op::Ask(names) => asking(kind, texts(&names)),
                Op::Drop(names) => dropping(kind, texts(&names)),
                Op::Wildcard(true) => subscribe(kind, &["*"]),
                Op::Wildcard(false) => unsubscribe(kind, &["*"]),
                Op::Answer(good) => match sent.pop() {
                    Some(response) if good => ack(&response),
                    Some(response) => nack(&response, "no"),
                    None => continue,
                },
                Op::View(names) => {
                    let next = some_view(&names);
                    sent.extend(session.on_view(&next, &changes(&current, &next)).responses);
                    current = next;
                    continue;
                }
            };
            sent.extend(session.on_delta(&request, None).unwrap().responses);
            let beyond = |name: &Arc<str>| name.parse::<u8>().is_ok_and(|n| n >= 4);
            let kept = [CDS, EDS].map(|kind| session.kept(kind)).into_iter().flatten().filter(beyond);
            let kept: usize = kept.map(|name| name.len() + NAME_OVERHEAD).sum();
            prop_assert!(kept <= session.held_bytes(), "{kept} > {}: {session:?}", session.held_bytes());
        }
    }
}
