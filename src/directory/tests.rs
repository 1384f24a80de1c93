//! The source over a real directory and a real watch, with the ways in which editors change files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use smc_api::object::SourceEvent;
use smc_types::problem::Severity;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

mod work;

/// Longer than any wait of the source in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

fn account(name: &str) -> String {
    format!("--- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: shop}}}}\n")
}

/// Writes a file as `kubelet`, `git` and careful editors do.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(&next, path).unwrap();
}

/// A running source over a directory of its own.
struct Running {
    directory: tempfile::TempDir,
    batches: mpsc::Receiver<Batch>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), SourceError>>,
}

impl Running {
    /// Starts over a directory prepared by `prepare`.
    fn start(prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mesh = directory.path().join("mesh");
        fs::create_dir(&mesh).unwrap();
        prepare(&mesh);
        Self::over(directory)
    }

    fn over(directory: tempfile::TempDir) -> Self {
        let (sender, batches) = mpsc::channel(1);
        let shutdown = CancellationToken::new();
        let source = DirectorySource::new(
            directory.path().join("mesh"),
            directory.path().join("copies"),
            MeshName::default(),
        );
        let task = tokio::spawn(Box::new(source).run(sender, shutdown.clone()));
        Self { directory, batches, shutdown, task }
    }

    /// Ends the source and starts another over the same directories, with `meanwhile` in between.
    async fn restart(self, meanwhile: impl FnOnce(&Path)) -> Self {
        let Self { directory, shutdown, task, .. } = self;
        shutdown.cancel();
        timeout(TIMEOUT, task).await.expect("an end in time").unwrap().unwrap();
        meanwhile(&directory.path().join("mesh"));
        Self::over(directory)
    }

    /// Waits until there are this many copies.
    async fn kept(&self, copies: usize) {
        let is_copy = |name: std::ffi::OsString| !name.to_string_lossy().ends_with(".new");
        let kept = async {
            while fs::read_dir(self.directory.path().join("copies")).map_or(0, |entries| {
                entries.filter(|entry| is_copy(entry.as_ref().unwrap().file_name())).count()
            }) != copies
            {
                tokio::time::sleep(QUIET).await;
            }
        };
        timeout(TIMEOUT, kept).await.expect("copies in time");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("mesh").join(name)
    }

    async fn batch(&mut self) -> Batch {
        timeout(TIMEOUT, self.batches.recv()).await.expect("a batch in time").expect("a running source")
    }

    /// Waits until the channel holds a batch, and leaves it there.
    async fn batch_waits(&self) {
        let waits = async {
            while self.batches.is_empty() {
                tokio::time::sleep(QUIET).await;
            }
        };
        timeout(TIMEOUT, waits).await.expect("a batch in time");
    }

    /// Ends the source, which must not have sent another batch.
    async fn end(mut self) {
        assert_eq!(self.batches.try_recv().ok(), None);
        self.shutdown.cancel();
        timeout(TIMEOUT, self.task).await.expect("an end in time").unwrap().unwrap();
    }
}

/// Events as `+object` and `-object`.
fn events(batch: &Batch) -> Vec<String> {
    let show = |event: &SourceEvent| match event {
        SourceEvent::Upsert(object) => format!("+{}", object_name(object)),
        SourceEvent::Remove(reference) => format!("-{reference}"),
    };
    batch.events.iter().map(show).collect()
}

fn object_name(object: &smc_mesh::catalog::Object) -> String {
    match object {
        smc_mesh::catalog::Object::ServiceAccount(account) => format!("ServiceAccount {account}"),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_batch_is_the_whole_directory_and_synced_even_when_empty() {
    let mut source = Running::start(|mesh| {
        fs::create_dir(mesh.join("more")).unwrap();
        fs::write(mesh.join("more/b.yaml"), account("b")).unwrap();
        fs::write(mesh.join("a.yaml"), account("a") + "---\nbroken: [\n").unwrap();
    });
    let batch = source.batch().await;
    assert_eq!(events(&batch), ["+ServiceAccount shop/a", "+ServiceAccount shop/b"]);
    assert_eq!(batch.problems.len(), 1);
    assert!(batch.synced);
    source.end().await;

    let mut empty = Running::start(|_| {});
    assert_eq!(empty.batch().await, Batch { events: vec![], problems: vec![], synced: true, revision: None });
    empty.end().await;
}

#[tokio::test]
async fn edits_new_files_new_directories_and_removals_are_sent_and_nothing_else() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    source.batch().await;
    fs::write(source.path("a.yaml"), account("a") + &account("b")).unwrap();
    assert_eq!(events(&source.batch().await), ["+ServiceAccount shop/b"]);
    replace(&source.path("a.yaml"), &account("b"));
    assert_eq!(events(&source.batch().await), ["-ServiceAccount shop/a"]);
    fs::create_dir(source.path("new")).unwrap();
    replace(&source.path("new/c.yaml"), &account("c"));
    assert_eq!(events(&source.batch().await), ["+ServiceAccount shop/c"]);
    // A change deep down is noticed as well, in a directory that came later than the watch.
    replace(&source.path("new/c.yaml"), &(account("c") + &account("d")));
    assert_eq!(events(&source.batch().await), ["+ServiceAccount shop/d"]);
    fs::remove_file(source.path("a.yaml")).unwrap();
    assert_eq!(events(&source.batch().await), ["-ServiceAccount shop/b"]);
    fs::remove_dir_all(source.path("new")).unwrap();
    assert_eq!(events(&source.batch().await), ["-ServiceAccount shop/c", "-ServiceAccount shop/d"]);
    // Comments and other files change nothing.
    fs::write(source.path("notes.txt"), account("x")).unwrap();
    fs::write(source.path("empty.yaml"), "# nothing\n").unwrap();
    tokio::time::sleep(4 * QUIET).await;
    source.end().await;
}

#[tokio::test]
async fn an_object_that_moves_to_another_file_causes_no_event() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    source.batch().await;
    fs::rename(source.path("a.yaml"), source.path("z.yaml")).unwrap();
    tokio::time::sleep(6 * QUIET).await;
    source.end().await;
}

