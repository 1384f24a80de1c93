//! A replica that lags behind another one, and a proxy that comes from there.

use super::support::{
    CDS, EDS, LDS, RDS, SDS, Spec, ack, changes, delta, resume, sotw, subscribe, texts, version, view,
};
use crate::revision::{Revision, Versions};
use crate::served_state::View;
use crate::session::{Response, Scope, Session, Variant};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use prost::Message;
use smc_types::object_ref::Kind;

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

/// Versions of services, routes and pods; 0 for none.
type Of = [u64; 3];

fn ads() -> Session {
    Session::new(Variant::Delta, Scope::Aggregated)
}

fn versions([services, splits, pods]: Of) -> Versions {
    [(Kind::Service, services), (Kind::TrafficSplit, splits), (Kind::Pod, pods)].into_iter().collect()
}

/// A view of a source that has come this far and knows of no later change.
fn at(specs: &[Spec<'_>], of: Of) -> View {
    view(specs).at(Revision { changed: versions(of), known: versions(of), copy: None })
}

/// What stands behind the hash in what a replica sends that has come this far.
fn suffix(of: Of) -> String {
    Revision { changed: versions(of), known: Versions::default(), copy: None }.suffix()
}

/// The first requests of an Envoy that holds [`NEW`] from a replica whose versions had this suffix.
fn requests(suffix: &str) -> Vec<DeltaDiscoveryRequest> {
    let of = |kind, names: &[&str]| {
        let held: Vec<_> = NEW.into_iter().filter(|spec| spec.0 == kind).collect();
        let mut request = resume(kind, names, &held);
        request.initial_resource_versions.values_mut().for_each(|held| held.push_str(suffix));
        request
    };
    vec![of(CDS, &[]), of(EDS, &["a", "new"]), of(LDS, &[]), of(RDS, &["r"]), of(SDS, &["cert"])]
}

/// The session of an Envoy that sends these requests and ACKs what it is sent, which is returned as well.
fn answered(view: &View, requests: &[DeltaDiscoveryRequest]) -> (Session, Vec<Response>) {
    let mut session = ads();
    let mut responses = Vec::new();
    for request in requests {
        responses.extend(session.on_delta(request, Some(view)).unwrap().responses);
    }
    // Answers to what has been answered change nothing more.
    for response in responses.clone() {
        responses.extend(session.on_delta(&ack(&response), None).unwrap().responses);
    }
    (session, responses)
}

/// The session of an Envoy that holds [`NEW`] from a replica that had come this far, and what it is sent.
fn resumed(view: &View, of: Of) -> (Session, Vec<Response>) {
    answered(view, &requests(&suffix(of)))
}

fn said(responses: &[Response]) -> Vec<String> {
    responses.iter().map(super::support::text).collect()
}

#[test]
fn a_replica_that_lags_behind_takes_nothing_back() {
    let (session, responses) = resumed(&at(&OLD, [7, 7, 7]), [8, 8, 8]);
    assert_eq!(said(&responses), ["cds"], "one empty response, which resets the client's back-off");
    assert!(session.holds_back());
}

/// With one version for all kinds, that of the later pod would count.
#[test]
fn a_replica_that_lags_with_one_kind_takes_nothing_back() {
    for behind in [[7, 9, 99], [99, 7, 99], [99, 99, 7], [0, 99, 99]] {
        let (mut session, responses) = resumed(&at(&OLD, behind), [8, 9, 9]);
        assert_eq!(said(&responses), ["cds"], "{behind:?}");
        assert!(session.holds_back(), "{behind:?}");
        session.on_reached(&versions([8, 9, 9]));
        assert!(!session.holds_back(), "{behind:?}");
    }
}

#[test]
fn a_replica_that_has_come_as_far_serves_what_it_has() {
    for of in [[8, 9, 3], [8, 9, 4], [9, 9, 3], [99, 99, 99]] {
        let (session, responses) = resumed(&at(&OLD, of), [8, 9, 3]);
        let said = said(&responses);
        assert_eq!(said, ["cds +old", "eds +a", "rds +r"], "removals follow when nothing refers to them");
        assert!(!session.holds_back());
    }
}

/// A kind that never changed is compared with nothing, however far the others are.
#[test]
fn a_kind_that_the_client_has_no_version_of_holds_nothing_back() {
    let (session, responses) = resumed(&at(&OLD, [8, 0, 0]), [8, 0, 0]);
    assert!(said(&responses).contains(&"cds +old".to_owned()), "{:?}", said(&responses));
    assert!(!session.holds_back());
}

/// What counts is what is known. A replica whose latest change is an old one may know that it is the latest.
#[test]
fn a_replica_without_later_changes_has_come_as_far_as_it_knows() {
    for (known, behind) in [([8, 9, 9], false), ([8, 8, 9], true)] {
        let view =
            view(&OLD).at(Revision { changed: versions([1, 1, 1]), known: versions(known), copy: None });
        assert_eq!(resumed(&view, [8, 9, 9]).0.holds_back(), behind, "{known:?}");
        let view = view.at(Revision { changed: versions([9, 9, 9]), known: versions(known), copy: None });
        assert_eq!(resumed(&view, [8, 9, 9]).0.holds_back(), behind, "it may have missed a change before");
    }
}

/// Two replicas sent what the client holds. The one was ahead with services, the other with pods.
#[test]
fn the_newest_of_each_kind_counts_whatever_resource_says_it() {
    let mut requests = requests("");
    for (request, of) in requests.iter_mut().zip([[8, 1, 1], [2, 2, 8], [3, 3, 3], [1, 8, 1], [0, 0, 0]]) {
        request.initial_resource_versions.values_mut().for_each(|held| held.push_str(&suffix(of)));
    }
    for (of, behind) in [([7, 9, 9], true), ([9, 7, 9], true), ([9, 9, 7], true), ([8, 8, 8], false)] {
        let (session, _) = answered(&at(&OLD, of), &requests);
        assert_eq!(session.holds_back(), behind, "{of:?}");
    }
}

#[test]
fn what_was_held_back_goes_out_when_the_replica_has_caught_up() {
    let (old, new) = (at(&OLD, [7, 9, 9]), at(&NEW, [8, 9, 9]));
    let (mut session, _) = resumed(&old, [8, 9, 9]);
    let step = session.on_view(&new, &changes(&old, &new));
    assert!(step.responses.is_empty(), "the client had it all along: {:?}", texts(&step));
    assert!(!session.holds_back() && session.acknowledged());

    // Or the newer state has nothing new for this proxy.
    let (mut session, _) = resumed(&old, [8, 9, 9]);
    assert!(session.on_reached(&versions([7, 99, 99])).responses.is_empty());
    let said = texts(&session.on_reached(&versions([8, 0, 0])));
    assert!(said.contains(&"cds +old".to_owned()), "{said:?}");
    assert!(!session.holds_back());
}

/// The other replica was never right: it watched an API server that was put back to an older state since.
#[test]
fn a_wait_that_is_given_up_is_over_for_the_whole_stream() {
    let old = at(&OLD, [7, 9, 9]);
    let of_types = requests(&suffix([8, 9, 9]));
    let (mut session, _) = answered(&old, &of_types[..2]);
    assert!(session.holds_back());
    assert_eq!(texts(&session.give_up()), ["cds +old -new", "eds +a"]);
    for request in &of_types[2..] {
        session.on_delta(request, None).unwrap();
    }
    session.on_reached(&versions([1, 1, 1]));
    session.on_view(&at(&OLD[..5], [7, 9, 10]), &changes(&old, &view(&OLD[..5])));
    assert!(!session.holds_back());
}

#[test]
fn a_view_that_is_still_behind_changes_nothing() {
    let (old, next) = (at(&OLD, [6, 9, 9]), at(&OLD[..5], [7, 10, 10]));
    let (mut session, _) = resumed(&old, [8, 9, 9]);
    assert!(session.on_view(&next, &changes(&old, &next)).responses.is_empty());
    assert!(session.holds_back());
}

#[test]
fn equal_content_is_equal_whatever_its_revision() {
    for of in [[1, 0, 0], [7, 7, 7], [8, 1, 99]] {
        let (session, responses) = resumed(&at(&NEW, [7, 7, 7]), of);
        assert_eq!(said(&responses), ["cds"], "{of:?}");
        assert!(!session.holds_back(), "nothing differs");
    }
}

#[test]
fn a_source_without_revisions_holds_nothing_back() {
    let (session, responses) = resumed(&view(&OLD), [8, 8, 8]);
    assert!(said(&responses).contains(&"cds +old".to_owned()), "{:?}", said(&responses));
    assert!(!session.holds_back());
}

/// A replica of the version before wrote one number for all kinds. What it sent is known by its hash, and it
/// protects nothing. A letter of a later version protects nothing either, and the known ones beside it do.
#[test]
fn replicas_of_other_versions_of_smc_get_along() {
    let view = |specs: &[Spec<'_>]| at(specs, [7, 7, 7]);
    for (suffix, behind) in
        [("@8", false), ("@9999999", false), ("@V8", false), ("@S7V1", false), ("@S8V1", true)]
    {
        let (session, responses) = answered(&view(&NEW), &requests(suffix));
        assert_eq!(said(&responses), ["cds"], "{suffix}: nothing is sent again");
        assert!(!session.holds_back());
        let (session, responses) = answered(&view(&OLD), &requests(suffix));
        assert_eq!(session.holds_back(), behind, "{suffix}");
        assert_eq!(responses.len() == 1, behind, "{suffix}: {:?}", said(&responses));
    }
}

#[test]
fn a_version_that_smc_did_not_write_is_of_unknown_content() {
    let (session, responses) = answered(&at(&NEW, [7, 7, 7]), &requests("@S9P"));
    let expected = ["cds +a +new", "eds +a +new", "lds +in", "sds +cert", "rds +r"];
    let said = said(&responses);
    assert!(expected.iter().all(|expected| said.contains(&(*expected).to_owned())), "{said:?}");
    assert!(!session.holds_back());
}

/// Secrets come from the ledger and not from a source.
#[test]
fn secrets_go_out_all_the_same() {
    let mut renewed = OLD;
    renewed[0] = (SDS, "cert", "2");
    let (_, responses) = resumed(&at(&renewed, [7, 9, 9]), [8, 9, 9]);
    assert_eq!(said(&responses), ["cds", "sds +cert"]);
}

/// The cluster may be warming because of it, and it takes nothing back.
#[test]
fn endpoints_that_a_warming_cluster_waits_for_go_out_all_the_same() {
    let mut session = ads();
    let mut request = resume(EDS, &["a", "b", "gone"], &[(EDS, "a", "1"), (EDS, "gone", "1")]);
    request.initial_resource_versions.values_mut().for_each(|held| held.push_str(&suffix([0, 0, 8])));
    let now = at(&[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1")], [9, 9, 7]);
    let step = session.on_delta(&request, Some(&now)).unwrap();
    assert_eq!(texts(&step), ["eds +a +b"], "without the removal, which may be of something newer");
    assert!(session.holds_back());
}

#[test]
fn a_version_on_the_wire_says_how_far_its_replica_had_come() {
    let content = version((CDS, "a", "1"));
    let changed = [
        (None, ""),
        (Some([0, 0, 0]), ""),
        (Some([7, 0, 0]), "@S7"),
        (Some([1_234_567, 1_234_570, 36]), "@P10SqgkjD3"),
        (Some([u64::MAX, 0, 0]), "@S3w5e11264sgsf"),
    ];
    for (changed, suffix) in changed {
        let view = view(&OLD);
        let known = versions([9_999_999; 3]);
        let view = changed.map_or(view.clone(), |changed| {
            view.at(Revision { changed: versions(changed), known, copy: None })
        });
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
    let (mut session, responses) = resumed(&at(&OLD, [7, 7, 7]), [u64::MAX; 3]);
    assert_eq!(said(&responses), ["cds"]);
    assert!(session.holds_back());
    session.give_up();
    assert!(!session.holds_back(), "and not for ever");
}

#[test]
fn a_change_between_two_streams_arrives_on_the_next_on_any_replica() {
    let (before, after) = (at(&OLD, [7, 9, 9]), at(&NEW, [8, 9, 9]));
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
    request.version_info = format!("{}{}", "0".repeat(32), suffix([9, 9, 9]));
    let step = session.on_sotw(&request, Some(&at(&OLD, [7, 7, 7]))).unwrap();
    assert_eq!(texts(&step), ["cds +a +old"]);
    assert!(!step.responses[0].version.contains('@'));
}
