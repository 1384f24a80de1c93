//! The watch over the sidecars of the whole mesh: how many should be connected, how many are, and which are
//! connected to no replica.
//!
//! Owns the task and the exchange between replicas. The leader asks every replica which proxies it has,
//! every few seconds, and decides ([`Missing`]); with its next question every other replica learns what it
//! found. So all of them report the same, and a new leader goes on with it. Where a replica does not say
//! what it has, nothing is decided.

mod refusals;
mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use smc_authority::ledger::{ReplicaPhase, ReplicaRecord};
use smc_host::sync::lock;
use smc_host::tasks::Tasks;
use smc_mesh::catalog::Catalog;
use smc_model::topology::Readiness;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::peer::v1::{SidecarsAnswer, SidecarsQuestion, SidecarsReport};
use smc_raft::{Group, ReplicatedLedger};
use smc_sidecar::injection::PROXY_UUID_LABEL;
use smc_types::ids::ReplicaId;
use smc_xds::missing::{Missing, Sidecar};
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::problems::Problems;
use crate::publisher::MeshHandle;
use crate::xds::proxies::Proxies;
pub(crate) use refusals::{Refusals, Refused};
use report::{Present, packed, report};

/// The longest time between two looks, each of which passes over all pods: once per usual scrape.
const PERIOD: Duration = Duration::from_secs(15);

/// How long a replica may take to say which proxies it has.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// The periods for which a finding holds without a newer one: an election, and questions that failed.
const HOLDS: u32 = 4;

/// What one replica has and knows of sidecars. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sidecars {
    proxies: Proxies,
    refusals: Refusals,
    problems: Problems,
    metrics: Metrics,
    period: Duration,
    /// What the leader found last, and when this replica learned it.
    latest: Arc<Mutex<Option<(Instant, SidecarsReport)>>>,
}

impl Sidecars {
    /// Of the replica with these proxies. A sidecar may take `grace` to connect.
    pub(crate) fn new(
        proxies: &Proxies,
        refusals: &Refusals,
        problems: &Problems,
        metrics: &Metrics,
        grace: Duration,
    ) -> Self {
        let (proxies, refusals) = (proxies.clone(), refusals.clone());
        let (problems, metrics, latest) = (problems.clone(), metrics.clone(), Arc::default());
        Self { proxies, refusals, problems, metrics, period: PERIOD.min(grace / 4), latest }
    }

    /// Answers the leader, and takes over what it found.
    pub(crate) fn answer(&self, question: SidecarsQuestion) -> SidecarsAnswer {
        if let Some(report) = question.report {
            self.publish(report);
        }
        let connected = packed(self.proxies.connected().iter().map(|(proxy, _)| proxy.to_bytes()));
        let (mut unrecorded, mut distrustful) = (Vec::new(), Vec::new());
        for refused in self.refusals.current() {
            match refused {
                Refused::Unrecorded(proxy) => unrecorded.push(proxy.to_bytes()),
                Refused::Distrustful(address) => distrustful.push(report::octets(address)),
            }
        }
        let (unrecorded, distrustful) = (packed(unrecorded), packed(distrustful));
        SidecarsAnswer { connected, unrecorded, distrustful }
    }

    fn latest(&self) -> Option<SidecarsReport> {
        lock(&self.latest).as_ref().map(|(_, report)| report.clone())
    }

    fn publish(&self, report: SidecarsReport) {
        self.metrics.sidecars(Some((report.expected, report.connected)));
        self.problems.set_sidecars(report::problem(&report));
        *lock(&self.latest) = Some((Instant::now(), report));
    }

    /// Forgets what the leader found a while ago, if it found nothing since.
    fn expire(&self) {
        let mut latest = lock(&self.latest);
        if latest.as_ref().is_some_and(|(at, _)| at.elapsed() > self.period * HOLDS) {
            *latest = None;
            self.metrics.sidecars(None);
            self.problems.set_sidecars(None);
        }
    }
}

/// The task that looks at the mesh and, on the leader, at all replicas.
pub(crate) struct SidecarWatch {
    pub(crate) sidecars: Sidecars,
    pub(crate) group: Arc<Group>,
    pub(crate) mesh: MeshHandle,
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    pub(crate) grace: Duration,
}

