//! The state that the files declare: which declaration of an object is in effect, what a broken file keeps,
//! and the difference between two states.
//!
//! Pure. The rules:
//!
//! - If an object is declared twice, the first declaration is in effect, by path, then by position. The
//!   others are reported. They do not take effect if the first was refused.
//! - If a file cannot be read completely and names an object less often than before (as a rule: no longer),
//!   the object stays as it was until the file can be read, whatever other files declare. A typing error must
//!   neither remove endpoints or policy, nor bring another declaration into effect. `kubectl apply` of a
//!   broken file likewise changes nothing.
//! - An object that is named but refused loses its effect at once, so that a rule that cannot be understood
//!   allows nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use smc_mesh::catalog::SourceEvent;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};

use super::scan::Scan;
use crate::decode::manifest::Declaration;

/// Objects of a whole directory. The catalog is designed for a tenth of this.
const MAX_OBJECTS: usize = 100_000;
/// Problems of a whole directory; they are kept in memory, listed and compared.
const MAX_PROBLEMS: usize = 10_000;
/// Objects that one problem names.
const MAX_NAMED: usize = 5;

/// The declaration in effect of every object that is named.
pub(super) type State = BTreeMap<ObjectRef, Effective>;

/// The declaration of one object that is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effective {
    /// The declaration.
    pub(super) declaration: Arc<Declaration>,
    /// How often its file names the object. Of two, either may be the one that cannot be read next time.
    times: usize,
    /// Whether it is of an earlier scan, since its file cannot be read completely now.
    held: bool,
}

/// The state after a scan, and all problems of it, sorted and without duplicates.
pub(super) fn merge(previous: &State, scan: &Scan) -> (State, Vec<Problem>) {
    let mut state = hold(previous, scan);
    let mut problems = scan.problems.clone();
    problems.extend(report_held(&state));
    let mut left_out = 0_usize;
    for reading in scan.files.values() {
        problems.extend_from_slice(&reading.manifest.problems);
        for declaration in &reading.manifest.declarations {
            let (reference, origin) = (&declaration.reference, &declaration.origin);
            let objects = state.len();
            match state.get_mut(reference) {
                Some(first) if first.held => {
                    let effective = &first.declaration.origin;
                    let message = format!(
                        "declared at {origin}, which has no effect: the declaration at {effective} stays in effect \
                         until {} can be read completely",
                        effective.file
                    );
                    problems.push(Problem::error(reference, "", message));
                }
                Some(first) => {
                    let effective = &first.declaration.origin;
                    first.times += usize::from(effective.file == origin.file);
                    let message =
                        format!("declared at {effective} and again at {origin}; the first is in effect");
                    problems.push(Problem::error(reference, "", message));
                }
                None if objects < MAX_OBJECTS => {
                    let effective = Effective { declaration: Arc::clone(declaration), times: 1, held: false };
                    state.insert(reference.clone(), effective);
                }
                None => left_out += 1,
            }
        }
    }
    if left_out > 0 {
        let message = format!("more than {MAX_OBJECTS} objects; the last {left_out} have no effect");
        problems.push(Problem::error(Subject::Mesh, "", message));
    }
    problems.sort();
    problems.dedup();
    if problems.len() > MAX_PROBLEMS {
        let message = format!("{} more problems are not shown", problems.len() - MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem::warning(Subject::Mesh, "", message));
    }
    (state, problems)
}

/// The objects that stay as they were, since their file does not show what has become of them.
fn hold(previous: &State, scan: &Scan) -> State {
    let mut named: BTreeMap<(&str, &ObjectRef), usize> = BTreeMap::new();
    for reading in scan.files.values().filter(|reading| !reading.manifest.complete) {
        for declaration in &reading.manifest.declarations {
            *named.entry((&declaration.origin.file, &declaration.reference)).or_default() += 1;
        }
    }
    let is_held = |reference: &ObjectRef, effective: &Effective| {
        let file = &*effective.declaration.origin.file;
        !scan.knows(file) && named.get(&(file, reference)).is_none_or(|times| *times < effective.times)
    };
    let held = previous.iter().filter(|(reference, effective)| is_held(reference, effective));
    held.map(|(reference, effective)| (reference.clone(), Effective { held: true, ..effective.clone() }))
        .collect()
}

