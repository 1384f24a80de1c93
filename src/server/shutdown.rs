//! How a replica ends: in stages, each with a bound, so that the whole takes less than ten seconds whatever the
//! proxies do.
//!
//! Owns the order. Streams end with OK while connections still stand, so that Envoy sees a regular end; then
//! GOAWAY; then what the streams relied on.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::ServerError;
use super::tasks::Tasks;

/// For the streams to say their last word: longer than a stream waits for that.
const STREAMS_END: Duration = Duration::from_secs(3);

/// For the other tasks to stop, connections included.
const TASKS_END: Duration = Duration::from_secs(5);

/// What is cancelled one after another.
pub(super) struct Stages {
    /// From outside: the replica is to end.
    shutdown: CancellationToken,
    /// Streams end, the port closes.
    pub(super) draining: CancellationToken,
    /// Connections close.
    pub(super) closing: CancellationToken,
    /// Everything else stops.
    pub(super) stopping: CancellationToken,
    streams: TaskTracker,
}

impl Stages {
    pub(super) fn new(shutdown: CancellationToken) -> Self {
        let [draining, closing, stopping] = [(); 3].map(|()| CancellationToken::new());
        Self { shutdown, draining, closing, stopping, streams: TaskTracker::new() }
    }

    pub(super) fn with_streams(self, streams: TaskTracker) -> Self {
        Self { streams, ..self }
    }
}

/// Runs `tasks` until the shutdown is asked for or one of them ends, then takes everything down.
pub(super) async fn run(mut tasks: Tasks, stages: Stages) -> Result<(), ServerError> {
    let cause = tokio::select! {
        () = stages.shutdown.cancelled() => Ok(()),
        ended = tasks.unexpected_end() => Err(ended),
    };
    match &cause {
        Ok(()) => info!(streams = stages.streams.len(), "shutting down"),
        Err(error) => error!(%error, "shutting down"),
    }
    stages.draining.cancel();
    stages.streams.close();
    if timeout(STREAMS_END, stages.streams.wait()).await.is_err() {
        warn!(streams = stages.streams.len(), "streams did not end in time");
    }
    stages.closing.cancel();
    stages.stopping.cancel();
    let ended = timeout(TASKS_END, tasks.all_ended()).await;
    let outcome = ended.unwrap_or_else(|_| {
        // Dropping the table aborts them.
        warn!(tasks = tasks.running(), "tasks did not stop in time");
        Ok(())
    });
    info!("stopped");
    cause.and(outcome)
}
