//! From what the files say to what is told: which declaration of an object stands, what outlives a broken
//! file, and what has changed.
//!
//! Pure. The rules:
//!
//! - An object that is declared twice is the first declaration's, by the order of paths, then of position.
//!   The others are reported. That the first was refused does not bring the second into effect.
//! - An object that was read from a file which now cannot be read to the end, and that is found nowhere
//!   now, stays as it was until the file can be read again: a slip of the editor must withdraw neither
//!   endpoints nor policy. This is what `kubectl apply` of a broken file does to a cluster: nothing.
//! - An object that is named but refused has no effect at once, so that a rule which cannot be understood
//!   allows nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use smc_mesh::catalog::{ObjectRef, SourceEvent};
use smc_mesh::problem::Problem;

use super::scan::Scan;
use crate::sources::manifest::Declaration;

/// Objects of a whole directory. The catalog is made for a tenth of this.
const MAX_OBJECTS: usize = 100_000;
/// Problems told at once; they are kept in memory, listed and compared.
const MAX_PROBLEMS: usize = 10_000;
/// Objects that one report names.
const MAX_NAMED: usize = 5;

/// The declaration that stands, for every object that is named.
pub(super) type State = BTreeMap<ObjectRef, Arc<Declaration>>;

/// The state after a scan, and everything that is wrong with it. Sorted, without duplicates.
pub(super) fn merge(previous: &State, scan: &Scan) -> (State, Vec<Problem>) {
    let mut state = State::new();
    let mut problems = scan.problems.clone();
    let mut left_out = 0_usize;
    for reading in scan.files.values() {
        problems.extend_from_slice(&reading.manifest.problems);
        for declaration in &reading.manifest.declarations {
            if let Some(first) = state.get(&declaration.reference) {
                let message = format!(
                    "declared at {} and again at {}; the first stands",
                    first.origin, declaration.origin
                );
                problems.push(Problem::error(&declaration.reference, "", message));
            } else if state.len() < MAX_OBJECTS {
                state.insert(declaration.reference.clone(), Arc::clone(declaration));
            } else {
                left_out += 1;
            }
        }
    }
    if left_out > 0 {
        let message = format!("more than {MAX_OBJECTS} objects; the last {left_out} have no effect");
        problems.push(Problem::error("mesh directory", "", message));
    }
    problems.extend(keep(&mut state, previous, scan));
    problems.sort();
    problems.dedup();
    if problems.len() > MAX_PROBLEMS {
        let message = format!("{} more problems are not shown", problems.len() - MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem::warning("mesh directory", "", message));
    }
    (state, problems)
}

/// Keeps the objects whose file cannot be read now, and reports which, by file.
fn keep(state: &mut State, previous: &State, scan: &Scan) -> Vec<Problem> {
    let mut kept: BTreeMap<&str, Vec<&ObjectRef>> = BTreeMap::new();
    for (reference, declaration) in previous {
        let file = &*declaration.origin.file;
        // A refused object has no effect that could be kept.
        if declaration.object.is_some() && !state.contains_key(reference) && !scan.knows(file) {
            state.insert(reference.clone(), Arc::clone(declaration));
            kept.entry(file).or_default().push(reference);
        }
    }
    let report = |(file, references): (&str, Vec<&ObjectRef>)| {
        let mut named: Vec<String> = references.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        if references.len() > MAX_NAMED {
            named.push(format!("{} more", references.len() - MAX_NAMED));
        }
        let message = format!(
            "cannot be read to its end; what it declared earlier stays in effect until it can: {}",
            named.join(", ")
        );
        Problem::warning(file, "", message)
    };
    kept.into_iter().map(report).collect()
}

/// Whether the step from `old` to `new` takes an object away.
pub(super) fn removes(old: &State, new: &State) -> bool {
    removed(old, new).next().is_some()
}

