//! Delta, as scenarios.

use std::collections::{BTreeSet, VecDeque};

use super::support::{
    ALL, CDS, ECDS, EDS, LDS, RDS, SDS, Spec, ack, changes, delta, nack, resume, subscribe, text, texts,
    unsubscribe, view, view_of_class,
};
use crate::names::EXTERNAL_AUTHORIZATION;
use crate::served_state::Changed;
use crate::session::{
    Event, MAX_NAME_BYTES, MAX_NAMES, ProtocolError, Scope, Session, Step, Variant, Verdict,
};

fn ads() -> Session {
    Session::new(Variant::Delta, Scope::Aggregated)
}

/// Answers every response until no more come, and returns them as text.
fn answer_all(session: &mut Session, step: Step) -> Vec<String> {
    let mut queue = VecDeque::from(step.responses);
    let mut seen = Vec::new();
    while let Some(response) = queue.pop_front() {
        seen.push(text(&response));
        queue.extend(session.on_delta(&ack(&response), None).unwrap().responses);
    }
    seen
}

#[test]
fn an_empty_first_subscription_to_clusters_means_all_of_them() {
    let mut session = ads();
    let step = session.on_delta(&delta(CDS), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds +a +b"]);
    assert_eq!(step.events, [Event::Subscribed { kind: CDS }]);
}

#[test]
fn an_empty_first_subscription_to_endpoints_is_answered_with_none() {
    let step = ads().on_delta(&delta(EDS), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["eds"]);
}

#[test]
fn a_wildcard_subscription_without_resources_is_answered() {
    let mut session = ads();
    let empty = view(&[]);
    assert_eq!(texts(&session.on_delta(&delta(CDS), Some(&empty)).unwrap()), ["cds"]);
    assert_eq!(texts(&session.on_delta(&delta(LDS), Some(&empty)).unwrap()), ["lds"]);
}

#[test]
fn an_unchanged_resume_carries_zero_resources_and_one_response() {
    let now = view(&ALL);
    let mut session = ads();
    let mut all = Vec::new();
    for request in [
        resume(CDS, &[], &ALL[1..3]),
        resume(EDS, &["a", "b"], &ALL[3..5]),
        resume(SDS, &["cert"], &ALL[..1]),
        resume(LDS, &[], &ALL[5..]),
    ] {
        let step = session.on_delta(&request, Some(&now)).unwrap();
        all.extend(answer_all(&mut session, step));
    }
    assert_eq!(all, ["cds"], "one empty response resets Envoy's back-off");
    assert!(session.acknowledged());
}

#[test]
fn a_resume_carries_only_what_differs() {
    let held = [(CDS, "a", "1"), (CDS, "b", "0")];
    let step = ads().on_delta(&resume(CDS, &[], &held), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds +b"]);
}

/// istio#41494: a proxy that reconnects keeps what was removed while it was away.
#[test]
fn names_that_a_resuming_client_holds_beyond_the_view_are_removed() {
    let mut session = ads();
    let held = [(CDS, "a", "1"), (CDS, "b", "1"), (CDS, "gone", "1")];
    let first = session.on_delta(&resume(CDS, &[], &held), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&first), ["cds"], "not before the client has said what else it holds");
    let second = session.on_delta(&ack(&first.responses[0]), None).unwrap();
    assert_eq!(texts(&second), ["cds -gone"]);
    let held = [(EDS, "a", "1"), (EDS, "gone", "1")];
    session.on_delta(&ack(&second.responses[0]), None).unwrap();
    let step = session.on_delta(&resume(EDS, &["a", "gone"], &held), None).unwrap();
    assert_eq!(texts(&step), ["eds -gone"]);
}

/// consul#12174: after a reconnect CDS and LDS were no longer wildcard, so new clusters did not arrive.
#[test]
fn clusters_and_listeners_stay_wildcard_on_every_form_of_resume() {
    let now = view(&ALL);
    for names in [&[][..], &["a"], &["*"], &["*", "a"]] {
        let mut session = ads();
        let step = session.on_delta(&resume(CDS, names, &ALL[1..2]), Some(&now)).unwrap();
        assert_eq!(texts(&step), ["cds +b"], "{names:?}");
        assert!(session.status().types[&CDS].wildcard, "{names:?}");
    }
}

#[test]
fn clusters_subscribed_to_by_name_by_a_new_client_are_only_those() {
    let step = ads().on_delta(&subscribe(CDS, &["b"]), Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds +b"]);
}

/// Envoy would answer 500 on the connections that it drains.
#[test]
fn the_configuration_of_a_filter_is_not_removed_while_it_is_held() {
    let (with, without) = (view(&[(ECDS, "limit", "1")]), view(&[]));
    let mut session = ads();
    let step = session.on_delta(&subscribe(ECDS, &["limit"]), Some(&with)).unwrap();
    assert_eq!(answer_all(&mut session, step), ["ecds +limit"]);
    let step = session.on_view(&without, &changes(&with, &without));
    assert_eq!(texts(&step), [""; 0]);
    assert!(session.acknowledged());
    // What returns is sent in its new form.
    let again = view(&[(ECDS, "limit", "2")]);
    let step = session.on_view(&again, &changes(&without, &again));
    assert_eq!(answer_all(&mut session, step), ["ecds +limit"]);
    // Nor after a broken stream.
    let mut session = ads();
    let request = resume(ECDS, &["limit"], &[(ECDS, "limit", "1")]);
    let step = session.on_delta(&request, Some(&without)).unwrap();
    assert_eq!(answer_all(&mut session, step), ["ecds"]);
    // A name that the client does not hold is answered.
    let step = session.on_delta(&subscribe(ECDS, &["other"]), Some(&without)).unwrap();
    assert_eq!(answer_all(&mut session, step), ["ecds -other"]);
}

/// The filter that asks its server is one that outlasts its removal.
#[test]
fn the_cluster_of_external_authorization_is_not_removed_while_it_is_held() {
    let held = (CDS, EXTERNAL_AUTHORIZATION, "1");
    let (with, without) = (view(&[held, (CDS, "b", "1")]), view(&[]));
    let mut session = ads();
    let step = session.on_delta(&subscribe(CDS, &[]), Some(&with)).unwrap();
    assert_eq!(answer_all(&mut session, step), ["cds +b +external-authorization"]);
    let step = session.on_view(&without, &changes(&with, &without));
    assert_eq!(answer_all(&mut session, step), ["cds -b"]);
    let step = ads().on_delta(&resume(CDS, &[], &[held]), Some(&without)).unwrap();
    assert_eq!(texts(&step), ["cds"]);
    // What returns is sent in its new form.
    let again = view(&[(CDS, EXTERNAL_AUTHORIZATION, "2")]);
    let step = session.on_view(&again, &changes(&without, &again));
    assert_eq!(answer_all(&mut session, step), ["cds +external-authorization"]);
}

/// envoy#9934: a client waits for a name that does not exist until the server answers with a removal.
#[test]
fn an_unknown_name_is_answered_with_a_removal_and_served_when_it_appears() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_delta(&subscribe(EDS, &["a", "z"]), Some(&now)).unwrap();
    assert_eq!(texts(&step), ["eds +a -z"]);
    assert!(answer_all(&mut session, step).len() == 1);
    let mut specs = ALL.to_vec();
    specs.push((EDS, "z", "1"));
    let later = view(&specs);
    assert_eq!(texts(&session.on_view(&later, &changes(&now, &later))), ["eds +z"]);
}

#[test]
fn a_name_subscribed_to_again_is_sent_again_even_if_held() {
    let mut session = ads();
    let step = session.on_delta(&subscribe(EDS, &["a", "b"]), Some(&view(&ALL))).unwrap();
    answer_all(&mut session, step);
    assert_eq!(texts(&session.on_delta(&subscribe(EDS, &["a"]), None).unwrap()), ["eds +a"]);
}

#[test]
fn an_unsubscribed_name_is_not_sent_until_subscribed_to_again() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_delta(&subscribe(EDS, &["a", "b"]), Some(&now)).unwrap();
    answer_all(&mut session, step);
    assert!(session.on_delta(&unsubscribe(EDS, &["a"]), None).unwrap().responses.is_empty());
    let later = view(&[(EDS, "a", "2"), (EDS, "b", "2")]);
    let step = session.on_view(&later, &changes(&now, &later));
    assert_eq!(answer_all(&mut session, step), ["eds +b"]);
    assert_eq!(texts(&session.on_delta(&subscribe(EDS, &["a"]), None).unwrap()), ["eds +a"]);
}

