//! A replica that lags behind another one, and a proxy that comes from there.

use super::support::{
    CDS, EDS, LDS, RDS, SDS, Spec, ack, changes, delta, resume, sotw, subscribe, texts, version, view,
};
use crate::revision::Revision;
use crate::served_state::View;
use crate::session::{Response, Scope, Session, Variant};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use prost::Message;

const OLD: [Spec<'_>; 6] = [
    (SDS, "cert", "1"),
    (CDS, "a", "1"),
    (CDS, "old", "1"),
    (EDS, "a", "1"),
    (LDS, "in", "1"),
    (RDS, "r", "1"),
];

/// What the proxy holds: `old` is gone, `new` is there, and the endpoints of `a` are others.
const NEW: [Spec<'_>; 7] = [
    (SDS, "cert", "1"),
    (CDS, "a", "1"),
    (CDS, "new", "1"),
    (EDS, "a", "2"),
    (EDS, "new", "1"),
    (LDS, "in", "1"),
    (RDS, "r", "1 new"),
];

fn ads() -> Session {
    Session::new(Variant::Delta, Scope::Aggregated)
}

fn at(specs: &[Spec<'_>], revision: u64) -> View {
    view(specs).at(Revision { changed: revision, known: revision })
}

/// The first requests of an Envoy that holds [`NEW`] from a replica that had come to `revision`.
fn requests(revision: u64) -> Vec<DeltaDiscoveryRequest> {
    let of = |kind, names: &[&str]| {
        let held: Vec<_> = NEW.into_iter().filter(|spec| spec.0 == kind).collect();
        let mut request = resume(kind, names, &held);
        request.initial_resource_versions.values_mut().for_each(|held| *held = format!("{held}@{revision}"));
        request
    };
    vec![of(CDS, &[]), of(EDS, &["a", "new"]), of(LDS, &[]), of(RDS, &["r"]), of(SDS, &["cert"])]
}

/// The session of such an Envoy, and what it is sent.
fn resumed(view: &View, revision: u64) -> (Session, Vec<Response>) {
    let mut session = ads();
    let mut responses = Vec::new();
    for request in requests(revision) {
        responses.extend(session.on_delta(&request, Some(view)).unwrap().responses);
    }
    // Answers to what has been answered change nothing more.
    for response in responses.clone() {
        responses.extend(session.on_delta(&ack(&response), None).unwrap().responses);
    }
    (session, responses)
}

fn said(responses: &[Response]) -> Vec<String> {
    responses.iter().map(super::support::text).collect()
}

#[test]
fn a_replica_that_lags_behind_takes_nothing_back() {
    let (session, responses) = resumed(&at(&OLD, 7), 8);
    assert_eq!(said(&responses), ["cds"], "one empty response, which resets the client's back-off");
    assert!(session.holds_back());
}

#[test]
fn a_replica_that_has_come_as_far_serves_what_it_has() {
    for known in [8, 9] {
        let (session, responses) = resumed(&at(&OLD, known), 8);
        let said = said(&responses);
        assert_eq!(said, ["cds +old", "eds +a", "rds +r"], "removals follow when nothing refers to them");
        assert!(!session.holds_back());
    }
}

#[test]
fn what_was_held_back_goes_out_when_the_replica_has_caught_up() {
    let (old, new) = (at(&OLD, 7), at(&NEW, 8));
    let (mut session, _) = resumed(&old, 8);
    let step = session.on_view(&new, &changes(&old, &new));
    assert!(step.responses.is_empty(), "the client had it all along: {:?}", texts(&step));
    assert!(!session.holds_back() && session.acknowledged());

    // Or the newer state has nothing new for this proxy, or the other replica was never right.
    for reached in [8, u64::MAX] {
        let (mut session, _) = resumed(&old, 8);
        assert!(session.on_reached(7).responses.is_empty());
        let said = texts(&session.on_reached(reached));
        assert!(said.contains(&"cds +old".to_owned()), "{said:?}");
        assert!(!session.holds_back());
    }
}

#[test]
fn a_view_that_is_still_behind_changes_nothing() {
    let (old, next) = (at(&OLD, 6), at(&OLD[..5], 7));
    let (mut session, _) = resumed(&old, 8);
    assert!(session.on_view(&next, &changes(&old, &next)).responses.is_empty());
    assert!(session.holds_back());
}

#[test]
fn equal_content_is_equal_whatever_its_revision() {
    for revision in [1, 7, 8] {
        let (session, responses) = resumed(&at(&NEW, 7), revision);
        assert_eq!(said(&responses), ["cds"], "{revision}");
        assert!(!session.holds_back(), "nothing differs");
    }
}

#[test]
fn a_source_without_revisions_holds_nothing_back() {
    let (session, responses) = resumed(&view(&OLD), 8);
    assert!(said(&responses).contains(&"cds +old".to_owned()), "{:?}", said(&responses));
    assert!(!session.holds_back());
}

/// Secrets come from the ledger and not from a source.
#[test]
fn secrets_go_out_all_the_same() {
    let mut renewed = OLD;
    renewed[0] = (SDS, "cert", "2");
    let (_, responses) = resumed(&at(&renewed, 7), 8);
    assert_eq!(said(&responses), ["cds", "sds +cert"]);
}

/// The cluster may be warming because of it, and it takes nothing back.
#[test]
fn endpoints_that_a_warming_cluster_waits_for_go_out_all_the_same() {
    let mut session = ads();
    let mut request = resume(EDS, &["a", "b", "gone"], &[(EDS, "a", "1"), (EDS, "gone", "1")]);
    request.initial_resource_versions.values_mut().for_each(|held| held.push_str("@8"));
    let now = at(&[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1")], 7);
    let step = session.on_delta(&request, Some(&now)).unwrap();
    assert_eq!(texts(&step), ["eds +a +b"], "without the removal, which may be of something newer");
    assert!(session.holds_back());
}

#[test]
fn a_version_on_the_wire_says_how_far_its_replica_had_come() {
    let content = version((CDS, "a", "1"));
    for (revision, suffix) in [(None, ""), (Some(0), ""), (Some(7), "@7"), (Some(1_234_567), "@1234567")] {
        let view = view(&OLD);
        let view = revision.map_or(view.clone(), |changed| view.at(Revision { changed, known: 9_999_999 }));
        let step = ads().on_delta(&delta(CDS), Some(&view)).unwrap();
        let mut bytes = Vec::new();
        step.responses[0].encode(&mut bytes);
        assert_eq!(bytes.len(), step.responses[0].encoded_len());
        let response = DeltaDiscoveryResponse::decode(&*bytes).unwrap();
        assert_eq!(response.resources[0].version, format!("{content}{suffix}"));
        assert_eq!(response.encode_to_vec(), bytes, "as prost writes it");
    }
}

#[test]
fn a_revision_that_a_client_makes_up_concerns_its_own_stream_alone() {
    let (mut session, responses) = resumed(&at(&OLD, 7), u64::MAX);
    assert_eq!(said(&responses), ["cds"]);
    assert!(session.holds_back());
    session.on_reached(u64::MAX);
    assert!(!session.holds_back(), "and not for ever");
}

#[test]
fn a_change_between_two_streams_arrives_on_the_next_on_any_replica() {
    let (before, after) = (at(&OLD, 7), at(&NEW, 8));
    let mut first = ads();
    let mut held = std::collections::BTreeMap::new();
    for request in [delta(CDS), subscribe(EDS, &["a"])] {
        let step = first.on_delta(&request, Some(&before)).unwrap();
        for response in step.responses {
            let mut bytes = Vec::new();
            response.encode(&mut bytes);
            for resource in DeltaDiscoveryResponse::decode(&*bytes).unwrap().resources {
                held.insert((response.kind, resource.name), resource.version);
            }
        }
    }
    drop(first);
    let of = |kind| held.iter().filter(move |((of, _), _)| *of == kind);
    let mut second = ads();
    let mut said = Vec::new();
    for (kind, names) in [(CDS, &[][..]), (EDS, &["a"])] {
        let request = DeltaDiscoveryRequest {
            initial_resource_versions: of(kind)
                .map(|((_, name), held)| (name.clone(), held.clone()))
                .collect(),
            ..subscribe(kind, names)
        };
        said.extend(texts(&second.on_delta(&request, Some(&after)).unwrap()));
    }
    assert_eq!(said, ["cds +new", "eds +a"], "and what is gone is removed when nothing refers to it");
}

#[test]
fn state_of_the_world_has_no_revisions() {
    let mut session = Session::new(Variant::Sotw, Scope::Aggregated);
    let mut request = sotw(CDS, &[]);
    request.version_info = format!("{}@9", "0".repeat(32));
    let step = session.on_sotw(&request, Some(&at(&OLD, 7))).unwrap();
    assert_eq!(texts(&step), ["cds +a +old"]);
    assert!(!step.responses[0].version.contains('@'));
}