/// What to tell somebody who knows `old`, so that they know `new`: removals first, each in order.
pub(super) fn diff(old: &State, new: &State) -> Vec<SourceEvent> {
    let removals = removed(old, new).map(|reference| SourceEvent::Remove(reference.clone()));
    let upserts = new.iter().filter_map(|(reference, declaration)| {
        let before = old.get(reference);
        if before.is_some_and(|before| Arc::ptr_eq(before, declaration)) {
            return None;
        }
        let object = declaration.object.as_ref()?;
        let same = before.is_some_and(|before| before.object.as_ref() == Some(object));
        (!same).then(|| SourceEvent::Upsert(object.clone()))
    });
    removals.chain(upserts).collect()
}

fn removed<'a>(old: &'a State, new: &'a State) -> impl Iterator<Item = &'a ObjectRef> {
    old.iter()
        .filter(|(_, declaration)| declaration.object.is_some())
        .map(|(reference, _)| reference)
        .filter(|reference| new.get(reference).is_none_or(|declaration| declaration.object.is_none()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use smc_mesh::catalog::{Kind, Object};
    use smc_mesh::ids::NamespacedName;
    use smc_mesh::problem::Severity;

    use super::*;
    use crate::sources::directory::scan::FileReading;
    use crate::sources::manifest;

    fn reference(name: &str) -> ObjectRef {
        ObjectRef::Namespaced(Kind::ServiceAccount, NamespacedName::new("shop", name).unwrap())
    }

    fn account(name: &str) -> String {
        format!("--- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: shop}}}}\n")
    }

    /// A scan of files with these texts.
    fn scan(files: &[(&str, &str)]) -> Scan {
        let read = |(name, text): &(&str, &str)| {
            let manifest = Arc::new(manifest::read(name, text.as_bytes()));
            ((*name).to_owned(), FileReading::for_tests(manifest))
        };
        Scan { files: files.iter().map(read).collect(), ..Scan::default() }
    }

    fn names(state: &State) -> Vec<String> {
        state.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn the_first_declaration_stands_and_the_others_are_reported_with_both_places() {
        let pod = |ip: &str| {
            format!("--- {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, status: {{podIP: {ip}}}}}\n")
        };
        let scan = scan(&[("b.yaml", &pod("10.0.0.2")), ("a.yaml", &("\n\n".to_owned() + &pod("10.0.0.1")))]);
        let (state, problems) = merge(&State::new(), &scan);
        let declaration = state.values().next().unwrap();
        assert_eq!(declaration.origin.to_string(), "a.yaml:3");
        let messages: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(messages, ["declared at a.yaml:3 and again at b.yaml:1; the first stands"]);
        assert_eq!((problems[0].severity, problems[0].object.as_str()), (Severity::Error, "Pod default/p"));
    }

    #[test]
    fn a_refused_first_declaration_does_not_bring_a_second_into_effect() {
        let bad = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: Magic}}";
        let good = "{apiVersion: v1, kind: Service, metadata: {name: a}}";
        let (state, problems) = merge(&State::new(), &scan(&[("a.yaml", bad), ("b.yaml", good)]));
        assert_eq!(diff(&State::new(), &state), []);
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn what_outlives_its_file() {
        let both = account("a") + &account("b");
        let (before, _) = merge(&State::new(), &scan(&[("x.yaml", &both)]));
        for (now, kept) in [
            // The file is gone, or says so itself.
            (scan(&[]), vec![]),
            (scan(&[("x.yaml", "")]), vec![]),
            (scan(&[("x.yaml", &account("a"))]), vec!["a"]),
            // The file cannot be read to its end.
            (scan(&[("x.yaml", "{")]), vec!["a", "b"]),
            (scan(&[("x.yaml", "kind: ServiceAccount")]), vec!["a", "b"]),
            (scan(&[("x.yaml", &(account("b") + "--- ["))]), vec!["a", "b"]),
            (Scan { unread: BTreeSet::from(["x.yaml".to_owned()]), ..Scan::default() }, vec!["a", "b"]),
            // Another broken file keeps nothing.
            (scan(&[("y.yaml", "{")]), vec![]),
        ] {
            let (after, problems) = merge(&before, &now);
            let expected: Vec<String> = kept.iter().map(|name| reference(name).to_string()).collect();
            assert_eq!(names(&after), expected, "{now:?}");
            let (again, same_problems) = merge(&after, &now);
            assert_eq!((again, same_problems), (after, problems), "nothing changes while nothing changes");
        }
    }

    #[test]
    fn an_object_found_elsewhere_is_read_from_there_while_its_old_file_is_broken() {
        let (before, _) = merge(&State::new(), &scan(&[("x.yaml", &account("a"))]));
        let (after, _) = merge(&before, &scan(&[("x.yaml", "{"), ("y.yaml", &account("a"))]));
        assert_eq!(&*after[&reference("a")].origin.file, "y.yaml");
    }

    #[test]
    fn an_object_that_is_refused_is_removed_even_from_a_broken_file() {
        let good = "{apiVersion: v1, kind: Service, metadata: {name: a}}\n";
        let bad = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: 7}\n--- [";
        let (before, _) = merge(&State::new(), &scan(&[("x.yaml", good)]));
        let (after, _) = merge(&before, &scan(&[("x.yaml", bad)]));
        assert!(removes(&before, &after));
        assert!(matches!(diff(&before, &after).as_slice(), [SourceEvent::Remove(_)]));
    }

    /// What somebody knows who was told `events` after knowing `objects`.
    fn apply(mut objects: BTreeMap<String, Object>, events: Vec<SourceEvent>) -> BTreeMap<String, Object> {
        let mut seen = BTreeSet::new();
        for event in events {
            let name = match &event {
                SourceEvent::Upsert(object) => object.reference().to_string(),
                SourceEvent::Remove(reference) => reference.to_string(),
            };
            assert!(seen.insert(name.clone()), "two events for {name}");
            match event {
                SourceEvent::Upsert(object) => _ = objects.insert(name, object),
                SourceEvent::Remove(_) => assert!(objects.remove(&name).is_some(), "{name} was never told"),
            }
        }
        objects
    }

    fn in_effect(state: &State) -> BTreeMap<String, Object> {
        let named = |(reference, declaration): (&ObjectRef, &Arc<Declaration>)| {
            declaration.object.clone().map(|object| (reference.to_string(), object))
        };
        state.iter().filter_map(named).collect()
    }

    /// Files `a.yaml` to `c.yaml` with any of a few documents each, some of them broken.
    fn any_scan() -> impl Strategy<Value = Scan> {
        let service = "--- {apiVersion: v1, kind: Service, metadata: {name: x}";
        let documents = prop::sample::select(vec![
            account("a"),
            account("b"),
            format!("{service}}}\n"),
            format!("{service}, spec: {{clusterIP: 10.0.0.1}}}}\n"),
            format!("{service}, spec: 7}}\n"),
            "--- [\n".to_owned(),
        ]);
        let file = prop::collection::vec(documents, 0..4);
        let files =
            prop::collection::btree_map(prop::sample::select(vec!["a.yaml", "b.yaml", "c.yaml"]), file, 0..4);
        files.prop_map(|files| {
            let texts: Vec<(&str, String)> =
                files.into_iter().map(|(name, docs)| (name, docs.concat())).collect();
            scan(&texts.iter().map(|(name, text)| (*name, text.as_str())).collect::<Vec<_>>())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whoever_applies_every_difference_knows_every_state(scans in prop::collection::vec(any_scan(), 1..6)) {
            let mut state = State::new();
            let mut known = BTreeMap::new();
            for scan in &scans {
                let (next, _) = merge(&state, scan);
                prop_assert_eq!(removes(&state, &next), in_effect(&state).keys().any(|k| !in_effect(&next).contains_key(k)));
                known = apply(known, diff(&state, &next));
                prop_assert_eq!(&known, &in_effect(&next));
                prop_assert_eq!(diff(&next, &next), []);
                state = next;
            }
        }
    }
}