#[test]
fn a_name_unsubscribed_beside_a_wildcard_is_said_again() {
    let mut session = ads();
    let step = session.on_delta(&subscribe(CDS, &["*", "a", "z"]), Some(&view(&ALL))).unwrap();
    assert_eq!(answer_all(&mut session, step), ["cds +a +b -z"]);
    let step = session.on_delta(&unsubscribe(CDS, &["a", "z"]), None).unwrap();
    assert_eq!(answer_all(&mut session, step), ["cds +a -z"]);
}

#[test]
fn dropping_the_wildcard_leaves_what_was_named() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_delta(&subscribe(CDS, &["*", "a"]), Some(&now)).unwrap();
    answer_all(&mut session, step);
    assert!(session.on_delta(&unsubscribe(CDS, &["*"]), None).unwrap().responses.is_empty());
    let later = view(&[(CDS, "a", "2"), (CDS, "b", "2")]);
    assert_eq!(texts(&session.on_view(&later, &changes(&now, &later))), ["cds +a"]);
}

#[test]
fn while_a_response_is_unanswered_changes_coalesce_to_the_latest() {
    let mut session = ads();
    let mut now = view(&[(EDS, "a", "0")]);
    let first = session.on_delta(&subscribe(EDS, &["a"]), Some(&now)).unwrap();
    for content in ["1", "2", "3"] {
        let later = view(&[(EDS, "a", content)]);
        assert!(session.on_view(&later, &changes(&now, &later)).responses.is_empty());
        now = later;
    }
    let second = session.on_delta(&ack(&first.responses[0]), None).unwrap();
    assert_eq!(second.responses[0].resources, [super::support::resource((EDS, "a", "3"))]);
    assert!(session.on_delta(&ack(&second.responses[0]), None).unwrap().responses.is_empty());
}

