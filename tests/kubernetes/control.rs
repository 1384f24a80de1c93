//! Owns the conversation with the first process: one JSON request per line, one answer per line.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::ClusterError;
use crate::state_dir::StateDir;

/// The longest line of either side: a command line of a component has some 3 kB.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// A request to the first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Start a component. Refused while one of this name runs.
    Start {
        /// The component's name, also that of its log.
        name: String,
        program: PathBuf,
        /// Its arguments.
        args: Vec<String>,
    },
    /// Send a signal to a component.
    Signal {
        /// The component's name.
        name: String,
        /// The number of the signal.
        signal: i32,
    },
    /// Name the components that run.
    List,
}

/// The answer: the names of components, for [`Request::List`], or a refusal.
pub(crate) type Answer = Result<Vec<String>, String>;

/// Sends a request to the first process of a cluster.
pub(crate) async fn ask(state: &StateDir, request: &Request) -> Result<Vec<String>, ClusterError> {
    let path = state.control_socket();
    let failed = |error: io::Error| ClusterError::file("ask", &path)(error);
    let stream = UnixStream::connect(&path).await.map_err(failed)?;
    let mut stream = BufReader::new(stream);
    let mut line = serde_json::to_string(request).map_err(ClusterError::command("write a request"))?;
    line.push('\n');
    stream.get_mut().write_all(line.as_bytes()).await.map_err(failed)?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await.map_err(failed)?;
    let answer: Answer = serde_json::from_str(&answer)
        .map_err(|_| failed(io::Error::new(io::ErrorKind::UnexpectedEof, "the cluster has ended")))?;
    answer.map_err(|problem| ClusterError::Command { command: format!("{request:?}"), problem })
}

/// The process id of the first process, in the pid namespace of the caller.
pub(crate) async fn first_process(state: &StateDir) -> Result<i32, ClusterError> {
    let path = state.control_socket();
    let failed = |error: io::Error| ClusterError::file("connect to", &path)(error);
    let stream = UnixStream::connect(&path).await.map_err(failed)?;
    let pid = stream.peer_cred().map_err(failed)?.pid();
    pid.filter(|pid| *pid > 0)
        .ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "its process is not visible")))
}
