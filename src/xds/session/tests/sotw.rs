//! State of the World, as scenarios.

use std::collections::VecDeque;

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;

use super::support::{
    ALL, CDS, EDS, LDS, Spec, changes, resource, sotw, sotw_ack, sotw_nack, text, texts, view,
};
use crate::resource::{ResourceType, Version};
use crate::served_state::Changed;
use crate::session::{Event, Scope, Session, Step, Variant, Verdict};

fn ads() -> Session {
    Session::new(Variant::Sotw, Scope::Aggregated)
}

fn set_version(specs: &[Spec<'_>]) -> String {
    let resources: Vec<_> = specs.iter().map(|&spec| resource(spec)).collect();
    Version::of_set(resources.iter().map(|r| (&*r.name, r.version))).to_string()
}

/// The first request of a stream whose client last ACKed `version`.
fn resume(kind: ResourceType, names: &[&str], version: String) -> DiscoveryRequest {
    DiscoveryRequest { version_info: version, ..sotw(kind, names) }
}

/// Answers every response, with these names for EDS, and returns them as text.
fn answer_all(session: &mut Session, step: Step, endpoints: &[&str]) -> Vec<String> {
    let mut queue = VecDeque::from(step.responses);
    let mut seen = Vec::new();
    while let Some(response) = queue.pop_front() {
        seen.push(text(&response));
        let names = if response.kind == EDS { endpoints } else { &[] };
        queue.extend(session.on_sotw(&sotw_ack(&response, names), None).unwrap().responses);
    }
    seen
}

#[test]
fn a_wildcard_response_holds_everything_with_the_version_of_the_set() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_sotw(&sotw(CDS, &[]), Some(&now)).unwrap();
    assert_eq!(texts(&step), ["cds +a +b"]);
    assert_eq!(step.responses[0].version, set_version(&ALL[1..3]));
    answer_all(&mut session, step, &[]);
    let later = view(&[(CDS, "a", "1"), (CDS, "b", "2"), (CDS, "c", "1")]);
    let step = session.on_view(&later, &changes(&now, &later));
    assert_eq!(texts(&step), ["cds +a +b +c"]);
}

#[test]
fn a_named_response_holds_what_exists_of_what_was_asked_for() {
    let step = ads().on_sotw(&sotw(EDS, &["b", "z"]), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["eds +b"]);
}

#[test]
fn an_unchanged_resume_of_clusters_and_listeners_carries_nothing() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_sotw(&resume(CDS, &[], set_version(&ALL[1..3])), Some(&now)).unwrap();
    assert!(step.responses.is_empty());
    let step = session.on_sotw(&resume(LDS, &[], set_version(&ALL[5..])), Some(&now)).unwrap();
    assert!(step.responses.is_empty());
    assert_eq!(session.status().types[&CDS].acked.len(), 2, "what the client holds is known all the same");
}

#[test]
fn a_resume_of_named_types_is_answered_also_at_the_same_version() {
    let request = resume(EDS, &["a", "b"], set_version(&ALL[3..5]));
    assert_eq!(texts(&ads().on_sotw(&request, Some(&view(&ALL))).unwrap()), ["eds +a +b"]);
}

#[test]
fn a_resume_at_another_version_carries_the_set() {
    for version in [set_version(&ALL[1..2]), "17".to_owned()] {
        let step = ads().on_sotw(&resume(CDS, &[], version), Some(&view(&ALL))).unwrap();
        assert_eq!(texts(&step), ["cds +a +b"]);
    }
}