#[test]
fn a_change_that_is_taken_back_before_the_answer_is_never_sent() {
    let mut session = ads();
    let (one, two) = (view(&[(EDS, "a", "1")]), view(&[(EDS, "a", "2")]));
    let first = session.on_delta(&subscribe(EDS, &["a"]), Some(&one)).unwrap();
    session.on_view(&two, &changes(&one, &two));
    session.on_view(&one, &changes(&two, &one));
    assert!(session.on_delta(&ack(&first.responses[0]), None).unwrap().responses.is_empty());
    assert!(session.acknowledged());
}

#[test]
fn stale_and_foreign_nonces_are_ignored_but_their_subscriptions_count() {
    let mut session = ads();
    let first = session.on_delta(&subscribe(EDS, &["a"]), Some(&view(&ALL))).unwrap();
    for nonce in ["99", "0", "abc", "-1"] {
        let mut request = ack(&first.responses[0]);
        request.response_nonce = nonce.to_owned();
        let step = session.on_delta(&request, None).unwrap();
        assert!(step.events.is_empty() && step.responses.is_empty(), "{nonce}");
    }
    let mut request = subscribe(EDS, &["b"]);
    request.response_nonce = "99".to_owned();
    assert!(session.on_delta(&request, None).unwrap().responses.is_empty(), "one at a time");
    assert_eq!(texts(&session.on_delta(&ack(&first.responses[0]), None).unwrap()), ["eds +b"]);
    // Answered once, it is stale.
    assert!(session.on_delta(&ack(&first.responses[0]), None).unwrap().events.is_empty());
}

