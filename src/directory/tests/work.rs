//! What a change costs: the files that the source opens, as the operating system counts them.

use std::sync::{Arc, Mutex};

use notify::event::AccessKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::*;

/// As many files as the mesh of the fan-out bench has.
const FILES: usize = 2_000;

/// Counts what is opened in a directory, by whomever.
struct Opened {
    paths: Arc<Mutex<Vec<PathBuf>>>,
    _watcher: RecommendedWatcher,
}

impl Opened {
    fn below(directory: &Path) -> Self {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&paths);
        let count = move |event: notify::Result<notify::Event>| {
            let event = event.expect("an event");
            if matches!(event.kind, EventKind::Access(AccessKind::Open(_))) {
                log.lock().unwrap().extend(event.paths);
            }
        };
        let mut watcher = notify::recommended_watcher(count).unwrap();
        watcher.watch(directory, RecursiveMode::Recursive).unwrap();
        Self { paths, _watcher: watcher }
    }

    /// How many manifests and directories were opened since the last call, and the first of them, after the
    /// directory has been left alone for longer than the source waits for anything but its slow full look.
    async fn since(&self) -> (usize, Option<String>) {
        tokio::time::sleep(MAX_SETTLE + 4 * QUIET).await;
        let opened = std::mem::take(&mut *self.paths.lock().unwrap());
        let read = |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|end| end == "yaml");
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let mut read = opened.into_iter().filter(read).map(name);
        let first = read.next();
        (usize::from(first.is_some()) + read.count(), first)
    }
}

#[tokio::test]
async fn an_edit_of_one_of_two_thousand_files_reads_one_file_and_wakes_nobody() {
    let mut source = Running::start(|mesh| {
        for n in 0..FILES {
            fs::write(mesh.join(format!("{n}.yaml")), account(&format!("a{n}"))).unwrap();
        }
    });
    assert_eq!(source.batch().await.events.len(), FILES);
    let opened = Opened::below(&source.path(""));
    assert_eq!(opened.since().await, (0, None), "an idle source opens nothing");
    for n in [3, 1_999] {
        replace(
            &source.path(&format!("{n}.yaml")),
            &(account(&format!("a{n}")) + &account(&format!("b{n}"))),
        );
        assert_eq!(events(&source.batch().await), [format!("+ServiceAccount shop/b{n}")]);
        assert_eq!(opened.since().await, (1, Some(format!("{n}.yaml"))), "the file that changed, once");
    }
    // Neither a file that is no manifest nor a hidden one is looked at.
    fs::write(source.path("notes.txt"), account("x")).unwrap();
    fs::write(source.path(".hidden.yaml"), account("x")).unwrap();
    assert_eq!(opened.since().await, (1, Some(".hidden.yaml".to_owned())), "by this test");
    source.end().await;
}
