//! Make before break on the aggregated stream, as scenarios.

use super::support::{
    CDS, EDS, LDS, RDS, SDS, Spec, ack, changes, delta, nack, resume, sotw, sotw_ack, subscribe, text, texts,
    unsubscribe, view,
};
use crate::served_state::View;
use crate::session::{Response, Scope, Session, Step, Variant};

const OLD: [Spec<'_>; 4] = [(CDS, "old", "1"), (EDS, "old", "1"), (LDS, "out", "1"), (RDS, "r", "old")];
const NEW: [Spec<'_>; 4] = [(CDS, "new", "1"), (EDS, "new", "1"), (LDS, "out", "1"), (RDS, "r", "new")];

/// A client that has loaded `specs` and answered everything.
fn loaded(specs: &[Spec<'_>]) -> (Session, View) {
    let now = view(specs);
    let mut session = Session::new(Variant::Delta, Scope::Aggregated);
    let names = |kind| specs.iter().filter(|spec| spec.0 == kind).map(|spec| spec.1).collect::<Vec<_>>();
    for request in [
        delta(CDS),
        subscribe(EDS, &names(EDS)),
        subscribe(SDS, &names(SDS)),
        delta(LDS),
        subscribe(RDS, &names(RDS)),
    ] {
        let step = session.on_delta(&request, Some(&now)).unwrap();
        for response in &step.responses {
            session.on_delta(&ack(response), None).unwrap();
        }
    }
    assert!(session.acknowledged());
    (session, now)
}

fn push(session: &mut Session, now: &View, specs: &[Spec<'_>]) -> Step {
    let later = view(specs);
    session.on_view(&later, &changes(now, &later))
}

fn answer(session: &mut Session, response: &Response) -> Step {
    session.on_delta(&ack(response), None).unwrap()
}

#[test]
fn a_route_moves_to_a_warm_cluster_and_the_old_one_goes_last() {
    let (mut session, now) = loaded(&OLD);
    let step = push(&mut session, &now, &NEW);
    assert_eq!(texts(&step), ["cds +new"]);
    let cluster = &step.responses[0];
    // Envoy asks for the endpoints first and answers CDS when they have arrived.
    let step = session.on_delta(&subscribe(EDS, &["new"]), None).unwrap();
    assert_eq!(texts(&step), ["eds +new"]);
    assert!(answer(&mut session, &step.responses[0]).responses.is_empty());
    let step = answer(&mut session, cluster);
    assert_eq!(texts(&step), ["rds +r"]);
    let step = answer(&mut session, &step.responses[0]);
    assert_eq!(texts(&step), ["cds -old"]);
    assert!(session.on_delta(&unsubscribe(EDS, &["old"]), None).unwrap().responses.is_empty());
    assert!(answer(&mut session, &step.responses[0]).responses.is_empty());
    assert!(session.acknowledged());
}

#[test]
fn endpoints_of_a_removed_cluster_are_removed_after_it() {
    let (mut session, now) = loaded(&OLD);
    let step = push(&mut session, &now, &[(LDS, "out", "1"), (RDS, "r", "none")]);
    assert_eq!(texts(&step), ["rds +r"]);
    let step = answer(&mut session, &step.responses[0]);
    assert_eq!(texts(&step), ["cds -old"]);
    assert_eq!(texts(&answer(&mut session, &step.responses[0])), ["eds -old"]);
}

#[test]
fn a_listener_is_removed_first_its_route_and_cluster_after_the_answer() {
    let (mut session, now) = loaded(&OLD);
    let step = push(&mut session, &now, &[]);
    assert_eq!(texts(&step), ["lds -out"]);
    let step = answer(&mut session, &step.responses[0]);
    assert_eq!(texts(&step), ["rds -r"]);
    assert_eq!(texts(&answer(&mut session, &step.responses[0])), ["cds -old"]);
}

/// Envoy holds back the answer to CDS while a cluster warms, and the cluster warms on EDS: a server
/// that waits for that answer before it sends EDS waits forever (kgateway#14703).
#[test]
fn endpoints_follow_a_changed_cluster_at_once_even_if_held() {
    let (mut session, now) = loaded(&OLD);
    let mut specs = OLD;
    specs[0].2 = "2";
    let step = push(&mut session, &now, &specs);
    assert_eq!(texts(&step), ["cds +old", "eds +old"]);
}

#[test]
fn endpoints_follow_a_changed_cluster_after_an_unanswered_response() {
    let (mut session, now) = loaded(&OLD);
    let mut specs = OLD;
    specs[1].2 = "2";
    let endpoints = push(&mut session, &now, &specs);
    let now = view(&specs);
    specs[0].2 = "2";
    let step = push(&mut session, &now, &specs);
    assert_eq!(texts(&step), ["cds +old"]);
    assert_eq!(texts(&answer(&mut session, &endpoints.responses[0])), ["eds +old"]);
}

#[test]
fn endpoints_follow_a_cluster_that_changed_while_the_client_was_away() {
    let now = view(&[(CDS, "a", "2"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1")]);
    let mut session = Session::new(Variant::Delta, Scope::Aggregated);
    let held = [(CDS, "a", "1"), (CDS, "b", "1")];
    assert_eq!(texts(&session.on_delta(&resume(CDS, &[], &held), Some(&now)).unwrap()), ["cds +a"]);
    let held = [(EDS, "a", "1"), (EDS, "b", "1")];
    let step = session.on_delta(&resume(EDS, &["a", "b"], &held), None).unwrap();
    assert_eq!(texts(&step), ["eds +a"], "b is not warming");
}

#[test]
fn endpoints_that_vanish_while_their_cluster_warms_are_removed_at_once() {
    let (mut session, now) = loaded(&OLD);
    let mut specs = OLD;
    specs[1].2 = "2";
    let endpoints = push(&mut session, &now, &specs);
    let now = view(&specs);
    specs[0].2 = "2";
    push(&mut session, &now, &specs);
    // The cluster is unanswered, its endpoints are still to follow, and now both are gone.
    let now = view(&specs);
    push(&mut session, &now, &specs[2..]);
    assert_eq!(texts(&answer(&mut session, &endpoints.responses[0])), ["eds -old"]);
}

#[test]
fn a_listener_does_not_wait_for_clusters_that_merely_change() {
    let (mut session, now) = loaded(&OLD);
    let step = push(&mut session, &now, &[(CDS, "old", "2"), OLD[1], (LDS, "out", "2"), OLD[3]]);
    assert_eq!(texts(&step), ["cds +old", "eds +old", "lds +out"]);
}

#[test]
fn a_route_waits_for_a_new_cluster_that_has_not_been_sent_yet() {
    let (mut session, now) = loaded(&OLD);
    let changed = [(CDS, "old", "2"), OLD[1], OLD[2], OLD[3]];
    let step = push(&mut session, &now, &changed);
    let cluster = step.responses[0].clone();
    answer(&mut session, &step.responses[1]);
    let now = view(&changed);
    assert!(push(&mut session, &now, &NEW).responses.is_empty(), "CDS is unanswered");
    let step = answer(&mut session, &cluster);
    assert_eq!(texts(&step), ["cds +new"]);
    assert_eq!(texts(&answer(&mut session, &step.responses[0])), ["rds +r"]);
}

#[test]
fn a_route_waits_for_a_bounded_number_of_answers_to_new_clusters() {
    let (mut session, mut now) = loaded(&OLD);
    let mut specs = OLD.to_vec();
    specs[3].2 = "2";
    let names: Vec<String> = (0..20).map(|i| format!("c{i}")).collect();
    let mut unanswered: Option<Response> = None;
    for (round, name) in names.iter().enumerate() {
        specs.push((CDS, name, "1"));
        let later = view(&specs);
        let mut step = session.on_view(&later, &changes(&now, &later));
        now = later;
        if let Some(response) = unanswered.take() {
            step = answer(&mut session, &response);
        }
        let seen = texts(&step);
        assert!(seen[0].starts_with("cds"), "{seen:?}");
        if seen.len() > 1 {
            assert_eq!(seen[1], "rds +r", "behind the clusters it may name");
            assert!(round <= 3, "after {round} answers");
            return;
        }
        unanswered = Some(step.responses[0].clone());
    }
    panic!("never sent");
}

#[test]
fn removals_wait_while_a_rejected_update_keeps_an_old_listener_in_force() {
    let (mut session, now) = loaded(&OLD);
    let without = [(LDS, "out", "bad"), OLD[3]];
    let step = push(&mut session, &now, &without);
    assert_eq!(texts(&step), ["lds +out"]);
    let step = session.on_delta(&nack(&step.responses[0], "no"), None).unwrap();
    assert!(step.responses.is_empty(), "the old listener may refer to the old cluster");
    let now = view(&without);
    let step = push(&mut session, &now, &[(LDS, "out", "3"), OLD[3]]);
    assert_eq!(texts(&step), ["lds +out"]);
    assert_eq!(texts(&answer(&mut session, &step.responses[0])), ["cds -old"]);
}

#[test]
fn a_rejected_new_listener_holds_up_no_removal() {
    let (mut session, now) = loaded(&OLD);
    let step = push(&mut session, &now, &[OLD[2], (LDS, "other", "bad"), OLD[3]]);
    let step = session.on_delta(&nack(&step.responses[0], "no"), None).unwrap();
    assert_eq!(texts(&step), ["cds -old"]);
}

#[test]
fn a_name_that_returns_before_its_removal_is_neither_removed_nor_sent() {
    let (mut session, now) = loaded(&OLD);
    let without = [(LDS, "out", "2"), OLD[3]];
    let step = push(&mut session, &now, &without);
    let listener = step.responses[0].clone();
    let gone = view(&without);
    let back = [OLD[0], OLD[1], (LDS, "out", "2"), OLD[3]];
    assert!(push(&mut session, &gone, &back).responses.is_empty());
    assert!(answer(&mut session, &listener).responses.is_empty());
    assert!(session.acknowledged());
}

#[test]
fn types_the_client_did_not_ask_for_are_not_waited_for() {
    let now = view(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    let mut session = Session::new(Variant::Delta, Scope::Aggregated);
    let step = session.on_delta(&delta(CDS), Some(&now)).unwrap();
    answer(&mut session, &step.responses[0]);
    let step = push(&mut session, &now, &[(CDS, "a", "1")]);
    assert_eq!(texts(&step), ["cds -b"]);
}

#[test]
fn separate_streams_are_not_ordered() {
    let now = view(&[(CDS, "a", "1"), (CDS, "b", "1")]);
    let mut session = Session::new(Variant::Delta, Scope::Only(CDS));
    let step = session.on_delta(&resume(CDS, &[], &[(CDS, "gone", "1")]), Some(&now)).unwrap();
    assert_eq!(texts(&step), ["cds +a +b -gone"]);
}

#[test]
fn secrets_come_before_clusters_and_clusters_before_endpoints() {
    let (mut session, now) = loaded(&[(SDS, "cert", "1"), OLD[0], OLD[1], OLD[2], OLD[3]]);
    let step = push(
        &mut session,
        &now,
        &[(SDS, "cert", "2"), (CDS, "old", "2"), (EDS, "old", "2"), (LDS, "out", "2"), (RDS, "r", "2")],
    );
    assert_eq!(texts(&step), ["sds +cert", "cds +old", "eds +old", "lds +out", "rds +r"]);
}

#[test]
fn in_sotw_a_removed_cluster_stays_until_routes_are_answered() {
    let now = view(&OLD);
    let mut session = Session::new(Variant::Sotw, Scope::Aggregated);
    for (kind, names) in [(CDS, &[][..]), (EDS, &["old"]), (LDS, &[]), (RDS, &["r"])] {
        let step = session.on_sotw(&sotw(kind, names), Some(&now)).unwrap();
        session.on_sotw(&sotw_ack(&step.responses[0], names), None).unwrap();
    }
    let later = view(&NEW);
    let step = session.on_view(&later, &changes(&now, &later));
    assert_eq!(texts(&step), ["cds +new +old"]);
    let step = session.on_sotw(&sotw_ack(&step.responses[0], &[]), None).unwrap();
    assert_eq!(texts(&step), ["rds +r"]);
    let step = session.on_sotw(&sotw_ack(&step.responses[0], &["r"]), None).unwrap();
    assert_eq!(step.responses.iter().map(text).collect::<Vec<_>>(), ["cds +new"]);
    session.on_sotw(&sotw_ack(&step.responses[0], &[]), None).unwrap();
    assert!(session.acknowledged());
}
