//! A running source, and what it has said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smc::sources::{Batch, KubernetesSource, Source, SourceError};
use smc::telemetry::Metrics;
use smc_host::env::Env;
use smc_mesh::catalog::SourceEvent;
use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::problem::Problem;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::gate::Gate;

/// Longer than any wait of the source, on a machine that may be busy compiling.
const LIMIT: Duration = Duration::from_mins(3);

/// A source of the mesh `smc`, whose control plane is in `own`.
pub(super) struct Watcher {
    batches: mpsc::Receiver<Batch>,
    objects: BTreeSet<String>,
    /// Every object that was removed, also one that came back.
    removed: BTreeSet<String>,
    problems: Vec<Problem>,
    metrics: Metrics,
    directory: TempDir,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), SourceError>>,
}

impl Watcher {
    /// Starts a source with an empty directory.
    pub(super) fn start(gate: Gate) -> Self {
        Self::over(gate, tempfile::tempdir().unwrap())
    }

    /// Starts a source with the directory of an earlier one.
    pub(super) fn over(gate: Gate, directory: TempDir) -> Self {
        let (sender, batches) = mpsc::channel(4);
        let (shutdown, metrics) = (CancellationToken::new(), Metrics::new());
        let own = MeshNamespace::new("own").unwrap();
        let last_known = directory.path().join("last-known-mesh");
        let mut source = Box::new(KubernetesSource::new(
            Arc::new(gate),
            MeshName::default(),
            own,
            last_known,
            Env::system(),
        ));
        source.report_to(&metrics);
        let task = tokio::spawn(source.run(sender, shutdown.clone()));
        let (objects, removed, problems) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Self { batches, objects, removed, problems, metrics, directory, shutdown, task }
    }

    /// Ends the source, and returns its directory.
    pub(super) async fn stop(self) -> TempDir {
        self.shutdown.cancel();
        timeout(LIMIT, self.task).await.expect("an end in time").unwrap().unwrap();
        self.directory
    }

    fn take(&mut self, batch: Batch) {
        assert!(batch.synced);
        for event in batch.events {
            match event {
                SourceEvent::Upsert(object) => _ = self.objects.insert(object.reference().to_string()),
                SourceEvent::Remove(reference) => {
                    assert!(self.objects.remove(&reference.to_string()), "{reference} was never sent");
                    self.removed.insert(reference.to_string());
                }
            }
        }
        self.problems = batch.problems;
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !done(self) {
            match timeout_at(end, self.batches.recv()).await {
                Ok(Some(batch)) => self.take(batch),
                Ok(None) => panic!("the source ended while it was to {what}"),
                Err(late) => panic!("no {what}: {late}: {:?}, problems {:?}", self.objects, self.problems()),
            }
        }
    }

    /// Waits until the objects are these. API servers make the account `default` in every namespace.
    pub(super) async fn becomes(&mut self, objects: &[&str]) {
        let objects: BTreeSet<String> = objects.iter().map(|&name| name.to_owned()).collect();
        self.until(&format!("{objects:?}"), |watcher| watcher.objects == objects).await;
    }

    /// Waits for an object.
    pub(super) async fn gets(&mut self, object: &str) {
        self.until(object, |watcher| watcher.has(object)).await;
    }

    /// Waits until an object is gone.
    pub(super) async fn loses(&mut self, object: &str) {
        self.until(&format!("loss of {object}"), |watcher| !watcher.has(object)).await;
    }

    /// Waits for a problem.
    pub(super) async fn reports(&mut self, text: &str) {
        self.until(text, |watcher| watcher.problems().contains(text)).await;
    }

    /// Waits until there are no problems.
    pub(super) async fn without_problems(&mut self) {
        self.until("end of all problems", |watcher| watcher.problems.is_empty()).await;
    }

    /// Fails if anything is served within this time.
    pub(super) async fn serves_nothing_for(&mut self, span: Duration) {
        if let Ok(batch) = timeout(span, self.batches.recv()).await {
            panic!("served: {batch:?}");
        }
    }

    /// Whether an object is there.
    pub(super) fn has(&self, object: &str) -> bool {
        self.objects.contains(object)
    }

    /// Whether an object was missing in between.
    pub(super) fn ever_lost(&self, object: &str) -> bool {
        self.removed.contains(object)
    }

    /// The problems, one a line.
    pub(super) fn problems(&self) -> String {
        self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// The value of a metric; 0 if there is none.
    pub(super) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Waits until the last known mesh on disk has this text.
    pub(super) async fn saved(&self, text: &str) {
        let path = self.directory.path().join("last-known-mesh");
        let saved = async {
            while !std::fs::read_to_string(&path).is_ok_and(|copy| copy.contains(text)) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(LIMIT, saved).await.unwrap();
    }
}
