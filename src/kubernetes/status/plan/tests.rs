//! One object through its life, and each sentence of its status.

use smc_types::kind::Kind;
use smc_types::problem::Subject;

use super::*;
use crate::custom_objects::{MAX_WRITTEN_BYTES, Marks};

const NOW: Timestamp = Timestamp(1_800_000_000);

fn split() -> ObjectRef {
    ObjectRef::Namespaced(Kind::TrafficSplit, "shop/canary".parse().unwrap())
}

fn seen(generation: i64) -> Arc<CustomObject> {
    let marks = Marks::new(generation, "u", ObjectStatus::default());
    Arc::new(CustomObject { marks, content: Content::Json("{}".into()) })
}

fn tracked() -> Tracked {
    let object = Object::ServiceAccount("shop/any".parse().unwrap());
    Tracked {
        seen: seen(3),
        object: Some(Arc::new(object)),
        problems: Vec::new(),
        written: ObjectStatus::default(),
        since: NOW.minus(Duration::from_mins(1)),
        sent: None,
    }
}

fn view(held: Held) -> View {
    let effects = BTreeMap::from([(split(), Effect::Everywhere)]);
    View { held: BTreeMap::from([(split(), held)]), effects, ..View::default() }
}

fn error(field: &str) -> Problem {
    Problem::error(Subject::Mesh, field, "is wrong")
}

fn writes(tracked: &Tracked, view: &View) -> Vec<Write> {
    plan(&BTreeMap::from([(split(), tracked.clone())]), view, "smc-controller-0", None, NOW)
}

/// `Accepted` and `Programmed` with their reasons.
fn conditions(tracked: &Tracked, view: &View) -> [String; 2] {
    let write = writes(tracked, view).pop().unwrap();
    assert_eq!(write.status.observed_generation, Some(3));
    let text = |kind| {
        let condition = write.status.conditions.iter().find(|condition| condition.kind == kind).unwrap();
        assert_eq!(condition.observed_generation, Some(3));
        format!("{} {}", condition.status, condition.reason)
    };
    [text(ACCEPTED), text(PROGRAMMED)]
}

#[test]
fn the_conditions_say_whether_an_object_is_in_effect() {
    let fine = tracked();
    assert_eq!(conditions(&fine, &view(Held::Yes)), ["True Accepted", "True Programmed"]);
    assert_eq!(conditions(&fine, &view(Held::NotYet)), ["True Accepted", "Unknown Pending"]);

    let refused = Tracked { object: None, problems: vec![error("spec.service")], ..tracked() };
    assert_eq!(conditions(&refused, &view(Held::NotYet)), ["False Invalid", "False Invalid"]);
    let partly = Tracked { problems: vec![error("spec.backends[0].weight")], ..tracked() };
    assert_eq!(conditions(&partly, &view(Held::Yes)), ["False Invalid", "False PartlyInvalid"]);
    let odd = Tracked { problems: vec![Problem::warning(Subject::Mesh, "spec.x", "is odd")], ..tracked() };
    assert_eq!(conditions(&odd, &view(Held::Yes)), ["True AcceptedWithWarnings", "True Programmed"]);

    let mut conflict = view(Held::Yes);
    conflict.conflicts.insert(split(), vec![error("spec.service")]);
    assert_eq!(conditions(&fine, &conflict), ["True Accepted", "False NotWhollyInEffect"]);
    conflict.rejections.insert(split(), vec![error("")]);
    assert_eq!(conditions(&fine, &conflict), ["True Accepted", "False Rejected"]);
}