#[test]
fn a_first_request_with_the_nonce_of_another_stream_is_a_first_request() {
    let mut request = resume(CDS, &[], &ALL[1..3]);
    request.response_nonce = "1".to_owned();
    request.error_detail = Some(super::support::error("from before"));
    let step = ads().on_delta(&request, Some(&view(&ALL))).unwrap();
    assert_eq!(texts(&step), ["cds"]);
    assert_eq!(step.events, [Event::Subscribed { kind: CDS }]);
}

#[test]
fn nonces_grow_across_types() {
    let mut session = ads();
    let mut nonces = Vec::new();
    for request in [delta(CDS), subscribe(EDS, &["a"]), subscribe(SDS, &["cert"])] {
        let step = session.on_delta(&request, Some(&view(&ALL))).unwrap();
        nonces.extend(step.responses.iter().map(|response| response.nonce.clone()));
    }
    assert_eq!(nonces, ["1", "2", "3"]);
}

/// kuma#2171: a control plane that had not synced answered a reconnect with nothing, and wiped the proxy.
#[test]
fn nothing_is_answered_before_there_is_a_view_and_everything_then() {
    let mut session = ads();
    let held = [(CDS, "a", "1"), (CDS, "b", "0")];
    for request in [resume(CDS, &[], &held), subscribe(EDS, &["a", "z"])] {
        assert!(session.on_delta(&request, None).unwrap().responses.is_empty());
    }
    assert!(!session.has_view());
    // `changed` does not cover what the session has never seen.
    let step = session.on_view(&view(&ALL), &Changed::Names(BTreeSet::new()));
    assert_eq!(texts(&step), ["cds +b", "eds +a -z"]);
}

#[test]
fn a_view_passed_with_a_request_is_ignored_once_there_is_one() {
    let mut session = ads();
    let step = session.on_delta(&subscribe(EDS, &["a"]), Some(&view(&[(EDS, "a", "1")]))).unwrap();
    answer_all(&mut session, step);
    let newer = view(&[(EDS, "a", "2")]);
    assert!(session.on_delta(&subscribe(SDS, &[]), Some(&newer)).unwrap().responses.is_empty());
    assert_eq!(texts(&session.on_view(&newer, &Changed::Everything)), ["eds +a"]);
}

#[test]
fn a_view_of_another_class_is_compared_whole() {
    let mut session = ads();
    let step = session.on_delta(&delta(LDS), Some(&view(&[(LDS, "in", "1"), (LDS, "out", "1")]))).unwrap();
    answer_all(&mut session, step);
    let other = view_of_class("other", &[(LDS, "in", "2")]);
    let step = session.on_view(&other, &Changed::Names(BTreeSet::new()));
    assert_eq!(texts(&step), ["lds +in -out"]);
}

#[test]
fn a_view_that_touches_nothing_the_client_wants_sends_nothing() {
    let mut session = ads();
    let now = view(&ALL);
    let step = session.on_delta(&subscribe(EDS, &["a"]), Some(&now)).unwrap();
    answer_all(&mut session, step);
    let later = view(&[(EDS, "a", "1"), (EDS, "b", "2"), (SDS, "cert", "2")]);
    assert!(session.on_view(&later, &changes(&now, &later)).responses.is_empty());
    assert!(session.acknowledged());
}