#[tokio::test]
async fn a_config_map_swap_is_one_change() {
    let mut source = Running::start(|mesh| {
        fs::create_dir(mesh.join("..v1")).unwrap();
        fs::write(mesh.join("..v1/a.yaml"), account("a")).unwrap();
        symlink("..v1", mesh.join("..data")).unwrap();
        symlink("..data/a.yaml", mesh.join("a.yaml")).unwrap();
    });
    assert_eq!(events(&source.batch().await), ["+ServiceAccount shop/a"]);
    fs::create_dir(source.path("..v2")).unwrap();
    fs::write(source.path("..v2/a.yaml"), account("b")).unwrap();
    symlink("..v2", source.path("..data_tmp")).unwrap();
    fs::rename(source.path("..data_tmp"), source.path("..data")).unwrap();
    fs::remove_dir_all(source.path("..v1")).unwrap();
    assert_eq!(events(&source.batch().await), ["-ServiceAccount shop/a", "+ServiceAccount shop/b"]);
    source.end().await;
}

/// It goes when the file is mended without it.
#[tokio::test]
async fn what_a_file_declared_stays_while_it_is_broken() {
    let mut source = Running::start(|mesh| {
        fs::write(mesh.join("a.yaml"), account("a") + &account("b")).unwrap();
    });
    source.batch().await;
    replace(&source.path("a.yaml"), &(account("a") + "---\nkind: [ServiceAcc\n" + &account("c")));
    let broken = source.batch().await;
    assert_eq!(events(&broken), ["+ServiceAccount shop/c"], "b is kept, and c is read all the same");
    let severities: Vec<Severity> = broken.problems.iter().map(|problem| problem.severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning]);
    assert!(broken.problems[1].message.contains("ServiceAccount shop/b"), "{:?}", broken.problems);
    replace(&source.path("a.yaml"), &account("a"));
    let mended = source.batch().await;
    assert_eq!(events(&mended), ["-ServiceAccount shop/b", "-ServiceAccount shop/c"]);
    assert_eq!(mended.problems, []);
    source.end().await;
}

#[tokio::test]
async fn while_the_directory_is_gone_all_stays_and_its_return_is_followed() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    source.batch().await;
    let (mesh, away) = (source.directory.path().join("mesh"), source.directory.path().join("away"));
    fs::rename(&mesh, &away).unwrap();
    let gone = source.batch().await;
    assert_eq!((events(&gone), gone.problems.len()), (vec![], 1));
    fs::create_dir(&mesh).unwrap();
    replace(&mesh.join("b.yaml"), &account("b"));
    let mut all = Vec::new();
    while all.len() < 2 {
        all.extend(events(&source.batch().await));
    }
    all.sort();
    assert_eq!(all, ["+ServiceAccount shop/b", "-ServiceAccount shop/a"]);
    replace(&mesh.join("b.yaml"), &(account("b") + &account("c")));
    assert_eq!(events(&source.batch().await), ["+ServiceAccount shop/c"]);
    source.end().await;
}

