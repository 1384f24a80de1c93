//! The source of a story, from its beginning to its end.

use std::path::Path;
use std::sync::Arc;

use smc_host::env::{Env, fixed};
use smc_kubernetes::KubernetesSource;
use smc_kubernetes::custom_objects::CustomObjects;
use smc_mesh::catalog::SourceEvent;
use smc_server::metrics::Metrics;
use smc_server::source::{Batch, Source, SourceError};
use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::time::Timestamp;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::World;
use crate::model_api::connection::client;
use crate::model_api::judge::Violation;

/// A source that runs.
pub(super) struct Running {
    pub(super) batches: mpsc::Receiver<Batch>,
    pub(super) custom: watch::Receiver<CustomObjects>,
    metrics: Metrics,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), SourceError>>,
}

impl Running {
    /// The value of a metric; 0 if there is none.
    pub(super) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_default()
    }
}

impl World<'_> {
    /// Starts the source, with the directory that there was or with an empty one.
    pub(super) fn start(&mut self, keeps_directory: bool) {
        if !keeps_directory {
            self.directory = None;
        }
        let directory = self.directory.get_or_insert_with(directory).path().join("last-known-mesh");
        self.runs += 1;
        self.server.begin_run();
        self.judge.begin(keeps_directory);
        self.note(format!("source {} begins; directory kept: {keeps_directory}", self.runs));
        let (mut env, _): (Env, _) = fixed::env(Timestamp(0), self.story.seed ^ (self.runs << 32));
        env.clock = Arc::new(self.clock);
        let (sender, batches) = mpsc::channel(1);
        let (shutdown, metrics) = (CancellationToken::new(), Metrics::new());
        let own = MeshNamespace::new("own").expect("a name");
        let api = Arc::new(client(&self.server));
        let source = KubernetesSource::new(api, MeshName::default(), own, directory, env);
        let mut source = Box::new(source.with_files_in_its_tasks());
        source.report_to(&metrics);
        let custom = source.custom_objects();
        let task = tokio::spawn(source.run(sender, shutdown.clone()));
        self.running = Some(Running { batches, custom, metrics, shutdown, task });
    }

    /// Ends the source.
    pub(super) async fn end(&mut self, kill: bool) -> Result<(), Violation> {
        let Some(running) = self.running.take() else { return Ok(()) };
        self.note(if kill { "the source is killed" } else { "the source is asked to end" });
        self.judge.end();
        self.outcome.requests += u64::from(self.server.state().tally.all());
        if kill {
            running.task.abort();
        } else {
            running.shutdown.cancel();
        }
        // The batch that is on its way is lost, as with a replica that ends.
        drop(running.batches);
        let _ = running.task.await;
        Ok(())
    }
}

/// An empty directory, in memory where there is such a place: every copy is synced.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

/// An event in a few words.
pub(super) fn describe(event: &SourceEvent) -> String {
    match event {
        SourceEvent::Upsert(object) => format!("+{}", object.reference()),
        SourceEvent::Remove(reference) => format!("-{reference}"),
    }
}