#[test]
fn a_rejected_resource_is_not_sent_again_until_it_changes() {
    let mut session = ads();
    let (one, bad, good) =
        (view(&[(LDS, "in", "1")]), view(&[(LDS, "in", "bad")]), view(&[(LDS, "in", "3")]));
    let step = session.on_delta(&delta(LDS), Some(&one)).unwrap();
    answer_all(&mut session, step);
    let sent = session.on_view(&bad, &changes(&one, &bad));
    let step = session.on_delta(&nack(&sent.responses[0], "no such filter"), None).unwrap();
    assert!(step.responses.is_empty());
    assert_eq!(
        step.events,
        [Event::Answered {
            kind: LDS,
            verdict: Verdict::Rejected {
                nonce: 2,
                names: vec!["in".into()],
                message: "no such filter".into(),
                conclusive: true,
            },
        }]
    );
    let status = &session.status().types[&LDS];
    assert_eq!(status.rejected["in"].message, "no such filter");
    assert_eq!(status.acked["in"], super::support::version((LDS, "in", "1")), "what was good stays");
    assert!(session.on_view(&bad, &Changed::Everything).responses.is_empty(), "not in a loop");
    let step = session.on_view(&good, &changes(&bad, &good));
    assert_eq!(answer_all(&mut session, step), ["lds +in"]);
    assert!(session.status().types[&LDS].rejected.is_empty());
}

#[test]
fn a_rejected_change_that_is_taken_back_needs_no_message() {
    let mut session = ads();
    let (one, bad) = (view(&[(LDS, "in", "1")]), view(&[(LDS, "in", "bad")]));
    let step = session.on_delta(&delta(LDS), Some(&one)).unwrap();
    answer_all(&mut session, step);
    let sent = session.on_view(&bad, &changes(&one, &bad));
    session.on_delta(&nack(&sent.responses[0], "no"), None).unwrap();
    assert!(session.on_view(&one, &changes(&bad, &one)).responses.is_empty());
    assert!(session.status().types[&LDS].rejected.is_empty());
}

#[test]
fn one_bad_resource_among_many_is_found_by_halving_and_the_others_arrive() {
    let names: Vec<String> = (0..100).map(|i| format!("l{i:03}")).collect();
    let specs: Vec<Spec<'_>> = names.iter().map(|name| (LDS, name.as_str(), "1")).collect();
    let mut session = ads();
    let mut queue = session.on_delta(&delta(LDS), Some(&view(&specs))).unwrap().responses;
    let mut count = 0;
    while let Some(response) = queue.pop() {
        assert!(queue.is_empty(), "one at a time");
        count += 1;
        let bad = response.resources.iter().any(|resource| &*resource.name == "l042");
        let answer = if bad { nack(&response, "bad") } else { ack(&response) };
        queue = session.on_delta(&answer, None).unwrap().responses;
    }
    let status = &session.status().types[&LDS];
    assert_eq!(status.acked.len(), 99);
    assert_eq!(status.rejected.keys().collect::<Vec<_>>(), ["l042"]);
    assert!(count <= 15, "{count} responses");
    assert!(session.acknowledged());
}

#[test]
fn a_rejection_of_everything_ends() {
    let specs = [(LDS, "a", "1"), (LDS, "b", "1"), (LDS, "c", "1"), (LDS, "d", "1")];
    let mut session = ads();
    let mut queue = session.on_delta(&delta(LDS), Some(&view(&specs))).unwrap().responses;
    let mut count = 0;
    while let Some(response) = queue.pop() {
        count += 1;
        assert!(count <= 2 * specs.len());
        queue = session.on_delta(&nack(&response, "never"), None).unwrap().responses;
    }
    assert_eq!(session.status().types[&LDS].rejected.len(), 4);
    assert!(session.status().types[&LDS].acked.is_empty());
}

#[test]
fn a_rejected_removal_is_sent_alone_once() {
    let mut session = ads();
    let (old, new) = (view(&[(LDS, "a", "1"), (LDS, "b", "1")]), view(&[(LDS, "a", "2")]));
    let step = session.on_delta(&delta(LDS), Some(&old)).unwrap();
    answer_all(&mut session, step);
    let mut step = session.on_view(&new, &changes(&old, &new));
    let mut seen = Vec::new();
    while let Some(response) = step.responses.pop() {
        seen.push(text(&response));
        step = session.on_delta(&nack(&response, "never"), None).unwrap();
    }
    assert_eq!(seen, ["lds +a -b", "lds +a", "lds -b"]);
}