impl SidecarWatch {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("sidecars of the mesh", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let watching = async {
            let began = Instant::now();
            let mut missing = Missing::new(self.grace);
            let mut leads_since = None;
            let mut ticks = interval(self.sidecars.period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.sidecars.expire();
                // Before its sources have synced, the replica knows a part of the pods.
                if self.served.borrow().is_none() {
                    continue;
                }
                let Ok(pods) = self.mesh.about(|mesh| with_sidecar(mesh.compiler.catalog())).await else {
                    // The replica is shutting down.
                    return std::future::pending::<()>().await;
                };
                missing.know(pods, began.elapsed());
                if self.group.status().leads() {
                    let since = *leads_since.get_or_insert_with(Instant::now);
                    self.look(&mut missing, began, since).await;
                } else {
                    missing.forget();
                    leads_since = None;
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = watching => {}
        }
    }

    /// Asks all replicas, and publishes what comes of it.
    async fn look(&self, missing: &mut Missing, began: Instant, leads_since: Instant) {
        let Some(present) = self.ask_all().await else { return };
        let mut found = report(&missing.look(&present.connected, began.elapsed()), &present);
        // Before it has looked for as long as a sidecar may be away, a leader has found none missing.
        if leads_since.elapsed() < self.grace
            && let Some(before) = self.sidecars.latest()
        {
            let SidecarsReport { expected, connected, .. } = found;
            found = SidecarsReport { expected, connected, ..before };
        }
        self.sidecars.publish(found);
    }

    /// What all replicas together have; `None` if one that may have proxies does not say.
    async fn ask_all(&self) -> Option<Present> {
        let question = SidecarsQuestion { report: self.sidecars.latest() };
        let members: Vec<_> = self.group.status().members.iter().map(|member| member.id).collect();
        let ask = |replica: ReplicaId| {
            let question = Question::Sidecars(question.clone());
            async move { (replica, self.group.ask(replica, question, ANSWER_LIMIT).await) }
        };
        let answers = join_all(members.into_iter().map(ask)).await;
        let phases = self.group.local().read(|ledger| ledger.placement().replicas.clone());
        let mut present = Present::default();
        for (replica, answer) in answers {
            match answer {
                Ok(Answer::Sidecars(answer)) => present.add(&answer),
                _ if may_have_proxies(replica, &phases) => return None,
                _ => {}
            }
        }
        Some(present)
    }
}

/// Whether a replica that does not answer may serve sidecars: the leader has not found it down.
fn may_have_proxies(replica: ReplicaId, phases: &BTreeMap<ReplicaId, ReplicaRecord>) -> bool {
    phases.get(&replica).is_some_and(|record| record.phase != ReplicaPhase::Down)
}

/// The pods of the mesh that run with a sidecar. Whether a machine runs, no source says.
fn with_sidecar(catalog: &Catalog) -> Vec<Sidecar> {
    let pods = catalog.workloads().filter(|workload| {
        !workload.id.is_machine()
            && !workload.ips.is_empty()
            && workload.readiness != Readiness::Draining
            && workload.labels.contains_key(PROXY_UUID_LABEL)
            && catalog.in_mesh(workload)
    });
    let sidecar = |workload: &smc_model::topology::Workload| Sidecar {
        pod: workload.id.clone(),
        proxy: workload.proxy,
        addresses: workload.ips.clone(),
    };
    pods.map(sidecar).collect()
}

#[cfg(test)]
mod tests {
    use smc_api::object::SourceEvent;
    use smc_decode::manifest;
    use smc_types::time::Timestamp;

    use super::*;

    #[test]
    fn pods_with_a_label_that_run_in_the_mesh_should_be_connected() {
        let mut text = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, \
                        labels: {openservicemesh.io/monitored-by: smc}}}\n---\n\
                        {apiVersion: v1, kind: Namespace, metadata: {name: other}}\n---\n\
                        {apiVersion: mesh.smc.dev/v1alpha1, kind: MeshWorkload, metadata: {name: old, namespace: shop}, \
                        spec: {addresses: [192.0.2.1], serviceAccountName: old, services: [old]}}\n"
            .to_owned();
        let label = "labels: {osm-proxy-uuid: 0d2f5a52-8f0e-4f3e-9c52-0a3a1b1c2d3N}";
        let whole = "podIP: 10.0.0.N";
        let pods = [
            ("shop", "runs", label, whole, ""),
            ("shop", "bare", "labels: {}", whole, ""),
            ("shop", "waits", label, "phase: Pending", ""),
            ("shop", "done", label, "podIP: 10.0.0.N, phase: Succeeded", ""),
            (
                "shop",
                "leaves",
                label,
                "podIP: 10.0.0.N, conditions: [{type: Ready, status: \"True\"}]",
                ", deletionTimestamp: \"2026-01-01T00:00:00Z\"",
            ),
            ("other", "stranger", label, whole, ""),
        ];
        for (number, (namespace, name, labels, status, meta)) in pods.iter().enumerate() {
            let pod = format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}, {labels}{meta}}}, \
                 spec: {{containers: []}}, status: {{{status}}}}}\n"
            );
            text += &pod.replace('N', &(number + 1).to_string());
        }
        let mut catalog = Catalog::default();
        let read = manifest::read("a.yaml", text.as_bytes());
        for object in read.declarations.iter().filter_map(|declaration| declaration.object.clone()) {
            catalog.apply(SourceEvent::Upsert(object));
        }
        assert_eq!(catalog.workloads().count(), 7, "{:?}", read.problems);
        let found: Vec<_> = with_sidecar(&catalog).iter().map(|sidecar| sidecar.pod.to_string()).collect();
        assert_eq!(found, ["shop/runs"]);
    }

    #[test]
    fn only_a_replica_that_is_down_or_not_there_yet_has_no_proxies() {
        let phases = [ReplicaPhase::Joining, ReplicaPhase::Ready, ReplicaPhase::Draining, ReplicaPhase::Down];
        let record = |phase| ReplicaRecord { phase, run: 1, since: Timestamp(0) };
        let phases: BTreeMap<_, _> = (0..).map(ReplicaId).zip(phases.map(record)).collect();
        let may: Vec<_> = (0..5).map(|id| may_have_proxies(ReplicaId(id), &phases)).collect();
        assert_eq!(may, [true, true, true, false, false]);
    }
}
