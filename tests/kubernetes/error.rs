//! Owns the errors of the cluster, as users see them.

use std::io;
use std::path::{Path, PathBuf};

use smc_test_sandbox::DirectoryError;
use smc_types::causes::causes;

/// An error of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The machine does not let this user run a cluster.
    #[error("a cluster {needs}: {problem}")]
    Unprivileged {
        /// The privilege that is missing.
        needs: &'static str,
        /// The refusal of the operating system.
        problem: String,
    },
    /// A cluster of this name is running already.
    #[error("{0}")]
    AlreadyRunning(String),
    /// No cluster of this name is running.
    #[error("no cluster named `{0}` is running")]
    NotRunning(String),
    /// A value is not valid.
    #[error("invalid {what}: {text}")]
    Invalid {
        /// The kind of value.
        what: &'static str,
        /// The value, or what is wrong with it.
        text: String,
    },
    /// A program that the cluster needs is missing.
    #[error("can't find `{program}`: {advice}")]
    Missing {
        /// Name of the program.
        program: String,
        /// The place where the cluster looked, or the way to name the program.
        advice: String,
    },
    /// A file operation failed.
    #[error("can't {action} {}", path.display())]
    File {
        /// The operation: read, write, create, …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A command could not be run, or failed.
    #[error("`{command}`: {problem}")]
    Command {
        /// The command, without its arguments' directories.
        command: String,
        /// The failure, with the command's error output.
        problem: String,
    },
    /// A wait exceeded its limit.
    #[error("waited {seconds} s for {what}; {state}")]
    Timeout {
        /// The state that was waited for.
        what: String,
        /// The limit in seconds.
        seconds: u64,
        /// The state at the end of the wait.
        state: String,
    },
    /// A key or a certificate of the cluster could not be made.
    #[error("can't make the key or certificate of {subject}")]
    Certificate {
        /// The common name.
        subject: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A client of the API server could not be made.
    #[error("can't read the kubeconfig {}", path.display())]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// The API server refused a request, or did not answer.
    #[error("can't {action}")]
    Api {
        /// The request.
        action: String,
        /// The cause.
        source: Box<kube::Error>,
    },
}

impl ClusterError {
    /// Wraps the error of a file operation, for `map_err`.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// Wraps the error of a command, for `map_err`.
    pub(crate) fn command<E: ToString>(command: &str) -> impl FnOnce(E) -> Self {
        let command = command.to_owned();
        move |error| Self::Command { command, problem: error.to_string() }
    }

    /// Wraps the error of a request to the API server, for `map_err`.
    pub(crate) fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Api { action, source: Box::new(source) }
    }

    /// Returns the error and its causes on one line.
    pub fn chain(&self) -> String {
        causes(self)
    }
}
