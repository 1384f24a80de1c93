//! What requests cost, counted in names that the session looks at.

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use prost::Message;

use super::support::{CDS, EDS, Spec, ack, changes, delta, resume, sotw, subscribe, unsubscribe, view};
use crate::served_state::Changed;
use crate::session::stream_state::STEP;
use crate::session::{Request, Scope, Session, Step, Variant};

/// The most that one step looks at: the names of the step, and again those in one response, as they are
/// compared, chosen, sent and noted.
const MOST: usize = 4 * 4096 + 2 * STEP;

fn ads(variant: Variant) -> Session {
    Session::new(variant, Scope::Aggregated)
}

fn unknown(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("unknown-{i:06}")).collect()
}

/// Every step of a request.
fn steps(session: &mut Session, request: &DeltaDiscoveryRequest) -> Vec<Step> {
    let request = Request::decode(Variant::Delta, request.encode_to_vec().into()).unwrap();
    let mut steps = vec![session.on_request(request, None).unwrap()];
    while steps[steps.len() - 1].more {
        steps.push(session.proceed().unwrap());
    }
    steps
}

/// A session that holds 49,000 names of endpoints that do not exist, and has answered all removals.
fn hostile() -> Session {
    let mut session = ads(Variant::Delta);
    session.on_view(&view(&[(EDS, "a", "1"), (EDS, "b", "1")]), &Changed::Everything);
    let request = DeltaDiscoveryRequest { resource_names_subscribe: unknown(49_000), ..delta(EDS) };
    let mut queue: Vec<_> = steps(&mut session, &request).into_iter().flat_map(|s| s.responses).collect();
    while let Some(response) = queue.pop() {
        queue.extend(steps(&mut session, &ack(&response)).into_iter().flat_map(|step| step.responses));
    }
    session
}

/// 76 bytes each, which cost a walk over all the names each.
#[test]
fn a_wildcard_that_is_repeated_looks_at_nothing() {
    let mut session = hostile();
    let first = session.on_delta(&subscribe(EDS, &["*"]), None).unwrap();
    let sent: Vec<_> = first.responses.iter().flat_map(|r| &r.resources).map(|r| &*r.name).collect();
    assert_eq!(sent, ["a", "b"]);
    assert!(first.work <= 16, "{}: the names of the view, not those of the client", first.work);
    session.on_delta(&ack(&first.responses[0]), None).unwrap();
    let work: usize = (0..100).map(|_| session.on_delta(&subscribe(EDS, &["*"]), None).unwrap().work).sum();
    assert!(work <= 100, "{work}: no more than the names in the requests");
}

#[test]
fn a_wildcard_that_comes_and_goes_is_charged_for_what_it_walks() {
    let mut session = hostile();
    for _ in 0..10 {
        session.on_delta(&subscribe(EDS, &["*"]), None).unwrap();
        let work = session.on_delta(&unsubscribe(EDS, &["*"]), None).unwrap().work;
        assert!(work >= 49_000, "{work}");
    }
}

/// A client that leaves its clusters unanswered makes every other request ask how far they are.
#[test]
fn asking_for_the_progress_of_clusters_is_charged() {
    let names: Vec<String> = (0..300).map(|i| format!("c{i}")).collect();
    let specs: Vec<Spec<'_>> = names.iter().map(|name| (CDS, name.as_str(), "1")).collect();
    let mut session = ads(Variant::Delta);
    session.on_delta(&delta(CDS), Some(&view(&specs))).unwrap();
    session.on_delta(&delta(crate::resource::ResourceType::Listener), None).unwrap();
    session.on_view(&view(&specs), &Changed::Everything);
    let work = session.on_delta(&subscribe(EDS, &["x"]), None).unwrap().work;
    assert!(work >= 300, "{work}");
}