#[test]
fn a_separate_cluster_stream_is_answered_on_resume() {
    let mut session = Session::new(Variant::Sotw, Scope::Only(CDS));
    let step = session.on_sotw(&resume(CDS, &[], set_version(&ALL[1..3])), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds +a +b"]);
}

#[test]
fn a_wildcard_subscription_without_resources_is_answered() {
    assert_eq!(texts(&ads().on_sotw(&sotw(CDS, &[]), Some(&view(&[]))).unwrap()), ["cds"]);
}

/// kuma#2171: a control plane that had not synced answered a reconnect with nothing, and wiped the proxy.
#[test]
fn nothing_is_answered_before_there_is_a_view() {
    let mut session = ads();
    let version = set_version(&ALL[1..3]);
    assert!(session.on_sotw(&resume(CDS, &[], version), None).unwrap().responses.is_empty());
    assert!(session.on_sotw(&sotw(EDS, &["a"]), None).unwrap().responses.is_empty());
    assert_eq!(texts(&session.on_view(&view(&ALL), &Changed::Everything)), ["eds +a"]);
}

#[test]
fn names_added_are_answered_and_names_dropped_are_not() {
    let mut session = ads();
    let step = session.on_sotw(&sotw(EDS, &["a"]), Some(&view(&ALL))).unwrap();
    let first = step.responses[0].clone();
    let step = session.on_sotw(&sotw_ack(&first, &["a", "b"]), None).unwrap();
    assert_eq!(texts(&step), ["eds +a +b"]);
    let second = step.responses[0].clone();
    assert!(session.on_sotw(&sotw_ack(&second, &["b"]), None).unwrap().responses.is_empty());
    assert!(session.acknowledged());
    assert_eq!(session.status().types[&EDS].acked.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_name_that_does_not_exist_is_answered_although_the_version_stays() {
    let mut session = ads();
    let step = session.on_sotw(&sotw(EDS, &["a"]), Some(&view(&ALL))).unwrap();
    let step = session.on_sotw(&sotw_ack(&step.responses[0], &["a", "z"]), None).unwrap();
    assert_eq!(texts(&step), ["eds +a"]);
}

#[test]
fn a_repeated_request_is_answered_since_a_cluster_may_be_warming() {
    let mut session = ads();
    let step = session.on_sotw(&sotw(EDS, &["a"]), Some(&view(&ALL))).unwrap();
    let request = sotw_ack(&step.responses[0], &["a"]);
    assert!(session.on_sotw(&request, None).unwrap().responses.is_empty(), "the ACK");
    let step = session.on_sotw(&request, None).unwrap();
    assert_eq!(texts(&step), ["eds +a"]);
    assert_eq!(answer_all(&mut session, step, &["a"]).len(), 1, "no loop");
}

#[test]
fn requests_with_stale_nonces_are_ignored() {
    let mut session = ads();
    let now = view(&ALL);
    let first = session.on_sotw(&sotw(EDS, &["a"]), Some(&now)).unwrap().responses[0].clone();
    session.on_sotw(&sotw_ack(&first, &["a"]), None).unwrap();
    let later = view(&[(EDS, "a", "2"), (EDS, "b", "1")]);
    let second = session.on_view(&later, &changes(&now, &later)).responses[0].clone();
    let step = session.on_sotw(&sotw_nack(&first, &["a", "b"], "late"), None).unwrap();
    assert!(step.events.is_empty() && step.responses.is_empty());
    let step = session.on_sotw(&sotw_ack(&second, &["a", "b"]), None).unwrap();
    assert_eq!(texts(&step), ["eds +a +b"]);
}

#[test]
fn a_rejected_set_is_held_back_until_a_resource_in_it_changes() {
    let mut session = ads();
    let (one, bad) = (view(&[(LDS, "a", "1"), (LDS, "b", "1")]), view(&[(LDS, "a", "1"), (LDS, "b", "bad")]));
    let step = session.on_sotw(&sotw(LDS, &[]), Some(&one)).unwrap();
    answer_all(&mut session, step, &[]);
    let sent = session.on_view(&bad, &changes(&one, &bad)).responses[0].clone();
    let step = session.on_sotw(&sotw_nack(&sent, &[], "no"), None).unwrap();
    let [Event::Answered { verdict: Verdict::Rejected { names, conclusive: true, .. }, .. }] =
        &step.events[..]
    else {
        panic!("{:?}", step.events)
    };
    assert_eq!(names, &["b".into()], "what changed is to blame");
    assert!(session.on_view(&bad, &Changed::Everything).responses.is_empty());
    let good = view(&[(LDS, "a", "1"), (LDS, "b", "3")]);
    let step = session.on_view(&good, &changes(&bad, &good));
    assert_eq!(answer_all(&mut session, step, &[]), ["lds +a +b"]);
    assert!(session.status().types[&LDS].rejected.is_empty());
}

#[test]
fn while_a_response_is_unanswered_changes_coalesce_to_the_latest() {
    let mut session = ads();
    let mut now = view(&[(EDS, "a", "0")]);
    let first = session.on_sotw(&sotw(EDS, &["a"]), Some(&now)).unwrap();
    for content in ["1", "2", "3"] {
        let later = view(&[(EDS, "a", content)]);
        assert!(session.on_view(&later, &changes(&now, &later)).responses.is_empty());
        now = later;
    }
    let second = session.on_sotw(&sotw_ack(&first.responses[0], &["a"]), None).unwrap();
    assert_eq!(second.responses[0].resources, [resource((EDS, "a", "3"))]);
}

#[test]
fn a_changed_cluster_is_followed_by_its_endpoints() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_sotw(&sotw(CDS, &[]), Some(&now)).unwrap();
    answer_all(&mut session, step, &[]);
    let step = session.on_sotw(&sotw(EDS, &["a", "b"]), None).unwrap();
    answer_all(&mut session, step, &["a", "b"]);
    let later = view(&[(CDS, "a", "2"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1"), (LDS, "in", "2")]);
    let step = session.on_view(&later, &changes(&now, &later));
    assert_eq!(texts(&step), ["cds +a +b", "eds +a +b"]);
}

#[test]
fn a_star_is_a_wildcard_and_names_after_a_legacy_wildcard_end_it() {
    let mut session = ads();
    let step = session.on_sotw(&sotw(CDS, &["*"]), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds +a +b"]);
    // The name is newly requested.
    let step = session.on_sotw(&sotw_ack(&step.responses[0], &["a"]), None).unwrap();
    assert_eq!(texts(&step), ["cds +a"]);
    assert!(!session.status().types[&CDS].wildcard);
    let mut session = ads();
    let step = session.on_sotw(&sotw(CDS, &["a"]), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds +a"]);
    let step = session.on_sotw(&sotw_ack(&step.responses[0], &[]), None).unwrap();
    assert!(step.responses.is_empty(), "no names after some means none, not all");
    assert!(!session.status().types[&CDS].wildcard);
}
