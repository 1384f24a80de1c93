//! The objects whose status is written, as a replica tracks them while it leads.
//!
//! Owns what a change of an object means for its status, and what the mesh reads in an object: it is read
//! when it is new or its content is another, and at the leader alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use smc_api::object::Object;
use smc_decode::kinds::read_custom;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::time::Timestamp;
use tokio::task::yield_now;

use super::plan::Tracked;
use crate::custom_objects::{Content, CustomObject, CustomObjects};

/// The objects, as far as they are tracked.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// What the source held when it was compared last.
    seen: CustomObjects,
    pub(super) tracked: BTreeMap<ObjectRef, Tracked>,
    /// The objects that the source holds no more since then: they are gone, or their namespace left the mesh.
    pub(super) gone: BTreeMap<ObjectRef, (Timestamp, Tracked)>,
}

impl Objects {
    /// Takes in what the source holds now. Costs what differs. If it is dropped before its end, what is
    /// tracked is of no use any more.
    pub(super) async fn follow(&mut self, now_seen: CustomObjects, now: Timestamp) {
        let before = std::mem::replace(&mut self.seen, now_seen);
        // The clone shares all of the map, and lets what is tracked be changed meanwhile.
        let after = self.seen.clone();
        for change in before.diff(&after) {
            // A new leader reads all objects, and one alone may take milliseconds.
            yield_now().await;
            match change {
                DiffItem::Add(reference, seen) | DiffItem::Update { new: (reference, seen), .. } => {
                    let known = self.tracked.remove(reference);
                    self.gone.remove(reference);
                    self.tracked.insert(reference.clone(), track(seen, known, now));
                }
                DiffItem::Remove(reference, _) => {
                    if let Some(known) = self.tracked.remove(reference) {
                        self.gone.insert(reference.clone(), (now, known));
                    }
                }
            }
        }
    }
}

/// An object that is new, or another than is known. Of the same generation of the same object, it stays known
/// since when it is there and what was written of it.
fn track(seen: &Arc<CustomObject>, known: Option<Tracked>, now: Timestamp) -> Tracked {
    let (mut since, mut sent, mut content) = (now, None, None);
    if let Some(known) = known {
        let (old, new) = (&known.seen.marks, &seen.marks);
        if (old.generation, &old.uid) == (new.generation, &new.uid) {
            (since, sent) = (known.since, known.sent);
        }
        content = (known.seen.content == seen.content).then_some((known.object, known.problems));
    }
    let (object, problems) = content.unwrap_or_else(|| content_of(seen));
    Tracked { seen: Arc::clone(seen), object, problems, written: seen.marks.written(), since, sent }
}

/// What the mesh reads in an object, and what the reading found.
fn content_of(seen: &CustomObject) -> (Option<Arc<Object>>, Vec<Problem>) {
    match &seen.content {
        Content::Json(json) => match read_custom(json) {
            Some((_, object, problems)) => (object.map(Arc::new), problems),
            None => (None, Vec::new()),
        },
        Content::Unreadable(problems) => (None, problems.clone()),
    }
}

#[cfg(test)]
mod tests {
    use smc_types::object_ref::Kind;

    use super::*;
    use crate::crds::status::ObjectStatus;
    use crate::custom_objects::Marks;

    const START: Timestamp = Timestamp(1_800_000_000);

    fn route(name: &str) -> ObjectRef {
        ObjectRef::Namespaced(Kind::TcpRoute, format!("shop/{name}").parse().unwrap())
    }

    /// A TCPRoute with these ports.
    fn object(generation: i64, uid: &str, ports: &str) -> CustomObject {
        let json = format!(
            r#"{{"apiVersion":"specs.smi-spec.io/v1alpha4","kind":"TCPRoute","metadata":{{"name":"a","namespace":"shop"}},"spec":{{"matches":{{"ports":[{ports}]}}}}}}"#
        );
        let marks = Marks::new(generation, uid, ObjectStatus::default());
        CustomObject { marks, content: Content::Json(json.into()) }
    }

    fn written(object: CustomObject) -> CustomObject {
        let status = ObjectStatus { observed_generation: Some(1), ..ObjectStatus::default() };
        let marks = Marks::new(object.marks.generation, &object.marks.uid, status);
        CustomObject { marks, ..object }
    }

    fn table(objects: &[(&str, CustomObject)]) -> CustomObjects {
        objects.iter().map(|(name, object)| (route(name), Arc::new(object.clone()))).collect()
    }

    #[tokio::test]
    async fn an_object_is_read_when_it_is_new_with_its_problems() {
        let mut objects = Objects::default();
        let unreadable = vec![Problem::error(route("c"), "", "nested deeper")];
        let deep = CustomObject { content: Content::Unreadable(unreadable.clone()), ..object(1, "c", "") };
        let all = [("a", object(1, "a", "80")), ("b", object(1, "b", "0")), ("c", deep)];
        objects.follow(table(&all), START).await;
        let known = |name| &objects.tracked[&route(name)];
        assert!(known("a").object.is_some() && known("a").problems.is_empty());
        assert!(known("b").object.is_none() && !known("b").problems.is_empty());
        assert!(known("c").object.is_none() && known("c").problems == unreadable);
    }

    #[tokio::test]
    async fn since_and_the_last_write_are_of_one_generation_of_one_object() {
        let later = Timestamp(START.0 + 60);
        let sent = Some((START, ObjectStatus::default()));
        for (next, kept, what) in [
            (written(object(1, "u", "80")), true, "its status is written"),
            (object(1, "u", "80"), true, "nothing differs"),
            (object(2, "u", "90"), false, "it is changed"),
            (object(2, "u", "80"), false, "its generation is another alone"),
            (object(1, "v", "80"), false, "it is deleted and made again"),
        ] {
            let mut objects = Objects::default();
            objects.follow(table(&[("a", object(1, "u", "80"))]), START).await;
            let before = objects.tracked[&route("a")].object.clone().unwrap();
            objects.tracked.get_mut(&route("a")).unwrap().sent.clone_from(&sent);
            objects.follow(table(&[("a", next.clone())]), later).await;
            let known = &objects.tracked[&route("a")];
            let expected = if kept { (START, sent.clone()) } else { (later, None) };
            assert_eq!((known.since, known.sent.clone()), expected, "{what}");
            assert_eq!((&*known.seen, &known.written), (&next, &next.marks.written()), "{what}");
            let same = Arc::ptr_eq(&before, known.object.as_ref().unwrap());
            assert_eq!(same, next.content == object(1, "u", "80").content, "{what}: read only if it differs");
        }
    }

    #[tokio::test]
    async fn an_object_that_the_source_does_not_hold_any_more_is_not_tracked() {
        let mut objects = Objects::default();
        objects.follow(table(&[("a", object(1, "a", "80")), ("b", object(1, "b", "80"))]), START).await;
        objects.follow(table(&[("b", object(1, "b", "80"))]), START).await;
        assert_eq!(objects.tracked.keys().cloned().collect::<Vec<_>>(), [route("b")]);
        objects.follow(CustomObjects::new(), START).await;
        assert!(objects.tracked.is_empty());
    }

    #[tokio::test]
    async fn a_new_leader_starts_from_all_that_there_is() {
        let names: Vec<String> = (0..1000).map(|number| format!("r{number}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), object(1, name, "80"))).collect();
        let mut objects = Objects::default();
        let now = Timestamp(START.0 + 1);
        objects.follow(table(&all), now).await;
        assert_eq!(objects.tracked.len(), 1000);
        assert!(objects.tracked.values().all(|known| known.since == now && known.object.is_some()));
    }
}
