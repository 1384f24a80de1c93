//! Owns what is where in the state directory of a lab.

use std::ops::Deref;
use std::path::PathBuf;

use smc_test_sandbox::{StateDirectory, running};
use smc_types::ids::NamespacedName;

use super::LabError;
use super::config;

/// The state directories of labs, among those of other sandboxes.
const KIND: &str = "lab";

/// The state directory of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(StateDirectory);

impl Deref for StateDir {
    type Target = StateDirectory;

    fn deref(&self) -> &StateDirectory {
        &self.0
    }
}

impl StateDir {
    /// Returns the directory of the lab `name`, which need not exist; if it exists, it belongs to
    /// this user. Names have lower-case letters, digits and dashes, at most 40.
    pub fn of(name: &str) -> Result<Self, LabError> {
        Ok(Self(StateDirectory::of(KIND, name)?))
    }

    /// The same directory under another path: inside the lab it is mounted elsewhere.
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self(StateDirectory::at(path))
    }

    /// Creates the directory, empty. Fails if a lab of this name is running.
    pub(super) fn create(&self, name: &str) -> Result<(), LabError> {
        let Some(_lock) = self.lock()? else { return Err(LabError::AlreadyRunning(name.to_owned())) };
        Ok(self.clear(&[&self.published(), &self.logs(), &self.view(), &self.path().join("pods")])?)
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path().join("config.json")
    }

    /// The private copy of a mesh directory, for tests that edit it.
    pub(super) fn mesh(&self) -> PathBuf {
        self.path().join("mesh")
    }

    /// The directory that the controller reads.
    pub(super) fn published(&self) -> PathBuf {
        self.path().join("published")
    }

    /// Mount point of the file system view until it replaces `/run`.
    pub(super) fn view(&self) -> PathBuf {
        self.path().join("view")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.path().join("logs")
    }

    /// The supervisor's messages.
    pub(super) fn lab_log(&self) -> PathBuf {
        self.logs().join("lab.log")
    }

    /// Returns the log of a controller replica.
    pub fn controller_log(&self, replica: u16) -> PathBuf {
        self.logs().join(format!("{}.log", config::numbered("controller", replica)))
    }

    /// Returns the log of a Pod's container, `envoy` or `init`.
    pub fn pod_log(&self, pod: &NamespacedName, container: &str) -> PathBuf {
        self.logs().join(pod.namespace()).join(pod.name()).join(format!("{container}.log"))
    }

    /// Files of one Pod: `hosts`, the bootstrap.
    pub(super) fn pod(&self, pod: &NamespacedName) -> PathBuf {
        self.path().join("pods").join(pod.namespace()).join(pod.name())
    }
}

/// Lists the running labs.
pub fn running_labs() -> Vec<String> {
    running(KIND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_cannot_leave_the_state_directory() {
        assert!("bookstore/bookstore-v1".parse::<NamespacedName>().is_ok());
        for text in ["a", "/", "a/", "../b", "a/..", "a/b/c", "A/b", "a/.b", "a/b c", "a/b\n", "a/b..c"] {
            assert!(text.parse::<NamespacedName>().is_err(), "{text:?}");
        }
    }
}