#[test]
fn in_effect_everywhere_is_asked_of_all_replicas_once_for_a_generation() {
    let objects = |tracked: &Tracked| BTreeMap::from([(split(), tracked.clone())]);
    let open_of = |tracked: &Tracked, view: &View| open(&objects(tracked), view, NOW).count();
    let mut object = tracked();
    let mut asked = view(Held::Yes);
    assert_eq!(open_of(&object, &asked), 1);
    assert_eq!(open_of(&object, &view(Held::NotYet)), 0);
    asked.effects.clear();
    assert_eq!(writes(&object, &asked), [], "nobody was asked yet");
    asked.effects.insert(split(), Effect::Open("The replica x has not.".to_owned()));
    let fresh = Tracked { since: NOW.minus(Duration::from_secs(5)), ..tracked() };
    assert_eq!(writes(&fresh, &asked), [], "it may become true in a moment");
    assert_eq!(conditions(&object, &asked), ["True Accepted", "Unknown Waiting"]);
    asked.effects.insert(split(), Effect::Everywhere);
    object.written = writes(&object, &asked).pop().unwrap().status;
    // A replica that is silent later, or a proxy that connects, changes nothing.
    asked.effects.insert(split(), Effect::Open("The replica x is silent.".to_owned()));
    assert_eq!((writes(&object, &asked), open_of(&object, &asked)), (Vec::new(), 0));
    asked.rejections.insert(split(), vec![error("")]);
    assert_eq!(conditions(&object, &asked)[1], "False Rejected");
    object.seen = seen(4);
    assert_eq!(open_of(&object, &asked), 1, "a new generation is asked about");
}

#[test]
fn a_kind_that_is_not_enforced_says_so() {
    let route = ObjectRef::Namespaced(Kind::UdpRoute, "shop/udp".parse().unwrap());
    let objects = BTreeMap::from([(route.clone(), tracked())]);
    let view = View { held: BTreeMap::from([(route, Held::Yes)]), ..View::default() };
    let write = plan(&objects, &view, "smc-controller-0", None, NOW).pop().unwrap();
    let reasons: Vec<_> = write.status.conditions.iter().map(|c| (&*c.status, &*c.reason)).collect();
    assert_eq!(reasons, [("False", "NotImplemented"), ("False", "NotImplemented")]);
}

#[test]
fn nothing_is_written_where_nothing_changed() {
    let mut object = tracked();
    let written = writes(&object, &view(Held::Yes)).pop().unwrap();
    assert_eq!(written.event, None);
    object.written = written.status.clone();
    assert_eq!(writes(&object, &view(Held::Yes)), []);
    object.seen = seen(4);
    let again = writes(&object, &view(Held::Yes)).pop().unwrap();
    assert_eq!(again.status.observed_generation, Some(4));
    assert_eq!(
        again.status.conditions[0].last_transition_time,
        written.status.conditions[0].last_transition_time
    );
}

#[test]
fn what_others_wrote_into_the_status_is_no_reason_to_write() {
    let mut object = tracked();
    let mut written = writes(&object, &view(Held::Yes)).pop().unwrap().status;
    written.conditions.push(Condition { kind: "Healthy".to_owned(), ..written.conditions[0].clone() });
    written.current_status = Some("committed".to_owned());
    object.written = written;
    assert_eq!(writes(&object, &view(Held::Yes)), []);
}

/// What OSM's own tools and persons wait for.
#[test]
fn an_ingress_backend_has_the_status_that_osm_gave_it() {
    let reference = ObjectRef::Namespaced(Kind::IngressBackend, "shop/in".parse().unwrap());
    let of = |object: &Tracked, effect: Effect| {
        let mut view = View::default();
        view.held.insert(reference.clone(), Held::Yes);
        view.effects.insert(reference.clone(), effect);
        let objects = BTreeMap::from([(reference.clone(), object.clone())]);
        plan(&objects, &view, "smc-controller-0", None, NOW)
    };
    let said = |writes: Vec<Write>| writes.into_iter().next().map(|write| write.status).unwrap();
    let mut object = tracked();
    let committed = said(of(&object, Effect::Everywhere));
    assert_eq!(committed.current_status.as_deref(), Some("committed"));
    assert_eq!(committed.reason.as_deref(), Some("successfully committed by the system"));
    let waiting = said(of(&object, Effect::Open("not yet".to_owned())));
    assert_eq!((waiting.current_status, waiting.reason), (None, None));
    object.problems = vec![error("spec.sources")];
    let wrong = said(of(&object, Effect::Everywhere));
    assert_eq!(wrong.current_status.as_deref(), Some("error"));
    assert_eq!(wrong.reason.as_deref(), Some("spec.sources: is wrong"));

    // One that has conditions from before gets it as well, and once.
    object.problems = vec![];
    object.written = ObjectStatus { current_status: None, ..committed.clone() };
    assert_eq!(of(&object, Effect::Everywhere).len(), 1);
    object.written = ObjectStatus { reason: None, ..committed };
    assert_eq!(of(&object, Effect::Everywhere), []);
}