#[test]
fn no_step_of_the_largest_request_looks_at_more_than_its_share() {
    let mut session = ads(Variant::Delta);
    session.on_view(&view(&[(EDS, "a", "1")]), &Changed::Everything);
    let held = unknown(49_000).into_iter().map(|name| (name, "0".repeat(32))).collect();
    let first = DeltaDiscoveryRequest {
        initial_resource_versions: held,
        resource_names_subscribe: unknown(49_000),
        ..delta(EDS)
    };
    let dropped = DeltaDiscoveryRequest { resource_names_unsubscribe: unknown(49_000), ..delta(EDS) };
    for request in [first, dropped] {
        let steps = steps(&mut session, &request);
        let most = steps.iter().map(|step| step.work).max().unwrap();
        assert!(most <= MOST, "{most}");
        assert!(steps.len() >= 49_000 / STEP, "{}", steps.len());
        let work: usize = steps.iter().map(|step| step.work).sum();
        assert!(work >= 49_000, "{work}");
    }
}

#[test]
fn a_set_in_sotw_is_charged_by_its_size() {
    let mut session = ads(Variant::Sotw);
    session.on_view(&view(&[(EDS, "a", "1")]), &Changed::Everything);
    let request = DiscoveryRequest { resource_names: unknown(10_000), ..sotw(EDS, &[]) };
    assert!(session.on_sotw(&request, None).unwrap().work >= 20_000);
    let again = DiscoveryRequest { resource_names: unknown(10_000), ..sotw(EDS, &[]) };
    assert!(session.on_sotw(&again, None).unwrap().work >= 10_000);
}

#[test]
fn a_new_state_is_not_charged_to_the_client() {
    let (old, new) = (view(&[(CDS, "c", "1")]), view(&[(CDS, "c", "2")]));
    let mut session = ads(Variant::Delta);
    let first = session.on_delta(&delta(CDS), Some(&old)).unwrap();
    assert!(first.work > 0);
    session.on_delta(&ack(&first.responses[0]), None).unwrap();
    for changed in [changes(&old, &new), Changed::Everything] {
        assert_eq!(session.on_view(&new, &changed).work, 0);
    }
}

/// A state that comes while a long request is taken in is the one that is compared with.
#[test]
fn a_state_that_comes_between_the_steps_of_a_request_is_not_lost() {
    let names = unknown(5000);
    let (empty, one) = (view(&[]), view(&[(EDS, names[3].as_str(), "1"), (EDS, names[4990].as_str(), "1")]));
    for interrupted_after in 0..12 {
        let mut session = ads(Variant::Delta);
        session.on_view(&empty, &Changed::Everything);
        let request = DeltaDiscoveryRequest { resource_names_subscribe: names.clone(), ..delta(EDS) };
        let request = Request::decode(Variant::Delta, request.encode_to_vec().into()).unwrap();
        let mut step = session.on_request(request, None).unwrap();
        let mut responses = std::mem::take(&mut step.responses);
        for number in 0.. {
            if number == interrupted_after {
                step = session.on_view(&one, &changes(&empty, &one));
            } else if step.more {
                step = session.proceed().unwrap();
            } else {
                break;
            }
            responses.append(&mut step.responses);
        }
        let (mut sent, mut removed) = (0, 0);
        while let Some(response) = responses.pop() {
            sent += response.resources.len();
            removed += response.removed.len();
            responses.extend(session.on_delta(&ack(&response), None).unwrap().responses);
        }
        assert_eq!(sent, 2, "interrupted after {interrupted_after}");
        assert!((4998..=5000).contains(&removed), "{removed}");
        assert!(session.acknowledged());
    }
}

#[test]
fn a_resume_is_compared_once() {
    let held: Vec<(String, String)> = (0..500).map(|i| (format!("c{i}"), "1".to_owned())).collect();
    let specs: Vec<Spec<'_>> = held.iter().map(|(name, content)| (CDS, &**name, &**content)).collect();
    let mut session = ads(Variant::Delta);
    let work = session.on_delta(&resume(CDS, &[], &specs), Some(&view(&specs))).unwrap().work;
    // Taken in, compared as held, compared as in the view.
    assert!(work <= 3 * 500 + 10, "{work}");
}
