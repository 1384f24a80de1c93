//! The rules as tables, and the incremental state against the rules over a whole directory ([`whole`]).

mod whole;

use std::collections::BTreeSet;

use proptest::prelude::*;
use smc_api::object::Object;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Severity;

use super::*;
use crate::reading::FileReading;

fn reference(name: &str) -> ObjectRef {
    ObjectRef::Namespaced(Kind::ServiceAccount, NamespacedName::new("shop", name).unwrap())
}

fn account(name: &str) -> String {
    format!("--- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: shop}}}}\n")
}

/// A scan of files with these texts.
fn scan<T: AsRef<str>>(files: &[(&str, T)]) -> Scan {
    let read = |(name, text): &(&str, T)| {
        ((*name).to_owned(), FileReading::for_tests(name, text.as_ref().as_bytes()))
    };
    Scan { files: files.iter().map(read).collect(), ..Scan::default() }
}

/// The files and the objects after them.
#[derive(Debug, Clone, Default)]
struct Mesh {
    scan: Scan,
    objects: Objects,
}

/// The mesh after a full look, and its problems. Checks them against the rules over the whole directory.
fn merge(before: &Mesh, scan: &Scan) -> (Mesh, Vec<Problem>) {
    let mut after = before.clone();
    after.objects.replace_all(&before.scan, scan);
    after.scan = scan.clone();
    let old = &before.objects.state;
    let (state, problems) = whole::merge(old, scan, after.objects.limit);
    let changes = after.objects.changes(scan);
    assert_eq!(after.objects.removes(&changes), whole::removes(old, &state));
    let committed = after.objects.commit(changes);
    assert_eq!(after.objects.state, state);
    assert_eq!(after.objects.problems(), problems);
    assert_eq!(committed.events, whole::diff(old, &state));
    for (reference, effective) in &state {
        assert!(after.objects.by_file[effective.file()].contains(reference));
    }
    assert_eq!(after.objects.by_file.values().map(BTreeSet::len).sum::<usize>(), state.len());
    (after, problems)
}

fn diff(old: &Mesh, new: &Mesh) -> Vec<SourceEvent> {
    whole::diff(&old.objects.state, &new.objects.state)
}

fn names(mesh: &Mesh) -> Vec<String> {
    mesh.objects.state.keys().map(ToString::to_string).collect()
}

#[test]
fn the_first_declaration_stands_and_the_others_name_both_places() {
    let pod = |ip: &str| {
        format!("--- {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, status: {{podIP: {ip}}}}}\n")
    };
    let scan = scan(&[("b.yaml", &pod("10.0.0.2")), ("a.yaml", &("\n\n".to_owned() + &pod("10.0.0.1")))]);
    let (state, problems) = merge(&Mesh::default(), &scan);
    let effective = state.objects.state.values().next().unwrap();
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
    let (state, problems) = merge(&Mesh::default(), &scan(&[("a.yaml", bad), ("b.yaml", good)]));
    assert_eq!(diff(&Mesh::default(), &state), []);
    assert_eq!(problems.len(), 2);
}

#[test]
fn what_outlives_its_file() {
    let both = account("a") + &account("b");
    let (before, _) = merge(&Mesh::default(), &scan(&[("x.yaml", &both)]));
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
        assert_eq!(
            (names(&again), same_problems),
            (names(&after), problems),
            "nothing changes while nothing changes"
        );
    }
}

fn mesh_config(spec: &str) -> String {
    let id = "apiVersion: config.openservicemesh.io/v1alpha2, kind: MeshConfig";
    let metadata = "metadata: {name: osm-mesh-config, namespace: smc-system}";
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
        let (before, _) = merge(&Mesh::default(), &scan(&before));
        let (after, problems) = merge(&before, &scan(&after));
        assert_eq!(diff(&before, &after), [], "{problems:?}");
        let reported = |problem: &&Problem| problem.message.contains("which has no effect");
        assert_eq!(problems.iter().filter(reported).count(), 1, "{problems:?}");
        assert!(merge(&after, &scan::<&str>(&[])).0.objects.is_empty(), "a file that is gone holds nothing");
    }
}

#[test]
fn what_a_broken_file_still_names_follows_it() {
    let (strict, open) = (permissive(false), permissive(true));
    let (before, _) = merge(&Mesh::default(), &scan(&[("a.yaml", &strict), ("z.yaml", &strict)]));
    let (after, _) = merge(&before, &scan(&[("a.yaml", &(open + "--- [")), ("z.yaml", &strict)]));
    assert_eq!(diff(&before, &after).len(), 1);
}

