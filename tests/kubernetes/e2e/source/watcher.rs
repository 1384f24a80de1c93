//! A running source, and what it has said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smc_host::env::Env;
use smc_kubernetes::KubernetesSource;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_server::metrics::Metrics;
use smc_server::source::{Batch, Source, SourceError};
use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::problem::Problem;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::gate::Gate;

/// Longer than any wait of the source, on a machine that may be busy compiling.
pub(super) const LIMIT: Duration = Duration::from_mins(3);

/// How many names a failure shows.
const SHOWN: usize = 12;

/// A source of the mesh `smc`, whose control plane is in `own`.
pub(super) struct Watcher {
    batches: mpsc::Receiver<Batch>,
    /// The objects, by name.
    objects: BTreeMap<String, Object>,
    /// Every object that was removed, also one that came back.
    removed: BTreeSet<String>,
    problems: Vec<Problem>,
    /// Every problem that there ever was.
    reported: BTreeSet<String>,
    /// Objects of which it makes no difference whether they are there.
    ignored: BTreeSet<String>,
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
        Self {
            batches,
            objects: BTreeMap::new(),
            removed: BTreeSet::new(),
            problems: Vec::new(),
            reported: BTreeSet::new(),
            ignored: BTreeSet::new(),
            metrics,
            directory,
            shutdown,
            task,
        }
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
                SourceEvent::Upsert(object) => {
                    self.objects.insert(object.reference().to_string(), object);
                }
                SourceEvent::Remove(reference) => {
                    assert!(
                        self.objects.remove(&reference.to_string()).is_some(),
                        "{reference} was never sent"
                    );
                    self.removed.insert(reference.to_string());
                }
            }
        }
        self.reported.extend(batch.problems.iter().map(ToString::to_string));
        self.problems = batch.problems;
    }

    /// Takes batches until nothing is missing, of which `missing` says what it is; at most for so long.
    async fn within(&mut self, limit: Duration, missing: impl Fn(&Self) -> Option<String>) {
        let end = Instant::now() + limit;
        while let Some(what) = missing(self) {
            match timeout_at(end, self.batches.recv()).await {
                Ok(Some(batch)) => self.take(batch),
                Ok(None) => panic!("the source ended: {what}"),
                Err(late) => panic!("{late}: {what}; problems {:?}", self.problems()),
            }
        }
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let missing = |watcher: &Self| {
            let names = || watcher.objects.keys().take(SHOWN).collect::<Vec<_>>();
            (!done(watcher)).then(|| format!("no {what}, but {:?}", names()))
        };
        self.within(LIMIT, missing).await;
    }

    /// Takes the first batch.
    pub(super) async fn first(&mut self) {
        self.first_within(LIMIT, "the first batch").await;
    }

    /// Takes the first batch, which comes within this time.
    pub(super) async fn first_within(&mut self, limit: Duration, when: &str) {
        let batch = timeout(limit, self.batches.recv()).await;
        let batch = batch.unwrap_or_else(|late| panic!("{when}: nothing is served: {late}"));
        self.take(batch.expect("a source that goes on"));
    }

    /// Takes batches for so long.
    pub(super) async fn watch_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while let Ok(batch) = timeout_at(end, self.batches.recv()).await {
            self.take(batch.expect("a source that goes on"));
        }
    }

    /// Asserts that the objects are these.
    pub(super) fn assert_is(&self, objects: &BTreeSet<String>, when: &str) {
        let difference = self.difference(objects);
        assert_eq!(difference, None, "{when}");
    }

    /// Waits at most for so long until the objects are these.
    pub(super) async fn becomes_within(&mut self, limit: Duration, objects: &BTreeSet<String>, when: &str) {
        let missing =
            |watcher: &Self| watcher.difference(objects).map(|difference| format!("{when}: {difference}"));
        self.within(limit, missing).await;
    }

    /// Waits as long as anything may take until the objects are these.
    pub(super) async fn becomes_eventually(&mut self, objects: &BTreeSet<String>, when: &str) {
        self.becomes_within(LIMIT, objects, when).await;
    }

    /// Waits at most for so long until the objects are these, with all that they say.
    pub(super) async fn returns_within(
        &mut self,
        limit: Duration,
        objects: &BTreeMap<String, Object>,
        when: &str,
    ) {
        let names = objects.keys().cloned().collect();
        let missing = |watcher: &Self| {
            let other = || objects.iter().find(|(name, object)| watcher.objects.get(*name) != Some(*object));
            let difference = watcher.difference(&names);
            let difference =
                difference.or_else(|| other().map(|(name, _)| format!("{name} says something else")));
            difference.map(|difference| format!("{when}: {difference}"))
        };
        self.within(limit, missing).await;
    }

    /// Waits at most for so long until an object is there, or is a problem.
    pub(super) async fn accounts_within(&mut self, limit: Duration, object: &str, when: &str) {
        let accounts = |watcher: &Self| watcher.has(object) || watcher.problems_of(object) > 0;
        let missing = |watcher: &Self| (!accounts(watcher)).then(|| format!("{when}: {object} is unknown"));
        self.within(limit, missing).await;
    }

    /// From now on, whether these objects are there makes no difference.
    pub(super) fn may_have(&mut self, objects: impl IntoIterator<Item = String>) {
        self.ignored = objects.into_iter().collect();
    }

    /// How the objects differ from these.
    fn difference(&self, objects: &BTreeSet<String>) -> Option<String> {
        let missing: Vec<_> = objects.iter().filter(|name| !self.objects.contains_key(*name)).collect();
        let unexpected = |name: &&String| !objects.contains(*name) && !self.ignored.contains(*name);
        let more: Vec<_> = self.objects.keys().filter(unexpected).collect();
        if missing.is_empty() && more.is_empty() {
            return None;
        }
        let (some_missing, some_more) =
            (&missing[..missing.len().min(SHOWN)], &more[..more.len().min(SHOWN)]);
        Some(format!(
            "of {} objects {} are missing, such as {some_missing:?}; {} are too many, such as {some_more:?}",
            objects.len(),
            missing.len(),
            more.len()
        ))
    }

    /// Waits until the objects are these. API servers make the account `default` in every namespace.
    pub(super) async fn becomes(&mut self, objects: &[&str]) {
        let objects = objects.iter().map(|&name| name.to_owned()).collect();
        self.becomes_eventually(&objects, "at the end").await;
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

    /// Waits until there has been a problem.
    pub(super) async fn has_reported(&mut self, text: &str) {
        self.until(text, |watcher| watcher.reported.iter().any(|problem| problem.contains(text))).await;
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
        self.objects.contains_key(object)
    }

    /// The objects with all that they say.
    pub(super) fn objects(&self) -> &BTreeMap<String, Object> {
        &self.objects
    }

    /// Whether an object was missing in between.
    pub(super) fn ever_lost(&self, object: &str) -> bool {
        self.removed.contains(object)
    }

    /// Every object that was removed, also one that came back.
    pub(super) fn removed(&self) -> &BTreeSet<String> {
        &self.removed
    }

    /// How many problems name an object.
    pub(super) fn problems_of(&self, object: &str) -> usize {
        self.problems.iter().filter(|problem| problem.subject.to_string() == object).count()
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

    /// Waits until the source says that what it sent is the mesh.
    pub(super) async fn is_current(&mut self, when: &str) {
        let end = Instant::now() + LIMIT;
        while self.metric("smc_source_stale") != 0 {
            assert!(Instant::now() < end, "{when}: the mesh may be another; problems {:?}", self.problems());
            self.watch_for(Duration::from_millis(50)).await;
        }
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