#[test]
fn an_object_of_another_mesh_is_left_alone() {
    assert_eq!(writes(&tracked(), &view(Held::NotOurs)), []);
    assert_eq!(writes(&tracked(), &View::default()), [], "what the mesh has of it is not known");
}

#[test]
fn a_status_waits_for_the_object_to_settle_and_for_the_last_write() {
    let fresh = Tracked { since: NOW.minus(Duration::from_secs(1)), ..tracked() };
    assert_eq!(writes(&fresh, &view(Held::Yes)), []);
    let status = writes(&tracked(), &view(Held::Yes)).pop().unwrap().status;
    let sent = |seconds| Some((NOW.minus(Duration::from_secs(seconds)), status.clone()));
    assert_eq!(writes(&Tracked { sent: sent(9), ..tracked() }, &view(Held::Yes)), []);
    assert_eq!(writes(&Tracked { sent: sent(10), ..tracked() }, &view(Held::Yes)).len(), 1);
    let changed = Tracked { sent: sent(1), seen: seen(4), ..tracked() };
    assert_eq!(writes(&changed, &view(Held::Yes)).len(), 1, "a new generation does not wait");
}

#[test]
fn what_goes_wrong_is_an_event_once() {
    let mut object = Tracked { problems: vec![error("spec.service")], ..tracked() };
    let write = writes(&object, &view(Held::Yes)).pop().unwrap();
    assert_eq!(write.event, Some(("Invalid".to_owned(), "spec.service: is wrong".to_owned())));
    object.written = write.status;
    object.seen = seen(4);
    let write = writes(&object, &view(Held::Yes)).pop().unwrap();
    assert_eq!(write.event, None, "the new generation is as wrong as the old one");
}

#[test]
fn one_step_is_bounded_and_so_is_a_message() {
    let problems: Vec<_> = (0..100).map(|n| error(&format!("spec.{n}"))).collect();
    let (mut objects, mut view) = (BTreeMap::new(), View::default());
    for n in 0..100 {
        let reference = ObjectRef::Namespaced(Kind::TrafficSplit, format!("shop/s{n}").parse().unwrap());
        view.held.insert(reference.clone(), Held::Yes);
        view.effects.insert(reference.clone(), Effect::Everywhere);
        objects.insert(reference, Tracked { problems: problems.clone(), ..tracked() });
    }
    let writes = plan(&objects, &view, "smc-controller-0", None, NOW);
    assert_eq!(writes.len(), MAX_WRITES);
    assert!(writes[0].status.conditions[0].message.ends_with("and 92 more problems"));
}

/// The source does not read longer ones, and what it does not read would be written again and again.
#[test]
fn the_longest_status_is_one_that_is_read() {
    let long = Problem::error(Subject::Mesh, "", "\u{1}".repeat(MAX_MESSAGE));
    let object = Tracked { problems: vec![long.clone()], ..tracked() };
    let mut view = view(Held::Yes);
    view.rejections.insert(split(), vec![long]);
    let mut status = writes(&object, &view).pop().unwrap().status;
    assert!(status.conditions.iter().all(|condition| condition.message.len() == MAX_MESSAGE));
    // A transition may have been at a time of more digits, and Open Service Mesh may have said something.
    status.current_status = Some("x".repeat(4096));
    let bytes = serde_json::to_string(&status).unwrap().len();
    assert!((48_000..=MAX_WRITTEN_BYTES).contains(&bytes), "{bytes}");
}