#[test]
fn a_removal_takes_a_second_look_and_any_other_change_does_not() {
    let texts = [String::new(), account("a"), account("a") + &account("b")];
    let [empty, one, both] = texts.map(|text| scan(&[("x.yaml", &text)]));
    let (before, _) = merge(&Mesh::default(), &one);
    for (scan, removes) in [(&empty, true), (&one, false), (&both, false)] {
        let mut looked = before.clone();
        looked.objects.replace_all(&before.scan, scan);
        let changes = looked.objects.changes(scan);
        assert_eq!(looked.objects.removes(&changes), removes, "{scan:?}");
        // The second look finds the file as it was. What the first look saw was not committed.
        looked.objects.replace_all(scan, &one);
        let changes = looked.objects.changes(&one);
        assert!(!looked.objects.removes(&changes));
        assert_eq!(looked.objects.commit(changes), Committed::default(), "a moment withdraws nothing");
    }
}

#[test]
fn an_object_that_is_refused_is_removed_even_from_a_broken_file() {
    let good = "{apiVersion: v1, kind: Service, metadata: {name: a}}\n";
    let bad = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: 7}\n--- [";
    let (before, _) = merge(&Mesh::default(), &scan(&[("x.yaml", good)]));
    let (after, _) = merge(&before, &scan(&[("x.yaml", bad)]));
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

fn in_effect(mesh: &Mesh) -> BTreeMap<String, Object> {
    let named = |(reference, effective): (&ObjectRef, &Effective)| {
        effective.declaration.object.clone().map(|object| (reference.to_string(), object))
    };
    mesh.objects.state.iter().filter_map(named).collect()
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
        let mut state = Mesh::default();
        let mut known = BTreeMap::new();
        for files in &files {
            let (next, _) = merge(&state, &scan_of(files));
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
        let (before, _) = merge(&Mesh::default(), &scan_of(&files));
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

    /// Files change one at a time, and there may be more objects than are allowed.
    #[test]
    fn a_change_of_one_file_gives_the_state_of_the_whole_directory(
        steps in prop::collection::vec((any_files(), any::<bool>()), 1..8),
        limit in 1..4_usize,
    ) {
        let mut mesh = Mesh::default();
        mesh.objects.limit = limit;
        for (files, unread) in &steps {
            let target = scan_of(files);
            for name in ["a.yaml", "b.yaml", "c.yaml"] {
                let mut next = mesh.scan.clone();
                let reading = target.files.get(name).cloned();
                if *unread && reading.is_none() {
                    next.unread.insert(name.to_owned());
                } else {
                    next.unread.remove(name);
                }
                match reading {
                    Some(reading) => _ = next.files.insert(name.to_owned(), reading),
                    None => _ = next.files.remove(name),
                }
                mesh = merge(&mesh, &next).0;
            }
        }
    }

    #[test]
    fn what_is_kept_is_the_state_after_a_restart(files in prop::collection::vec(any_files(), 1..4)) {
        let mut mesh = Mesh::default();
        for files in &files {
            mesh = merge(&mesh, &scan_of(files)).0;
        }
        let files: Vec<Arc<str>> = mesh.objects.files().cloned().collect();
        let kept = Objects::kept(files.iter().flat_map(|file| mesh.objects.of_file(file)));
        let restarted = Mesh { scan: Scan::default(), objects: kept };
        prop_assert_eq!(in_effect(&restarted), in_effect(&mesh));
        let (again, problems) = merge(&restarted, &mesh.scan);
        prop_assert_eq!(&again.objects.state, &mesh.objects.state);
        prop_assert_eq!(problems, mesh.objects.problems());
    }
}

#[test]
fn a_change_merges_the_objects_of_its_file_and_no_others() {
    let files: Vec<(String, String)> =
        (0..2_000).map(|n| (format!("{n}.yaml"), account(&format!("a{n}")) + &account("same"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (mut mesh, _) = merge(&Mesh::default(), &scan(&files));
    let before = mesh.objects.merged();
    let new = FileReading::for_tests("7.yaml", account("new").as_bytes());
    let old = mesh.scan.files.insert("7.yaml".to_owned(), new.clone()).unwrap();
    mesh.objects.replace_file("7.yaml", Some(&old.manifest), Some(&new.manifest));
    let changes = mesh.objects.changes(&mesh.scan);
    assert_eq!(mesh.objects.commit(changes).events.len(), 2);
    assert_eq!(mesh.objects.merged() - before, 3, "the one that is gone, the one that is new, and `same`");
}
