//! The program `smc` on this machine, as a person runs it.

use smc_test_kubernetes::{Cluster, beside};
use tokio::process::Command;

use crate::mesh;

/// The program, for one mesh of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) mesh: &'a str,
    pub(crate) namespace: &'a str,
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Program<'_> {
    /// Runs it with the flags that name the mesh, as far as a command has them.
    pub(crate) async fn run(&self, args: &[&str]) -> Said {
        let mut named = args.to_vec();
        if !["ca", "proxy", "cluster", "mesh"].contains(&args[0]) {
            named.extend(["--mesh-name", self.mesh]);
        }
        if args[0] != "namespace" {
            named.extend(["--mesh-namespace", self.namespace]);
        }
        self.run_as_typed(&named).await
    }

    /// Runs it with these arguments alone.
    pub(crate) async fn run_as_typed(&self, args: &[&str]) -> Said {
        let mut smc = Command::new(beside("smc").unwrap());
        let output =
            smc.args(args).arg("--kubeconfig").arg(self.cluster.kubeconfig()).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), output: text(output.stdout), errors: text(output.stderr) }
    }

    /// Runs it, which succeeds. Returns its output.
    pub(crate) async fn succeed(&self, args: &[&str]) -> String {
        self.succeeded(args).await.output
    }

    /// Runs it, which succeeds. Returns what it said beside its output.
    pub(crate) async fn succeed_in_words(&self, args: &[&str]) -> String {
        self.succeeded(args).await.errors
    }

    async fn succeeded(&self, args: &[&str]) -> Said {
        let said = self.run(args).await;
        if said.code == Some(0) {
            return said;
        }
        panic!("smc {}: {said:#?}\n{}", args.join(" "), mesh::state(self.cluster, self.namespace).await);
    }
}

impl Said {
    /// What it said when it refused.
    pub(crate) fn refusal(self) -> String {
        assert_ne!(self.code, Some(0), "{self:#?}");
        self.errors
    }
}