#[test]
fn an_object_whose_namespace_left_the_mesh_says_so() {
    let named = |kind, name: &str| ObjectRef::Namespaced(kind, name.parse().unwrap());
    let mut known = tracked();
    known.written = writes(&known, &view(Held::Yes)).pop().unwrap().status;
    let config = named(Kind::MeshConfig, "shop/mesh");
    let root = named(Kind::MeshRootCertificate, "shop/root");
    let deleted = named(Kind::TrafficSplit, "other/deleted");
    let own_log = named(Kind::Telemetry, "own/deleted");
    let mut gone: BTreeMap<_, _> =
        [split(), config, deleted, own_log].map(|of| (of, (NOW, known.clone()))).into();
    gone.insert(root, (NOW, Tracked { object: None, ..tracked() }));
    let outside = BTreeSet::from(["shop".to_owned(), "own".to_owned()]);
    let [write] = farewells(&mut gone, &outside, "own", None, NOW).try_into().unwrap();
    assert_eq!((&write.reference, &*write.uid), (&split(), "u"));
    let says: Vec<_> = write.status.conditions.iter().map(|c| (&*c.kind, &*c.status, &*c.reason)).collect();
    assert_eq!(says, [(ACCEPTED, "True", ACCEPTED), (PROGRAMMED, "False", "NotInMesh")]);
    let message = "Not in effect: the namespace shop has left the mesh.";
    assert_eq!(write.event, Some(("NotInMesh".to_owned(), message.to_owned())));
    let later = Timestamp(NOW.0 + 60);
    assert_eq!(farewells(&mut gone, &outside, "own", None, later).len(), 1);
    assert_eq!(gone.keys().cloned().collect::<Vec<_>>(), [split()], "it waits until it is written");
    let tried = |seconds| Some((later.minus(Duration::from_secs(seconds)), write.status.clone()));
    for (seconds, count) in [(9, 0), (10, 1)] {
        gone.get_mut(&split()).unwrap().1.sent = tried(seconds);
        assert_eq!(
            farewells(&mut gone, &outside, "own", None, later).len(),
            count,
            "what failed waits for a while"
        );
    }
}

#[test]
fn a_busy_namespace_keeps_no_other_one_waiting() {
    let (mut objects, mut view, mut gone) = (BTreeMap::new(), View::default(), BTreeMap::new());
    let of_aaa = (0..100).map(|number| format!("aaa/s{number}"));
    for name in of_aaa.chain(["shop/canary".to_owned()]) {
        let reference = ObjectRef::Namespaced(Kind::TrafficSplit, name.parse().unwrap());
        view.held.insert(reference.clone(), Held::Yes);
        view.effects.insert(reference.clone(), Effect::Everywhere);
        objects.insert(reference.clone(), tracked());
        gone.insert(reference, (NOW, tracked()));
    }
    let writes = plan(&objects, &view, "smc-controller-0", None, NOW);
    assert_eq!((writes.len(), &writes[1].reference), (MAX_WRITES, &split()));
    let writes = plan(&objects, &view, "smc-controller-0", Some("aaa"), NOW);
    assert_eq!((writes.len(), &writes[0].reference), (MAX_WRITES, &split()));
    let outside = BTreeSet::from(["aaa".to_owned(), "shop".to_owned()]);
    let writes = farewells(&mut gone, &outside, "own", Some("aaa"), NOW);
    assert_eq!((writes.len(), &writes[0].reference), (MAX_WRITES, &split()));
}
