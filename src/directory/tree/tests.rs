//! Looks at a real directory, with the work that each takes. Time is a number.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::*;

/// As many files as the mesh of the fan-out bench has.
const FILES: usize = 2_000;

fn account(name: &str) -> String {
    format!("--- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: shop}}}}\n")
}

struct Looker {
    directory: tempfile::TempDir,
    tree: Tree,
    watch: Watch,
    start: Instant,
}

impl Looker {
    /// Over a directory prepared by `prepare`, which was looked at once.
    fn over(prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let watch = Watch::new(directory.path().to_owned());
        let tree = Tree::new(directory.path().to_owned(), Objects::default(), Arc::default());
        let mut looker = Self { directory, tree, watch, start: Instant::now() };
        looker.look(0, &Scope::Full);
        looker
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Looks at this second, and commits. Returns the events, whether the find was doubtful, and the work.
    fn look(&mut self, second: u64, look: &Scope) -> (usize, bool, Work) {
        let before = self.tree.work();
        let now = self.start + Duration::from_secs(second);
        let found = self.tree.look(look, &mut self.watch, now, &CancellationToken::new()).unwrap();
        let events = self.tree.objects.commit(found.changes).events.len();
        let after = self.tree.work();
        let work =
            Work { full_looks: after.full_looks - before.full_looks, files: after.files - before.files };
        (events, found.doubtful, work)
    }
}

fn at(paths: &[&str]) -> Scope {
    Scope::At(paths.iter().map(|&path| path.to_owned()).collect())
}

const fn work(full_looks: usize, files: usize) -> Work {
    Work { full_looks, files }
}

#[test]
fn a_change_costs_its_file_and_a_later_full_look_opens_nothing() {
    let mut looker = Looker::over(|mesh| {
        for n in 0..FILES {
            fs::write(mesh.join(format!("{n}.yaml")), account(&format!("a{n}"))).unwrap();
        }
    });
    assert_eq!(looker.tree.work(), work(1, FILES));
    let merged = looker.tree.objects.merged();
    fs::write(looker.path("7.yaml"), account("a7") + &account("new")).unwrap();
    assert_eq!(looker.look(1, &at(&["7.yaml"])), (1, false, work(0, 1)));
    assert_eq!(looker.tree.objects.merged() - merged, 2, "the objects of the file");
    // The second full look reads everything once more, since a stamp of the same moment proves nothing.
    assert_eq!(looker.look(30, &Scope::Full), (0, false, work(1, FILES)));
    assert_eq!(looker.look(60, &Scope::Full), (0, false, work(1, 0)));
    // A change without an event.
    fs::write(looker.path("9.yaml"), account("a9") + &account("newer")).unwrap();
    assert_eq!(looker.look(90, &Scope::Full), (1, false, work(1, 1)));
}

#[test]
fn only_what_looks_unfinished_or_taken_away_is_doubtful() {
    let mut looker = Looker::over(|mesh| {
        fs::write(mesh.join("a.yaml"), account("a")).unwrap();
        fs::write(mesh.join("b.yaml"), "{").unwrap();
    });
    for (file, text, expected) in [
        ("a.yaml", account("a") + &account("b"), (1, false, work(0, 1))),
        ("new.yaml", account("new"), (1, false, work(0, 1))),
        ("b.yaml", "{".to_owned(), (0, false, work(0, 1))),
        ("b.yaml", "{{".to_owned(), (0, true, work(0, 1))),
        ("b.yaml", account("c"), (1, false, work(0, 1))),
        ("a.yaml", account("a"), (1, true, work(0, 1))),
        ("notes.txt", account("x"), (0, false, work(0, 0))),
        (".a.yaml", account("x"), (0, false, work(0, 0))),
    ] {
        fs::write(looker.path(file), text).unwrap();
        assert_eq!(looker.look(1, &at(&[file])), expected, "{file}");
    }
    fs::remove_file(looker.path("a.yaml")).unwrap();
    assert_eq!(looker.look(1, &at(&["a.yaml"])), (1, true, work(0, 0)));
    assert_eq!(looker.look(1, &at(&["a.yaml", "gone.yaml"])), (0, false, work(0, 0)));
}

#[test]
fn what_a_path_alone_does_not_explain_takes_a_full_look() {
    let mut looker = Looker::over(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    fs::create_dir(looker.path("new")).unwrap();
    fs::write(looker.path("new/b.yaml"), account("b")).unwrap();
    // A directory is watched a moment after it was made, so its files are looked at again.
    assert_eq!(looker.look(1, &at(&["new"])), (1, true, work(1, 2)));
    fs::write(looker.path("new/b.yaml"), account("b") + &account("c")).unwrap();
    assert_eq!(looker.look(1, &at(&["new/b.yaml"])), (1, false, work(0, 1)));
    fs::rename(looker.path("new"), looker.path("old")).unwrap();
    assert_eq!(looker.look(1, &at(&["new", "old"])), (0, true, work(1, 2)));
    fs::remove_dir_all(looker.path("old")).unwrap();
    assert_eq!(looker.look(1, &at(&["old", "old/b.yaml"])), (2, true, work(1, 1)));
    // A file that becomes a directory, and one that cannot be read.
    fs::remove_file(looker.path("a.yaml")).unwrap();
    fs::create_dir(looker.path("a.yaml")).unwrap();
    assert_eq!(looker.look(1, &at(&["a.yaml"])), (1, true, work(1, 0)));
    nix::unistd::mkfifo(&looker.path("pipe.yaml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(looker.look(1, &at(&["pipe.yaml"])), (0, true, work(1, 0)));
    assert_eq!(looker.tree.objects.problems().len(), 1);
    fs::remove_file(looker.path("pipe.yaml")).unwrap();
    assert_eq!(looker.look(1, &at(&["pipe.yaml"])), (0, true, work(1, 0)));
    assert_eq!(looker.tree.objects.problems(), []);
}

#[test]
fn with_links_every_change_takes_a_full_look() {
    let mut looker = Looker::over(|mesh| {
        fs::create_dir(mesh.join("..v1")).unwrap();
        fs::write(mesh.join("..v1/a.yaml"), account("a")).unwrap();
        symlink("..v1", mesh.join("..data")).unwrap();
        symlink("..data/a.yaml", mesh.join("a.yaml")).unwrap();
    });
    fs::create_dir(looker.path("..v2")).unwrap();
    fs::write(looker.path("..v2/a.yaml"), account("a") + &account("b")).unwrap();
    symlink("..v2", looker.path("..data_tmp")).unwrap();
    fs::rename(looker.path("..data_tmp"), looker.path("..data")).unwrap();
    assert_eq!(looker.look(1, &at(&["..data"])), (1, false, work(1, 1)));
    fs::write(looker.path("..v2/a.yaml"), account("a") + &account("b") + &account("c")).unwrap();
    assert_eq!(looker.look(1, &at(&["..v2/a.yaml"])), (1, false, work(1, 1)));
}

#[test]
fn a_link_that_takes_the_place_of_a_file_or_directory_does_not_lead_out() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a.yaml"), account("secret")).unwrap();
    let mut looker = Looker::over(|mesh| {
        fs::create_dir(mesh.join("below")).unwrap();
        fs::write(mesh.join("below/a.yaml"), account("a")).unwrap();
        fs::write(mesh.join("b.yaml"), account("b")).unwrap();
    });
    fs::remove_file(looker.path("b.yaml")).unwrap();
    symlink(outside.path().join("a.yaml"), looker.path("b.yaml")).unwrap();
    assert_eq!(looker.look(1, &at(&["b.yaml"])), (1, true, work(1, 1)), "b is gone");
    fs::remove_file(looker.path("b.yaml")).unwrap();
    looker.look(1, &Scope::Full);
    fs::remove_dir_all(looker.path("below")).unwrap();
    symlink(outside.path(), looker.path("below")).unwrap();
    assert_eq!(looker.look(1, &at(&["below/a.yaml"])), (1, true, work(1, 0)), "a is gone");
    assert!(looker.tree.objects.is_empty());
}

#[test]
fn another_directory_in_its_place_is_read_as_a_whole() {
    let mut looker = Looker::over(|mesh| {
        fs::create_dir(mesh.join("mesh")).unwrap();
        fs::write(mesh.join("mesh/a.yaml"), account("a")).unwrap();
    });
    let mesh = looker.path("mesh");
    (looker.tree, looker.watch) =
        (Tree::new(mesh.clone(), Objects::default(), Arc::default()), Watch::new(mesh.clone()));
    looker.look(0, &Scope::Full);
    fs::rename(&mesh, looker.path("away")).unwrap();
    let now = looker.start;
    let gone = looker.tree.look(&at(&["a.yaml"]), &mut looker.watch, now, &CancellationToken::new());
    assert!(gone.is_err(), "nothing is known about the file");
    fs::create_dir(&mesh).unwrap();
    fs::write(mesh.join("b.yaml"), account("b")).unwrap();
    assert_eq!(looker.look(1, &at(&["a.yaml"])), (2, true, work(1, 1)));
}
