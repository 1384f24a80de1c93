//! Owns the search for the programs of a cluster.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ClusterError, config};

/// The directories that `tests/setup/kubernetes` prints.
#[derive(Clone, Debug)]
pub struct Programs(Vec<PathBuf>);

impl Programs {
    /// Directories joined by colons, as `SMC_KUBERNETES` has them, or one directory, as
    /// `KUBEBUILDER_ASSETS`.
    pub fn new(list: &OsStr) -> Self {
        Self(std::env::split_paths(list).collect())
    }

    /// The path of a program of Kubernetes, etcd, CoreDNS, helm or kwok.
    pub fn find(&self, program: &str) -> Result<PathBuf, ClusterError> {
        let found = self.0.iter().map(|directory| directory.join(program)).find(|path| path.is_file());
        found.ok_or_else(|| ClusterError::Missing {
            program: program.to_owned(),
            advice: format!(
                "it is in none of {:?}; `tests/setup/kubernetes DIR` builds it and prints SMC_KUBERNETES",
                self.0
            ),
        })
    }
}

/// The path of a program of the machine, that a package of the distribution installs.
pub(crate) fn installed(program: &str, package: &str) -> Result<PathBuf, ClusterError> {
    let found = config::PATH.split(':').map(|directory| Path::new(directory).join(program));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| ClusterError::Missing {
        program: program.to_owned(),
        advice: format!("Debian package: {package}"),
    })
}

/// Returns the path of another program of this workspace: in the directory of the running program,
/// or in the one above for a test in Cargo's `deps`. Fails if it is not built.
pub fn beside(program: &str) -> Result<PathBuf, ClusterError> {
    let missing = |advice: String| ClusterError::Missing { program: program.to_owned(), advice };
    let own = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| missing(format!("can't find the path of the running program: {error}")))?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let directories = [Some(directory), directory.parent().filter(|_| directory.ends_with("deps"))];
    let found =
        directories.iter().flatten().map(|directory| directory.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| missing(format!("it should be in {}; build it first", directory.display())))
}
