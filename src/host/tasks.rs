//! The table that supervises the tasks of a replica.
//!
//! Owns supervision: every task has a name and runs until the replica stops. A task that ends earlier ends
//! the replica.

use std::error::Error;
use std::future::Future;

use thiserror::Error;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The end of a task that should have continued, or failed while stopping.
#[derive(Debug, Error)]
#[error("the task {task:?} ended")]
pub struct TaskEnded {
    /// The name of the task.
    pub task: &'static str,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// A task returned before the replica stopped.
#[derive(Debug, Error)]
#[error("it returned before the replica was stopped")]
struct Returned;

/// The running tasks. Dropping the table aborts them.
pub struct Tasks {
    tasks: JoinSet<Ended>,
    stopping: CancellationToken,
}

/// A task that returned.
struct Ended {
    task: &'static str,
    result: Result<(), Box<dyn Error + Send + Sync>>,
}

impl Tasks {
    /// An empty table. Tasks have to end once `stopping` is cancelled.
    pub fn new(stopping: CancellationToken) -> Self {
        Self { tasks: JoinSet::new(), stopping }
    }

    /// Starts a task that cannot fail.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: &'static str,
        run: impl FnOnce(CancellationToken) -> F,
    ) {
        let future = run(self.stopping.clone());
        self.tasks.spawn(async move {
            future.await;
            Ended { task, result: Ok(()) }
        });
    }

    /// Starts a task that can fail.
    pub fn spawn_fallible<E: Error + Send + Sync + 'static, F>(
        &mut self,
        task: &'static str,
        run: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let future = run(self.stopping.clone());
        self.tasks.spawn(async move {
            let result = future.await.map_err(Into::into);
            Ended { task, result }
        });
    }

    /// Waits for the next task to end, which is an error before the replica is stopped.
    pub async fn unexpected_end(&mut self) -> TaskEnded {
        match self.tasks.join_next().await {
            Some(Ok(Ended { task, result })) => {
                TaskEnded { task, source: result.err().unwrap_or_else(|| Returned.into()) }
            }
            Some(Err(panic)) => panicked(panic),
            None => TaskEnded { task: "all", source: Returned.into() },
        }
    }

    /// Waits for all tasks after `stopping` was cancelled. Returns the first error.
    pub async fn all_ended(&mut self) -> Result<(), TaskEnded> {
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            let error = match ended {
                Ok(Ended { result: Ok(()), .. }) => continue,
                Ok(Ended { task, result: Err(source) }) => TaskEnded { task, source },
                Err(panic) => panicked(panic),
            };
            outcome = outcome.and(Err(error));
        }
        outcome
    }

    /// The number of running tasks.
    pub fn running(&self) -> usize {
        self.tasks.len()
    }
}

fn panicked(panic: JoinError) -> TaskEnded {
    TaskEnded { task: "unknown", source: panic.into() }
}

/// Runs the tasks of HTTP/2 streams in a tracker, so that their connection can wait for them.
#[derive(Clone)]
pub struct Tracked(pub TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
