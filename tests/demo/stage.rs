//! What the demo needs of the lab: the lines that programs print, a way to change the mesh, and the `smc` command. A
//! trait, so that the course of the demo is tested against a scripted stage.

use std::error::Error;
use std::future::Future;

/// One line that a container printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The Pod, as NAMESPACE/NAME.
    pub pod: String,
    /// What it printed, without the line end.
    pub text: String,
}

/// The lab could not do something.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}")]
pub struct StageError {
    /// What was to be done.
    pub action: String,
    /// Why not.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// A running mesh.
pub trait Stage: Send {
    /// The next line of any application, in the order printed. None when the stage has ended. Must be cancel-safe.
    fn next_line(&mut self) -> impl Future<Output = Result<Option<Line>, StageError>> + Send;

    /// Writes a file into the mesh directory.
    fn apply(&mut self, file_name: &str, yaml: &str) -> impl Future<Output = Result<(), StageError>> + Send;

    /// Runs `smc` with these arguments against whichever replica of the controller answers them, and returns its standard
    /// output.
    fn smc(&mut self, arguments: &[&str]) -> impl Future<Output = Result<String, StageError>> + Send;

    /// Kills the replica that leads, as a crash would, and returns which it was.
    fn kill_leader(&mut self) -> impl Future<Output = Result<u16, StageError>> + Send;
}
