//! Owns the interface between the demo and the lab: the lines that programs print, changes of the
//! mesh, and the `smc` command. A trait, so that tests can use a scripted stage.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use super::upgrade::SidecarReport;

/// One line that a container printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The Pod, as NAMESPACE/NAME.
    pub pod: String,
    /// The line without its line end.
    pub text: String,
}

/// An operation of the lab failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}")]
pub struct StageError {
    /// The operation, as in "cannot ...".
    pub action: String,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// Makes the error of an operation, as in "cannot ...", of its cause.
pub fn failed<E: Error + Send + Sync + 'static>(action: &str) -> impl FnOnce(E) -> StageError {
    let action = action.to_owned();
    move |source| StageError { action, source: Box::new(source) }
}

/// A rolling upgrade that is under way, and what each sidecar noticed of it.
pub type Upgrade = Pin<Box<dyn Future<Output = Result<Vec<SidecarReport>, StageError>> + Send>>;

/// A running mesh.
pub trait Stage: Send {
    /// Returns the next line of any application, in the order printed. `None` when the stage has
    /// ended. Must be cancel-safe.
    fn next_line(&mut self) -> impl Future<Output = Result<Option<Line>, StageError>> + Send;

    /// Writes a file into the mesh directory.
    fn apply(&mut self, file_name: &str, yaml: &str) -> impl Future<Output = Result<(), StageError>> + Send;

    /// Runs `smc` with these arguments against the first controller replica that answers, and
    /// returns its standard output.
    fn smc(&mut self, arguments: &[&str]) -> impl Future<Output = Result<String, StageError>> + Send;

    /// Kills the Raft leader with SIGKILL, and returns its replica number.
    fn kill_leader(&mut self) -> impl Future<Output = Result<u16, StageError>> + Send;

    /// Starts replicas that do not run, and restarts all in turn. Borrows nothing: lines are read meanwhile.
    fn upgrade(&self) -> Upgrade;
}
