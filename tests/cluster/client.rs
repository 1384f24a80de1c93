//! A client that takes certificates through their life cycle, and records its observations.
//!
//! Each certificate is issued; then several proxies connect with it concurrently, each to a random
//! replica. With probability one half its pod is released, concurrently or afterwards. A claim also
//! releases the pod's earlier certificates.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::linearizable::{Action, Operation};
use crate::replicas::{Random, Replicas};

/// The recorded operations on each certificate, by serial number.
pub(crate) type Histories = BTreeMap<String, Vec<Operation>>;

/// The unclaimed certificates of a pod that are surely remembered: fewer than the ledger's bound,
/// since issuances whose answer was lost count as well.
const REMEMBERED: usize = 4;

/// A logical clock: an operation that has returned has a smaller number than one called afterwards.
#[derive(Clone, Default)]
pub(crate) struct LogicalClock(Arc<AtomicU64>);

impl LogicalClock {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// A client with its random choices and its records.
pub(crate) struct Client {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) clock: LogicalClock,
    pub(crate) random: Random,
    /// The pods of this client. No other client uses them.
    pub(crate) pods: Range<u64>,
    pub(crate) histories: Histories,
    /// By pod, the certificates that a release of the pod would release.
    pub(crate) unreleased: BTreeMap<u64, Vec<String>>,
    /// By pod, the releases with unknown outcome.
    pub(crate) lost_releases: BTreeMap<u64, Vec<Operation>>,
}

impl Client {
    /// Takes one certificate through its life cycle.
    pub(crate) async fn run_once(&mut self) {
        let pod = self.pods.start + self.random.below(self.pods.end - self.pods.start);
        let replica = self.replica();
        let called = self.clock.next();
        let Some(issued) = self.replicas.bootstrap(replica, pod).await else {
            sleep(Duration::from_millis(20)).await;
            return;
        };
        let returned = Some(self.clock.next());
        let mut history = self.lost_releases.get(&pod).cloned().unwrap_or_default();
        history.push(Operation { called, returned, action: Action::Issue });
        let serial = issued.serial;
        let twice = self.histories.insert(serial.clone(), history);
        assert!(twice.is_none(), "the serial number {serial} was used twice");
        let unreleased = self.unreleased.entry(pod).or_default();
        for earlier in unreleased.iter().rev().skip(REMEMBERED - 1) {
            let forgotten = Operation { called, returned: None, action: Action::Release };
            self.histories.get_mut(earlier).unwrap().push(forgotten);
        }
        unreleased.push(serial.clone());

        let mut running = JoinSet::new();
        for _ in 0..=self.random.below(3) {
            let (replicas, clock, replica) = (Arc::clone(&self.replicas), self.clock.clone(), self.replica());
            let (bootstrap, pause) = (issued.bootstrap.clone(), self.random.below(20));
            running.spawn(async move {
                sleep(Duration::from_millis(pause)).await;
                let called = clock.next();
                let served = replicas.is_served(replica, &bootstrap).await;
                Operation { called, returned: served.then(|| clock.next()), action: Action::Claim }
            });
        }
        if self.random.below(2) == 0 {
            let (replicas, clock, replica) = (Arc::clone(&self.replicas), self.clock.clone(), self.replica());
            let pause = self.random.below(60);
            running.spawn(async move {
                sleep(Duration::from_millis(pause)).await;
                let called = clock.next();
                let released = replicas.release(replica, pod).await;
                Operation { called, returned: released.map(|()| clock.next()), action: Action::Release }
            });
        }
        let mut operations = running.join_all().await;
        if self.random.below(3) == 0 {
            // Claims again; the certificate may be released by now.
            let replica = self.replica();
            let called = self.clock.next();
            let served = self.replicas.is_served(replica, &issued.bootstrap).await;
            let returned = served.then(|| self.clock.next());
            operations.push(Operation { called, returned, action: Action::Claim });
        }
        for operation in operations {
            self.note(pod, &serial, operation);
        }
    }

    /// Records an operation; a release, and a claim of a later certificate, is recorded for every
    /// certificate it concerns.
    fn note(&mut self, pod: u64, serial: &str, operation: Operation) {
        if operation.action != Action::Release {
            self.histories.get_mut(serial).unwrap().push(operation);
        }
        let unreleased = self.unreleased.entry(pod).or_default();
        if operation.action == Action::Claim {
            let released = Operation { action: Action::Release, ..operation };
            for earlier in unreleased.iter().filter(|earlier| *earlier != serial) {
                self.histories.get_mut(earlier).unwrap().push(released);
            }
            if operation.returned.is_some() {
                unreleased.retain(|other| other == serial);
            }
        }
        if operation.action != Action::Release {
            return;
        }
        for serial in unreleased.iter() {
            self.histories.get_mut(serial).unwrap().push(operation);
        }
        if operation.returned.is_some() {
            unreleased.clear();
        } else {
            self.lost_releases.entry(pod).or_default().push(operation);
        }
    }

    fn replica(&mut self) -> u64 {
        self.random.below(self.replicas.count)
    }
}
