//! The shutdown of a replica, in stages with time limits: less than ten seconds in total, whatever the
//! proxies do.
//!
//! Owns the order. Streams end with OK while their connections are open, so that Envoy sees a regular end;
//! then connections end with GOAWAY; then the tasks that streams depend on stop.

use std::time::Duration;

use smc_host::tasks::Tasks;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::ServerError;

/// The limit for the streams to send their final status: longer than a single stream takes.
const STREAMS_LIMIT: Duration = Duration::from_secs(3);

/// The limit for the other tasks to stop, connections included.
const TASKS_LIMIT: Duration = Duration::from_secs(5);

/// The tokens that are cancelled one after another.
pub(super) struct Stages {
    /// Requests the shutdown.
    shutdown: CancellationToken,
    /// Ends the streams and closes the port.
    pub(super) draining: CancellationToken,
    /// Closes the connections.
    pub(super) closing: CancellationToken,
    /// Stops everything else.
    pub(super) stopping: CancellationToken,
    /// The tasks of the open streams.
    pub(super) streams: TaskTracker,
}

impl Stages {
    pub(super) fn new(shutdown: CancellationToken) -> Self {
        let [draining, closing, stopping] = [(); 3].map(|()| CancellationToken::new());
        Self { shutdown, draining, closing, stopping, streams: TaskTracker::new() }
    }
}

/// Runs `tasks` until the shutdown is requested or one of them ends, then shuts the replica down.
pub(super) async fn run(mut tasks: Tasks, stages: Stages) -> Result<(), ServerError> {
    let cause = tokio::select! {
        () = stages.shutdown.cancelled() => Ok(()),
        ended = tasks.unexpected_end() => Err(ended),
    };
    match &cause {
        Ok(()) => info!(streams = stages.streams.len(), "shutting down"),
        Err(error) => error!(error = error as &dyn std::error::Error, "shutting down"),
    }
    stages.draining.cancel();
    stages.streams.close();
    if timeout(STREAMS_LIMIT, stages.streams.wait()).await.is_err() {
        warn!(streams = stages.streams.len(), "streams did not end in time");
    }
    stages.closing.cancel();
    stages.stopping.cancel();
    let ended = timeout(TASKS_LIMIT, tasks.all_ended()).await;
    let outcome = ended.unwrap_or_else(|_| {
        // Dropping the table aborts the tasks.
        warn!(tasks = tasks.running(), "tasks did not stop in time");
        Ok(())
    });
    info!("stopped");
    Ok(cause.and(outcome)?)
}