#[tokio::test]
async fn a_directory_that_was_never_there_is_an_error_that_names_it() {
    let (sender, _batches) = mpsc::channel(1);
    let copies = tempfile::tempdir().unwrap();
    let source = DirectorySource::new("/nowhere/at/all", copies.path().join("copies"), MeshName::default());
    let run = Box::new(source).run(sender, CancellationToken::new());
    let error = timeout(TIMEOUT, run).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[tokio::test]
async fn the_source_ends_without_a_receiver_and_on_shutdown_with_a_full_channel() {
    let source = Running::start(|_| {});
    drop(source.batches);
    timeout(TIMEOUT, source.task).await.unwrap().unwrap().unwrap();

    let source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    // The first batch fills the channel, the second has to wait for room.
    source.batch_waits().await;
    replace(&source.path("a.yaml"), &account("b"));
    tokio::time::sleep(8 * QUIET).await;
    source.shutdown.cancel();
    timeout(TIMEOUT, source.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn changes_while_no_batch_is_received_arrive_as_one() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    source.batch_waits().await;
    replace(&source.path("a.yaml"), &(account("a") + &account("b")));
    tokio::time::sleep(4 * QUIET).await;
    for name in ["c", "d", "e"] {
        replace(&source.path(&format!("{name}.yaml")), &account(name));
        tokio::time::sleep(2 * QUIET).await;
    }
    assert_eq!(events(&source.batch().await), ["+ServiceAccount shop/a"]);
    // One batch waits to be sent; all later changes are in the next one.
    let mut rest = events(&source.batch().await);
    if rest.len() < 4 {
        rest.extend(events(&source.batch().await));
    }
    let all = ["b", "c", "d", "e"].map(|name| format!("+ServiceAccount shop/{name}"));
    assert_eq!(rest, all);
    source.end().await;
}

#[tokio::test]
async fn an_unreadable_file_keeps_what_it_declared() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    source.batch().await;
    // Not permissions, which root ignores: a dangling link.
    fs::remove_file(source.path("a.yaml")).unwrap();
    symlink("nowhere", source.path("a.yaml")).unwrap();
    let batch = source.batch().await;
    assert_eq!(events(&batch), Vec::<String>::new());
    assert_eq!(batch.problems.len(), 2, "{:?}", batch.problems);
    source.end().await;
}

#[tokio::test]
async fn a_restart_while_a_file_is_broken_takes_nothing_back() {
    let mut source = Running::start(|mesh| {
        fs::write(mesh.join("a.yaml"), account("a") + &account("b")).unwrap();
        fs::write(mesh.join("z.yaml"), account("z")).unwrap();
    });
    source.batch().await;
    source.kept(2).await;
    let mut source = source
        .restart(|mesh| {
            replace(&mesh.join("a.yaml"), &(account("a") + "---\nkind: [ServiceAcc\n"));
            fs::remove_file(mesh.join("z.yaml")).unwrap();
        })
        .await;
    let broken = source.batch().await;
    assert_eq!(
        events(&broken),
        ["+ServiceAccount shop/a", "+ServiceAccount shop/b"],
        "and z is gone for sure"
    );
    assert!(broken.problems[1].message.contains("ServiceAccount shop/b"), "{:?}", broken.problems);
    source.kept(1).await;
    let mut source = source.restart(|_| {}).await;
    assert_eq!(source.batch().await, broken, "nor does another restart");
    replace(&source.path("a.yaml"), &account("a"));
    assert_eq!(events(&source.batch().await), ["-ServiceAccount shop/b"]);
    source.end().await;
}

fn pod(ip: &str) -> String {
    format!(
        "--- {{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: shop}}, status: {{podIP: {ip}}}}}\n"
    )
}

/// The objects of a file are kept one by one, each as it was read last, and not the file's last good text.
#[tokio::test]
async fn a_restart_brings_back_no_object_from_before_its_last_good_version() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), pod("10.0.0.1")).unwrap());
    source.batch().await;
    replace(&source.path("a.yaml"), &(pod("10.0.0.2") + "---\nkind: [ServiceAcc\n"));
    let newer = events(&source.batch().await);
    assert!(newer[0].contains("10.0.0.2"), "{newer:?}");
    replace(&source.path("a.yaml"), "{");
    assert_eq!(events(&source.batch().await), Vec::<String>::new());
    tokio::time::sleep(4 * QUIET).await;
    let mut source = source.restart(|_| {}).await;
    assert_eq!(events(&source.batch().await), newer);
    source.end().await;
}

#[tokio::test]
async fn a_restart_while_the_directory_is_away_goes_on_with_what_it_held() {
    let mut source = Running::start(|mesh| fs::write(mesh.join("a.yaml"), account("a")).unwrap());
    source.batch().await;
    source.kept(1).await;
    let mut source = source.restart(|mesh| fs::rename(mesh, mesh.with_extension("away")).unwrap()).await;
    let away = source.batch().await;
    assert_eq!((events(&away), away.problems.len()), (vec!["+ServiceAccount shop/a".to_owned()], 1));
    let mesh = source.directory.path().join("mesh");
    fs::rename(mesh.with_extension("away"), &mesh).unwrap();
    let back = source.batch().await;
    assert_eq!((events(&back), back.problems), (vec![], vec![]));
    source.end().await;
}

#[tokio::test]
async fn where_no_copies_can_be_kept_the_mesh_is_sent_with_a_problem() {
    let mut source = Running::start(|mesh| {
        fs::write(mesh.join("a.yaml"), account("a")).unwrap();
        fs::write(mesh.with_file_name("copies"), "a file").unwrap();
    });
    let batch = source.batch().await;
    assert_eq!(events(&batch), ["+ServiceAccount shop/a"]);
    assert!(batch.problems[0].message.contains("no copies can be kept"), "{:?}", batch.problems);
    source.end().await;
}