/// One problem for each file that holds objects.
fn report_held(state: &State) -> Vec<Problem> {
    let mut held: BTreeMap<&str, Vec<&ObjectRef>> = BTreeMap::new();
    for (reference, effective) in state {
        // A refused object is held as well, but it has no effect to report.
        if effective.held && effective.declaration.object.is_some() {
            held.entry(&effective.declaration.origin.file).or_default().push(reference);
        }
    }
    let report = |(file, references): (&str, Vec<&ObjectRef>)| {
        let mut named: Vec<String> = references.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        if references.len() > MAX_NAMED {
            named.push(format!("{} more", references.len() - MAX_NAMED));
        }
        let message = format!(
            "cannot be read completely; what it declared earlier stays in effect until it can: {}",
            named.join(", ")
        );
        Problem::warning(Subject::file(file), "", message)
    };
    held.into_iter().map(report).collect()
}

/// The state after a scan, as [`merge`] has it; `None` if this is the `first` scan to remove an object. The
/// caller then scans once more before the removal takes effect: editors replace files non-atomically, and
/// removing endpoints or policy while a file is missing or empty would cost real requests.
pub(super) fn confirm_removals(previous: &State, scan: &Scan, first: bool) -> Option<(State, Vec<Problem>)> {
    let (state, problems) = merge(previous, scan);
    let unconfirmed = first && removes(previous, &state);
    (!unconfirmed).then_some((state, problems))
}

/// Whether the step from `old` to `new` removes an object.
fn removes(old: &State, new: &State) -> bool {
    removed(old, new).next().is_some()
}

