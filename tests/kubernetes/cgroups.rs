//! Owns the cgroups of one cluster on the host. Everything that the cluster starts is in them, and
//! the kubelet makes its own below them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ClusterError;

/// Where the hierarchies are mounted.
pub(crate) const MOUNT: &str = "/sys/fs/cgroup";

/// Poll interval, and number of polls, for the processes of a cgroup to be gone after SIGKILL.
const POLL: Duration = Duration::from_millis(50);
const POLLS: u32 = 100;

/// The hierarchies of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchies {
    /// cgroup v1: the controllers of each hierarchy, as they are mounted together, and the path of
    /// this process in it.
    V1(Vec<(String, String)>),
    /// cgroup v2.
    V2,
}

impl Hierarchies {
    /// Those of this process.
    pub(crate) fn of_this_process() -> Result<Self, ClusterError> {
        let file = Path::new("/proc/self/cgroup");
        let text = fs::read_to_string(file).map_err(ClusterError::file("read", file))?;
        Ok(Self::parse(&text))
    }

    /// Reads `/proc/PID/cgroup`. A machine that has controllers in v1 runs v1, though it may have an
    /// empty v2 beside it.
    fn parse(text: &str) -> Self {
        let v1 = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let named = controllers.is_empty() || controllers.starts_with("name=");
            (!named).then(|| (controllers.to_owned(), path.to_owned()))
        });
        let mut v1: Vec<_> = v1.collect();
        v1.sort();
        if v1.is_empty() { Self::V2 } else { Self::V1(v1) }
    }

    /// The cgroup of a cluster in each hierarchy.
    fn directories(&self, name: &str) -> Vec<PathBuf> {
        let own = format!("smc-cluster-{name}");
        match self {
            Self::V1(hierarchies) => hierarchies
                .iter()
                .map(|(controllers, path)| {
                    Path::new(MOUNT).join(controllers).join(path.trim_start_matches('/')).join(&own)
                })
                .collect(),
            // At the top: a cgroup with processes of its own cannot give controllers to another.
            Self::V2 => vec![Path::new(MOUNT).join(own)],
        }
    }
}

/// The cgroups of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    pub(crate) fn of(name: &str) -> Result<Self, ClusterError> {
        Ok(Self(Hierarchies::of_this_process()?.directories(name)))
    }

    /// Those that [`Cgroups::record`] has named in `file`; none if there is no such file. A cluster that
    /// was killed as a whole may have been started from a session with other cgroups.
    pub(crate) fn recorded(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        // Names as this module makes them: the file is in a directory of this user, and still only
        // a cluster's cgroups are removed.
        let own = |line: &&str| line.starts_with(MOUNT) && line.contains("/smc-cluster-");
        Self(text.lines().filter(own).map(PathBuf::from).collect())
    }

    /// Names them in `file`.
    pub(crate) fn record(&self, file: &Path) -> Result<(), ClusterError> {
        let lines: Vec<String> = self.0.iter().map(|path| path.display().to_string()).collect();
        fs::write(file, lines.join("\n")).map_err(ClusterError::file("write", file))
    }

    /// Creates them, empty.
    pub(crate) fn create(&self) -> Result<(), ClusterError> {
        for directory in &self.0 {
            fs::create_dir(directory).map_err(ClusterError::file("create", directory))?;
            // A new cpuset of v1 has no CPU and no memory, and takes no process before it has both.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (own, parent) = (directory.join(file), directory.parent().map(|path| path.join(file)));
                let given = parent.and_then(|path| fs::read_to_string(path).ok());
                if let Some(given) = given.filter(|given| !given.trim().is_empty() && own.exists()) {
                    fs::write(&own, given.trim()).map_err(ClusterError::file("write", &own))?;
                }
            }
        }
        Ok(())
    }

    /// Moves this process, and with it what it starts later, into them.
    pub(crate) fn enter(&self) -> Result<(), ClusterError> {
        for directory in &self.0 {
            let file = directory.join("cgroup.procs");
            fs::write(&file, "0").map_err(ClusterError::file("write", &file))?;
        }
        Ok(())
    }

    /// Removes them with all cgroups below. Waits up to five seconds for processes that the kernel
    /// is ending. Missing ones are no error.
    pub(crate) async fn remove(&self) -> Result<(), ClusterError> {
        for directory in &self.0 {
            let mut polls = 0;
            while let Err(error) = remove_below(directory) {
                polls += 1;
                if polls > POLLS {
                    return Err(ClusterError::file("remove", directory)(error));
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }
}

/// Removes a cgroup, the inner ones first.
fn remove_below(directory: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_controllers_in_v1_runs_v1() {
        let text = "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/\n0::/\n";
        let hierarchies = Hierarchies::parse(text);
        assert_eq!(
            hierarchies.directories("t"),
            ["/sys/fs/cgroup/cpu,cpuacct/smc-cluster-t", "/sys/fs/cgroup/memory/a/b/smc-cluster-t"]
                .map(PathBuf::from)
        );
        let hierarchies = Hierarchies::parse("0::/user.slice/session\n");
        assert_eq!(hierarchies, Hierarchies::V2);
        assert_eq!(hierarchies.directories("t"), [PathBuf::from("/sys/fs/cgroup/smc-cluster-t")]);
    }
}
