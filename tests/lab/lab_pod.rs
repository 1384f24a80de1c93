//! Owns what the lab knows of one Pod that it runs.

use smc_types::ids::NamespacedName;
use tokio_util::sync::CancellationToken;

use super::mesh_files::{Declared, PodStatus};
use super::plan::PodPlan;
use super::reports::PodInfo;

/// A Pod that runs.
pub(super) struct LabPod {
    pub(super) plan: PodPlan,
    pub(super) incarnation: u64,
    pub(super) proxy_uuid: Option<String>,
    pub(super) namespaces: Option<u32>,
    pub(super) running: bool,
    /// Its containers and its proxy are ready.
    pub(super) ready: bool,
    /// Since it was ready first, its callers know it.
    pub(super) settled: bool,
    pub(super) restarts: u64,
    pub(super) problem: Option<String>,
    /// How one of its containers, or its proxy, ended last.
    pub(super) last_end: Option<String>,
    pub(super) cancel: CancellationToken,
    pub(super) withdrawn: CancellationToken,
    /// The document that declared it.
    pub(super) declared: Option<Declared>,
}

impl LabPod {
    /// A Pod that is about to start.
    pub(super) fn new(plan: PodPlan, incarnation: u64, cancel: CancellationToken) -> Self {
        Self {
            plan,
            incarnation,
            proxy_uuid: None,
            namespaces: None,
            running: false,
            ready: false,
            settled: false,
            restarts: 0,
            problem: None,
            last_end: None,
            cancel,
            withdrawn: CancellationToken::new(),
            declared: None,
        }
    }

    /// What the controller and the node hear of it.
    pub(super) fn status(&self) -> PodStatus {
        PodStatus {
            addresses: self.plan.addresses.clone(),
            running: self.running,
            ready: self.ready,
            proxy_uuid: self.proxy_uuid.clone(),
        }
    }

    /// What the lab's users hear of it.
    pub(super) fn info(&self, name: &NamespacedName) -> PodInfo {
        PodInfo {
            pod: name.to_string(),
            workload: self.plan.workload().to_string(),
            addresses: self.plan.addresses.clone(),
            in_mesh: self.plan.in_mesh,
            running: self.running,
            ready: self.ready && self.settled && !self.cancel.is_cancelled(),
            restarts: self.restarts,
            problem: self.problem.clone().or_else(|| self.last_end.clone()),
        }
    }
}

/// A declared Pod that cannot run.
pub(super) fn refused(name: &NamespacedName, problem: &str) -> PodInfo {
    PodInfo {
        pod: name.to_string(),
        workload: name.to_string(),
        addresses: Vec::new(),
        in_mesh: false,
        running: false,
        ready: false,
        restarts: 0,
        problem: Some(problem.to_owned()),
    }
}