/// The events that lead from `old` to `new`: removals first, each in order.
pub(super) fn diff(old: &State, new: &State) -> Vec<SourceEvent> {
    let removals = removed(old, new).map(|reference| SourceEvent::Remove(reference.clone()));
    let upserts = new.iter().filter_map(|(reference, Effective { declaration, .. })| {
        let before = old.get(reference).map(|before| &before.declaration);
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
    let has_effect = |effective: &Effective| effective.declaration.object.is_some();
    old.iter()
        .filter(move |(_, effective)| has_effect(effective))
        .map(|(reference, _)| reference)
        .filter(move |reference| !new.get(reference).is_some_and(has_effect))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use smc_mesh::catalog::Object;
    use smc_types::ids::NamespacedName;
    use smc_types::object_ref::Kind;
    use smc_types::problem::Severity;

    use super::*;
    use crate::decode::manifest;
    use crate::sources::directory::scan::FileReading;

    fn reference(name: &str) -> ObjectRef {
        ObjectRef::Namespaced(Kind::ServiceAccount, NamespacedName::new("shop", name).unwrap())
    }

    fn account(name: &str) -> String {
        format!("--- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: shop}}}}\n")
    }

    /// A scan of files with these texts.
    fn scan<T: AsRef<str>>(files: &[(&str, T)]) -> Scan {
        let read = |(name, text): &(&str, T)| {
            let manifest = Arc::new(manifest::read(name, text.as_ref().as_bytes()));
            ((*name).to_owned(), FileReading::for_tests(manifest))
        };
        Scan { files: files.iter().map(read).collect(), ..Scan::default() }
    }

    fn names(state: &State) -> Vec<String> {
        state.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn the_first_declaration_stands_and_the_others_name_both_places() {
        let pod = |ip: &str| {
            format!("--- {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, status: {{podIP: {ip}}}}}\n")
        };
        let scan = scan(&[("b.yaml", &pod("10.0.0.2")), ("a.yaml", &("\n\n".to_owned() + &pod("10.0.0.1")))]);
        let (state, problems) = merge(&State::new(), &scan);
        let effective = state.values().next().unwrap();
        assert_eq!(effective.declaration.origin.to_string(), "a.yaml:3");
        let messages: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(messages, ["declared at a.yaml:3 and again at b.yaml:1; the first is in effect"]);
        assert_eq!(
            (problems[0].severity, problems[0].subject.to_string()),
            (Severity::Error, "Pod default/p".to_owned())
        );
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
            (scan::<&str>(&[]), vec![]),
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

    fn mesh_config(spec: &str) -> String {
        let id = "apiVersion: config.openservicemesh.io/v1alpha2, kind: MeshConfig";
        let metadata = "metadata: {name: osm-mesh-config, namespace: osm-system}";
        format!("--- {{{id}, {metadata}, spec: {spec}}}\n")
    }

    fn permissive(mode: bool) -> String {
        mesh_config(&format!("{{traffic: {{enablePermissiveTrafficPolicyMode: {mode}}}}}"))
    }

    #[test]
    fn a_broken_file_brings_no_other_declaration_of_its_objects_into_effect() {
        let (strict, open, refused) = (permissive(false), permissive(true), mesh_config("7"));
        let broken = "--- [\n".to_owned();
        let (twice, once) = (format!("{strict}{open}"), format!("{broken}{open}"));
        for (before, after) in [
            // The other declaration is in another file, later or earlier, old or new.
            (vec![("a.yaml", &strict), ("z.yaml", &open)], vec![("a.yaml", &broken), ("z.yaml", &open)]),
            (vec![("m.yaml", &strict)], vec![("m.yaml", &broken), ("z.yaml", &open)]),
            (vec![("m.yaml", &strict)], vec![("a.yaml", &open), ("m.yaml", &broken)]),
            // It is in the same file.
            (vec![("a.yaml", &twice)], vec![("a.yaml", &once)]),
            // The first declaration has no effect, since it was refused.
            (vec![("a.yaml", &refused), ("z.yaml", &open)], vec![("a.yaml", &broken), ("z.yaml", &open)]),
        ] {
            let (before, _) = merge(&State::new(), &scan(&before));
            let (after, problems) = merge(&before, &scan(&after));
            assert_eq!(diff(&before, &after), [], "{problems:?}");
            let reported = |problem: &&Problem| problem.message.contains("which has no effect");
            assert_eq!(problems.iter().filter(reported).count(), 1, "{problems:?}");
            assert_eq!(
                merge(&after, &scan::<&str>(&[])).0,
                State::new(),
                "a file that is gone holds nothing"
            );
        }
    }

    #[test]
    fn what_a_broken_file_still_names_follows_it() {
        let (strict, open) = (permissive(false), permissive(true));
        let (before, _) = merge(&State::new(), &scan(&[("a.yaml", &strict), ("z.yaml", &strict)]));
        let (after, _) = merge(&before, &scan(&[("a.yaml", &(open + "--- [")), ("z.yaml", &strict)]));
        assert_eq!(diff(&before, &after).len(), 1);
    }

    #[test]
    fn a_removal_takes_a_second_scan_and_any_other_change_does_not() {
        let texts = [String::new(), account("a"), account("a") + &account("b")];
        let [empty, one, both] = texts.map(|text| scan(&[("x.yaml", &text)]));
        let (before, _) = merge(&State::new(), &one);
        for (scan, first, confirmed) in [
            (&empty, true, false),
            (&empty, false, true),
            (&one, true, true),
            (&one, false, true),
            (&both, true, true),
        ] {
            assert_eq!(confirm_removals(&before, scan, first).is_some(), confirmed, "{scan:?}");
        }
        let (after, _) = confirm_removals(&before, &one, false).unwrap();
        assert_eq!(diff(&before, &after), [], "a file that was empty for a moment withdraws nothing");
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

    /// `objects` after `events`.
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
                SourceEvent::Remove(_) => assert!(objects.remove(&name).is_some(), "{name} was never sent"),
            }
        }
        objects
    }

    fn in_effect(state: &State) -> BTreeMap<String, Object> {
        let named = |(reference, effective): (&ObjectRef, &Effective)| {
            effective.declaration.object.clone().map(|object| (reference.to_string(), object))
        };
        state.iter().filter_map(named).collect()
    }

    /// Files `a.yaml` to `c.yaml` with any of a few documents each, some of them broken.
    fn any_files() -> impl Strategy<Value = BTreeMap<&'static str, Vec<String>>> {
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
        prop::collection::btree_map(prop::sample::select(vec!["a.yaml", "b.yaml", "c.yaml"]), file, 0..4)
    }

    fn scan_of(files: &BTreeMap<&str, Vec<String>>) -> Scan {
        let texts: Vec<(&str, String)> = files.iter().map(|(name, docs)| (*name, docs.concat())).collect();
        scan(&texts)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn applying_every_difference_gives_every_state(files in prop::collection::vec(any_files(), 1..6)) {
            let mut state = State::new();
            let mut known = BTreeMap::new();
            for files in &files {
                let (next, _) = merge(&state, &scan_of(files));
                prop_assert_eq!(removes(&state, &next), in_effect(&state).keys().any(|k| !in_effect(&next).contains_key(k)));
                known = apply(known, diff(&state, &next));
                prop_assert_eq!(&known, &in_effect(&next));
                prop_assert_eq!(diff(&next, &next), []);
                state = next;
            }
        }

        #[test]
        fn documents_that_become_unreadable_change_nothing(
            files in any_files(),
            slips in prop::collection::vec(any::<bool>(), 12),
        ) {
            let (before, _) = merge(&State::new(), &scan_of(&files));
            let mut slips = slips.into_iter();
            let mut broken = files.clone();
            for document in broken.values_mut().flatten() {
                if slips.next().unwrap_or_default() {
                    *document = "--- [\n".to_owned();
                }
            }
            let (after, _) = merge(&before, &scan_of(&broken));
            prop_assert_eq!(diff(&before, &after), []);
        }
    }
}
