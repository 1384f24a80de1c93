//! Calls between two pods of the mesh, for as long as a walk lasts.
//!
//! Owns the application, and what its calls have to show after a step.

use smc_test_kubernetes::Cluster;
use tokio::time::Instant;

use super::steps::Step;
use crate::mesh::{self, SETTLE};
use crate::traffic::{Steady, application};

pub(super) const SHOP: &str = "walk-shop";

/// How many calls in a row have to succeed until calls count as recovered: two seconds of them.
const IN_A_ROW: usize = 8;

/// The calls of the application.
pub(super) struct Calls(Steady);

impl Calls {
    /// Starts the application, in a namespace of its own.
    pub(super) async fn begin(cluster: &Cluster) -> Self {
        cluster.apply(&application(SHOP)).await.unwrap();
        Self::of_started(cluster).await
    }

    /// Restarts its pods, as a person does whose namespace joins or leaves a mesh.
    pub(super) async fn of_restarted(cluster: &Cluster) -> Self {
        kubectl(cluster, &["rollout", "restart", "deployment"]).await;
        Self::of_started(cluster).await
    }

    async fn of_started(cluster: &Cluster) -> Self {
        for deployment in ["deployment/web", "deployment/caller"] {
            let status = ["rollout", "status", deployment, "--timeout=2m", "-n", SHOP];
            let rolled_out = cluster.kubectl(&status).await.unwrap();
            assert!(rolled_out.success(), "{rolled_out:?}\n{}", mesh::state(cluster, SHOP).await);
        }
        let former = cluster.wait("the former pods to end", SETTLE, || async {
            let pods = kubectl(cluster, &["get", "pods", "-o", "name"]).await;
            if pods.lines().count() == 2 { Ok(()) } else { Err(pods) }
        });
        former.await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let caller = kubectl(cluster, &["get", "pods", "-l", "app=caller", "-o", "name"]).await;
        let caller = caller.trim().strip_prefix("pod/").unwrap();
        let mut calls = Self(Steady::of(cluster, &format!("{SHOP}/{caller}")).await);
        if let Err(last) = calls.recover(cluster).await {
            panic!("no call succeeds: {last}\n{}", mesh::state(cluster, SHOP).await);
        }
        calls
    }

    /// Judges the calls of a step, and says how many there were.
    pub(super) async fn judge(
        &mut self,
        cluster: &Cluster,
        step: Step,
        begun: Instant,
    ) -> Result<String, String> {
        let (count, failed) = self.0.take();
        let said = format!("{} of {count} calls failed", failed.len());
        if step.replaces_the_application() {
            self.recover(cluster).await.map_err(|last| format!("calls fail for ever: {last}"))?;
            return Ok(said);
        }
        // Four in a second, on a machine that has time for them.
        let least = usize::try_from(begun.elapsed().as_secs() / 2).unwrap_or(usize::MAX);
        if failed.is_empty() && count >= least {
            return Ok(said);
        }
        Err(format!("{said}, in {} s: {failed:#?}", begun.elapsed().as_secs()))
    }

    /// Waits until calls succeed, one after the other.
    async fn recover(&mut self, cluster: &Cluster) -> Result<(), String> {
        let mut in_a_row = 0;
        let calls = &mut self.0;
        let mut look = || {
            let (count, failed) = calls.take();
            in_a_row = if failed.is_empty() { in_a_row + count } else { 0 };
            if in_a_row >= IN_A_ROW { Ok(()) } else { Err(failed.join("\n")) }
        };
        let waited = cluster.wait("calls that succeed", SETTLE, || {
            let looked = look();
            async { looked }
        });
        waited.await.map_err(|error| error.chain())
    }
}

/// How many pods of the application have sidecars.
pub(super) async fn sidecars(cluster: &Cluster) -> usize {
    kubectl(cluster, &["get", "pods", "-l", "osm-proxy-uuid", "-o", "name"]).await.lines().count()
}

async fn kubectl(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.kubectl(&[args, &["-n", SHOP]].concat()).await.unwrap();
    assert!(output.success(), "{args:?}: {}", output.stderr);
    output.stdout
}
