//! Owns the errors of the lab, as users see them.

use std::io;
use std::path::{Path, PathBuf};

use smc_test_sandbox::DirectoryError;
use smc_types::causes::causes;
use smc_types::ids::InvalidName;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Neither root nor an unprivileged user namespace is available.
    #[error(
        "the lab needs root, or an unprivileged user namespace (newuidmap, and an entry in /etc/subuid and \
         /etc/subgid): {0}"
    )]
    Unprivileged(String),
    /// A lab of this name is running already.
    #[error("a lab named `{0}` is running already: choose another --name, or `smc-lab down --name {0}`")]
    AlreadyRunning(String),
    /// No lab of this name is running.
    #[error("no lab named `{0}` is running")]
    NotRunning(String),
    /// A value is not valid.
    #[error("invalid {what}: {text}")]
    Invalid {
        /// The kind of value.
        what: &'static str,
        /// The value, or what is wrong with it.
        text: String,
    },
    /// A name of a Pod is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A program that the lab needs is missing.
    #[error("can't find `{program}`: {advice}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// The place where the lab looked, or the way to name the program.
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
    /// A command could not be run, failed, or took too long.
    #[error("`{command}`: {problem}")]
    Command {
        /// The command line, without the directory of the program.
        command: String,
        /// The failure, with the command's error output.
        problem: String,
    },
    /// The lab ended, or did not come up.
    #[error("the lab `{name}` ended: {log}")]
    Ended {
        /// Name of the lab.
        name: String,
        /// The end of the lab's log.
        log: String,
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
    /// The connection to the lab failed.
    #[error("can't reach the lab over {}", path.display())]
    Control {
        /// Path of the control socket.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The lab refused a request, or could not carry it out.
    #[error("{0}")]
    Refused(String),
}

impl LabError {
    /// Wraps the error of a file operation, for `map_err`.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// Returns the error and its causes on one line.
    pub fn chain(&self) -> String {
        causes(self)
    }
}
