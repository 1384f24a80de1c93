//! Copies in a real directory.

use std::os::unix::fs::PermissionsExt;

use super::*;
use smc_decode::manifest;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The objects of a group with this text.
fn objects(group: &str, text: &str) -> Vec<Kept> {
    let declarations = manifest::read(group, text.as_bytes()).declarations;
    declarations.into_iter().map(|declaration| Kept { declaration, times: 1 }).collect()
}

fn account(name: &str) -> String {
    format!("--- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: shop}}}}\n")
}

/// Writes everything that waits.
fn save(last_good: &mut LastGood) {
    while let Some(saving) = last_good.begin() {
        if !last_good.finish(saving.run(&CancellationToken::new())) {
            break;
        }
    }
}

/// What a fresh start loads after these groups were kept as well.
fn kept(copies: &Path, source: &str, groups: &[(&str, &str)]) -> Vec<String> {
    let mut last_good = LastGood::new(copies.to_owned(), source, Arc::default());
    last_good.load();
    for (group, text) in groups {
        last_good.keep(&Arc::from(*group), objects(group, text));
    }
    save(&mut last_good);
    assert_eq!(last_good.problem(), None);
    assert!(last_good.begin().is_none());
    let mut again = LastGood::new(copies.to_owned(), source, Arc::default());
    let show = |kept: &Kept| format!("{} {}", kept.declaration.origin, kept.declaration.reference);
    again.load().iter().map(show).collect()
}

#[test]
fn objects_are_kept_in_private_until_they_are_gone() {
    let base = tempfile::tempdir().unwrap();
    let copies = base.path().join("copies");
    let (one, two) = (account("a"), account("b") + &account("c"));
    let all = ["a.yaml:1 ServiceAccount shop/a", "b/b.yaml:1 ServiceAccount shop/b"];
    assert_eq!(kept(&copies, "x", &[("a.yaml", &one), ("b/b.yaml", &two)])[..2], all);
    assert_eq!(mode(&copies), 0o700);
    assert!(fs::read_dir(&copies).unwrap().all(|copy| mode(&copy.unwrap().path()) == 0o600));
    assert_eq!(kept(&copies, "x", &[("b/b.yaml", "")]), ["a.yaml:1 ServiceAccount shop/a"]);
    assert_eq!(kept(&copies, "x", &[("a.yaml", "")]), Vec::<String>::new());
    assert_eq!(fs::read_dir(&copies).unwrap().count(), 0);
}

#[test]
fn a_kept_object_is_the_object_also_when_it_was_refused() {
    let base = tempfile::tempdir().unwrap();
    let text =
        format!("{}--- {{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: 7}}\n", account("a"));
    let mut sent = objects("a.yaml", &text);
    sent[0].times = 2;
    let mut last_good = LastGood::new(base.path().join("copies"), "x", Arc::default());
    last_good.keep(&Arc::from("a.yaml"), sent.clone());
    save(&mut last_good);
    assert_eq!(LastGood::new(base.path().join("copies"), "x", Arc::default()).load(), sent);
}

#[test]
fn a_large_mesh_is_kept_in_steps_and_only_what_differs_is_written() {
    let base = tempfile::tempdir().unwrap();
    let mut last_good = LastGood::new(base.path().join("copies"), "x", Arc::default());
    let keep_all = |last_good: &mut LastGood| {
        for n in 0..=MAX_SAVED_AT_ONCE {
            let group = n.to_string();
            last_good.keep(&Arc::from(&*group), objects(&group, &account("a")));
        }
    };
    keep_all(&mut last_good);
    let first = last_good.begin().unwrap().run(&CancellationToken::new());
    assert!(last_good.finish(first), "one remains");
    save(&mut last_good);
    assert_eq!(fs::read_dir(base.path().join("copies")).unwrap().count(), MAX_SAVED_AT_ONCE + 1);
    let inode =
        |name: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(last_good.place.path(name)).unwrap());
    let before = inode("7");
    let mut again = LastGood::new(base.path().join("copies"), "x", Arc::default());
    again.load();
    keep_all(&mut again);
    save(&mut again);
    assert_eq!(inode("7"), before);
}

#[test]
fn strays_and_copies_of_another_source_are_ignored_and_removed() {
    let base = tempfile::tempdir().unwrap();
    let copies = base.path().join("copies");
    assert_eq!(kept(&copies, "other", &[("a.yaml", &account("a"))]).len(), 1);
    fs::write(copies.join("garbage"), [0xff]).unwrap();
    let elsewhere = fs::read_dir(&copies).unwrap().next().unwrap().unwrap().path();
    fs::copy(elsewhere, copies.join("wrong-name")).unwrap();
    assert_eq!(kept(&copies, "x", &[]), Vec::<String>::new());
    assert_eq!(fs::read_dir(&copies).unwrap().count(), 0);
}

#[test]
fn a_copy_that_cannot_be_written_is_a_problem_and_tried_again() {
    let base = tempfile::tempdir().unwrap();
    let copies = base.path().join("copies");
    fs::write(&copies, "a file").unwrap();
    let mut last_good = LastGood::new(copies.clone(), "x", Arc::default());
    last_good.keep(&Arc::from("a.yaml"), objects("a.yaml", &account("a")));
    let failed = last_good.begin().unwrap().run(&CancellationToken::new());
    // What is noted while a copy is written is newer than that copy.
    last_good.keep(&Arc::from("a.yaml"), objects("a.yaml", &account("b")));
    assert!(!last_good.finish(failed));
    assert!(last_good.problem().unwrap().message.contains("no copies can be kept"));
    fs::remove_file(&copies).unwrap();
    save(&mut last_good);
    assert_eq!(last_good.problem(), None);
    assert_eq!(
        LastGood::new(copies, "x", Arc::default()).load()[0].declaration.reference.to_string(),
        "ServiceAccount shop/b"
    );
}

#[test]
fn a_shutdown_leaves_the_rest_for_later() {
    let base = tempfile::tempdir().unwrap();
    let mut last_good = LastGood::new(base.path().join("copies"), "x", Arc::default());
    last_good.keep(&Arc::from("a.yaml"), objects("a.yaml", &account("a")));
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let saved = last_good.begin().unwrap().run(&shutdown);
    assert!(last_good.finish(saved), "it still waits");
    save(&mut last_good);
    assert_eq!(last_good.load().len(), 1);
}
