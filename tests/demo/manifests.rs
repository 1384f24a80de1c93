//! Owns the demo mesh: Kubernetes YAML, compiled into the program. Also renders the TrafficSplit,
//! the only object that changes during the demo.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// The file of the TrafficSplit, rewritten to shift it.
pub const SPLIT_FILE: &str = "traffic-split.yaml";

/// All files of the demo mesh, by name.
pub const FILES: [(&str, &str); 9] = [
    ("namespaces.yaml", include_str!("mesh/namespaces.yaml")),
    ("mesh-config.yaml", include_str!("mesh/mesh-config.yaml")),
    ("bookbuyer.yaml", include_str!("mesh/bookbuyer.yaml")),
    ("bookthief.yaml", include_str!("mesh/bookthief.yaml")),
    ("bookstore.yaml", include_str!("mesh/bookstore.yaml")),
    ("bookwarehouse.yaml", include_str!("mesh/bookwarehouse.yaml")),
    ("database.yaml", include_str!("mesh/database.yaml")),
    ("access.yaml", include_str!("mesh/access.yaml")),
    (SPLIT_FILE, include_str!("mesh/traffic-split.yaml")),
];

/// The applications whose journals the demo reads: Pod as NAMESPACE/NAME, and container.
pub const APPLICATIONS: [(&str, &str); 6] = [
    ("bookbuyer/bookbuyer", "bookbuyer"),
    ("bookthief/bookthief", "bookthief"),
    ("bookstore/bookstore-v1", "bookstore"),
    ("bookstore/bookstore-v2", "bookstore"),
    ("bookwarehouse/bookwarehouse", "bookwarehouse"),
    ("bookdatabase/database", "database"),
];

/// Weights of the two versions in the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Weights {
    /// Weight of bookstore-v1.
    pub v1: u32,
    /// Weight of bookstore-v2.
    pub v2: u32,
}

/// Weights before the shift.
pub const WEIGHTS_BEFORE: Weights = Weights { v1: 50, v2: 50 };

/// Weights after the shift.
pub const WEIGHTS_AFTER: Weights = Weights { v1: 10, v2: 90 };

impl Weights {
    /// Returns v2's share of requests, 0 to 1. The demo has no split with both weights zero.
    pub fn share_v2(self) -> f64 {
        f64::from(self.v2) / (f64::from(self.v1) + f64::from(self.v2))
    }

    /// Renders the TrafficSplit with these weights.
    pub fn to_yaml(self) -> String {
        let Self { v1, v2 } = self;
        format!(
            "apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata:
  name: bookstore
  namespace: bookstore
spec:
  service: bookstore
  backends:
    - service: bookstore-v1
      weight: {v1}
    - service: bookstore-v2
      weight: {v2}
"
        )
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.v1, self.v2)
    }
}

/// Writes the demo mesh into a directory.
pub fn write_to(directory: &Path) -> std::io::Result<()> {
    for (name, text) in FILES {
        std::fs::write(directory.join(name), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_in_the_mesh_is_the_one_rendered_for_the_start() {
        let file = FILES.iter().find(|(name, _)| *name == SPLIT_FILE).unwrap();
        assert_eq!(file.1, WEIGHTS_BEFORE.to_yaml());
    }

    #[test]
    fn every_file_of_the_directory_is_compiled_in() {
        // Relative to the package directory, where `cargo test` starts tests. A compiled-in path
        // would be wrong when two clones share a build directory.
        let mut on_disk: Vec<_> = std::fs::read_dir("mesh")
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        on_disk.sort();
        let mut compiled_in: Vec<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        compiled_in.sort();
        assert_eq!(on_disk, compiled_in);
    }

    #[test]
    fn the_mesh_is_written_file_by_file() {
        let directory = tempfile::tempdir().unwrap();
        write_to(directory.path()).unwrap();
        for (name, text) in FILES {
            assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), text);
        }
    }
}