#[test]
fn a_long_error_message_is_cut_at_a_character() {
    let mut session = ads();
    let step = session.on_delta(&delta(LDS), Some(&view(&[(LDS, "in", "1")]))).unwrap();
    let step = session.on_delta(&nack(&step.responses[0], &"ä".repeat(4000)), None).unwrap();
    let [Event::Answered { verdict: Verdict::Rejected { message, .. }, .. }] = &step.events[..] else {
        panic!("{:?}", step.events)
    };
    assert_eq!(&**message, "ä".repeat(512));
}

#[test]
fn unknown_types_are_reported_once_and_not_answered() {
    let mut session = ads();
    let mut request = delta(CDS);
    request.type_url = "type.googleapis.com/envoy.service.runtime.v3.Runtime".to_owned();
    let step = session.on_delta(&request, Some(&view(&ALL))).unwrap();
    assert_eq!(step.events, [Event::UnknownType { url: request.type_url.clone() }]);
    assert!(step.responses.is_empty());
    assert!(session.on_delta(&request, None).unwrap().events.is_empty());
    for i in 0..100 {
        request.type_url = format!("t{i}");
        session.on_delta(&request, None).unwrap();
    }
    request.type_url = "another".to_owned();
    assert!(session.on_delta(&request, None).unwrap().events.is_empty(), "bounded");
}

#[test]
fn requests_beyond_their_bounds_end_the_stream() {
    let mut session = ads();
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let error = session.on_delta(&subscribe(EDS, &[&long]), None).unwrap_err();
    assert_eq!(error, ProtocolError::NameTooLong { kind: EDS, length: MAX_NAME_BYTES + 1 });
    let mut request = delta(EDS);
    request.resource_names_subscribe = (0..=MAX_NAMES).map(|i| i.to_string()).collect();
    let error = ads().on_delta(&request, None).unwrap_err();
    assert_eq!(error, ProtocolError::TooManyNames { kind: EDS, count: MAX_NAMES + 1 });
    request.resource_names_subscribe.pop();
    let mut session = ads();
    session.on_delta(&request, None).unwrap();
    let error = session.on_delta(&subscribe(EDS, &["one more"]), None).unwrap_err();
    assert_eq!(error.to_string(), "eds names 50001 resources, more than the 50000 allowed");
}

#[test]
fn a_request_of_the_other_variant_ends_the_stream() {
    let error = ads().on_sotw(&super::support::sotw(CDS, &[]), None).unwrap_err();
    assert_eq!(error, ProtocolError::WrongVariant { expected: Variant::Delta });
}

#[test]
fn a_stream_for_one_type_takes_no_other_and_needs_no_type_url() {
    let mut session = Session::new(Variant::Delta, Scope::Only(EDS));
    let mut request = subscribe(EDS, &["a"]);
    request.type_url = String::new();
    assert_eq!(texts(&session.on_delta(&request, Some(&view(&ALL))).unwrap()), ["eds +a"]);
    let error = session.on_delta(&delta(RDS), None).unwrap_err();
    assert_eq!(error, ProtocolError::WrongType { url: RDS.url().to_owned(), expected: EDS });
}

#[test]
fn the_status_reads_back_from_json() {
    let mut session = ads();
    let step = session.on_delta(&delta(CDS), Some(&view(&ALL))).unwrap();
    session.on_delta(&ack(&step.responses[0]), None).unwrap();
    session.on_delta(&subscribe(EDS, &["b", "z"]), None).unwrap();
    let status = session.status();
    let endpoints = &status.types[&EDS];
    assert!(endpoints.in_flight && !endpoints.wildcard && endpoints.acked.is_empty());
    assert_eq!(endpoints.subscribed, ["b", "z"]);
    assert_eq!(endpoints.sent.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(status.types[&CDS].acked.len(), 2);
    let json = serde_json::to_string(&status).unwrap();
    assert_eq!(serde_json::from_str::<crate::session::SessionStatus>(&json).unwrap(), status);
}
