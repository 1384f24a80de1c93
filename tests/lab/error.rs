//! What can go wrong in the lab, as told to whoever started it.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Neither root nor an unprivileged user namespace is to be had.
    #[error(
        "the lab needs root, or an unprivileged user namespace (newuidmap, and an entry in /etc/subuid and \
         /etc/subgid): {0}"
    )]
    Unprivileged(String),
    /// A lab of that name runs already.
    #[error("a lab named `{0}` is running already: choose another --name, or `smc-lab down --name {0}`")]
    AlreadyRunning(String),
    /// No lab of that name runs.
    #[error("no lab named `{0}` is running")]
    NotRunning(String),
    /// A name is not one.
    #[error("invalid {what}: {text}")]
    Invalid {
        /// What was to be read.
        what: &'static str,
        /// What was given, or what is wrong with it.
        text: String,
    },
    /// A program the lab runs is not there.
    #[error("can't find `{program}`: {advice}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// Where it is looked for, or how to name it.
        advice: String,
    },
    /// A file operation failed.
    #[error("can't {action} {}", path.display())]
    File {
        /// Read, write, create, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The place of the lab's state is not this user's alone.
    #[error("won't use {}: {problem}; remove it, or set TMPDIR to a directory of your own", path.display())]
    NotOurs {
        /// The place.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A command could not be run, failed, or took too long.
    #[error("`{command}`: {problem}")]
    Command {
        /// The command line.
        command: String,
        /// What happened, with what it printed.
        problem: String,
    },
    /// The lab ended, or did not come up.
    #[error("the lab `{name}` ended: {log}")]
    Ended {
        /// Its name.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// Something did not happen in time.
    #[error("waited {seconds} s for {what}; {state}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// For how long.
        seconds: u64,
        /// What is known about it.
        state: String,
    },
    /// The conversation with the lab failed.
    #[error("can't talk to the lab over {}", path.display())]
    Control {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The lab refused or could not do what was asked.
    #[error("{0}")]
    Refused(String),
}

impl LabError {
    /// For `map_err` after a file operation.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// The error and everything it carries, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }
}
