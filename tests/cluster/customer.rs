//! A client that takes certificates through their lives, and writes down what it saw.
//!
//! A certificate is issued, several proxies come with it at the same time, each to some replica, and half of the time its
//! pod is released, at the same time or afterwards.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::linearizable::{Operation, What};
use crate::replicas::{Draw, Replicas};

/// What was seen of each certificate, by its serial number.
pub(crate) type Histories = BTreeMap<String, Vec<Operation>>;

/// Counts moments: whatever has returned has a smaller number than what is called afterwards.
#[derive(Clone, Default)]
pub(crate) struct Moments(Arc<AtomicU64>);

impl Moments {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// See the module.
pub(crate) struct Customer {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) moments: Moments,
    pub(crate) draw: Draw,
    /// The pods that nobody else takes certificates for.
    pub(crate) pods: Range<u64>,
    pub(crate) seen: Histories,
    /// By pod, what a release of it would release.
    pub(crate) unreleased: BTreeMap<u64, Vec<String>>,
    /// By pod, the releases of which nobody knows whether they will take effect.
    pub(crate) lost_releases: BTreeMap<u64, Vec<Operation>>,
}

impl Customer {
    /// Takes one certificate through its life.
    pub(crate) async fn live(&mut self) {
        let pod = self.pods.start + self.draw.below(self.pods.end - self.pods.start);
        let replica = self.replica();
        let called = self.moments.next();
        let Some(issued) = self.replicas.bootstrap(replica, pod).await else {
            sleep(Duration::from_millis(20)).await;
            return;
        };
        let returned = Some(self.moments.next());
        let mut history = self.lost_releases.get(&pod).cloned().unwrap_or_default();
        history.push(Operation { called, returned, what: What::Issue });
        let serial = issued.serial;
        let twice = self.seen.insert(serial.clone(), history);
        assert!(twice.is_none(), "the serial number {serial} was used twice");
        self.unreleased.entry(pod).or_default().push(serial.clone());

        let mut at_work = JoinSet::new();
        for _ in 0..=self.draw.below(3) {
            let (replicas, moments, replica) =
                (Arc::clone(&self.replicas), self.moments.clone(), self.replica());
            let (bootstrap, pause) = (issued.bootstrap.clone(), self.draw.below(20));
            at_work.spawn(async move {
                sleep(Duration::from_millis(pause)).await;
                let called = moments.next();
                let served = replicas.is_served(replica, &bootstrap).await;
                Operation { called, returned: served.then(|| moments.next()), what: What::Claim }
            });
        }
        if self.draw.below(2) == 0 {
            let (replicas, moments, replica) =
                (Arc::clone(&self.replicas), self.moments.clone(), self.replica());
            let pause = self.draw.below(60);
            at_work.spawn(async move {
                sleep(Duration::from_millis(pause)).await;
                let called = moments.next();
                let released = replicas.release(replica, pod).await;
                Operation { called, returned: released.map(|()| moments.next()), what: What::Release }
            });
        }
        let mut operations = at_work.join_all().await;
        if self.draw.below(3) == 0 {
            // Whatever has become of it meanwhile.
            let replica = self.replica();
            let called = self.moments.next();
            let served = self.replicas.is_served(replica, &issued.bootstrap).await;
            let returned = served.then(|| self.moments.next());
            operations.push(Operation { called, returned, what: What::Claim });
        }
        for operation in operations {
            self.note(pod, &serial, operation);
        }
    }

    /// Writes an operation down, a release for all that it concerns.
    fn note(&mut self, pod: u64, serial: &str, operation: Operation) {
        if operation.what != What::Release {
            self.seen.get_mut(serial).unwrap().push(operation);
            return;
        }
        let unreleased = self.unreleased.entry(pod).or_default();
        for serial in unreleased.iter() {
            self.seen.get_mut(serial).unwrap().push(operation);
        }
        if operation.returned.is_some() {
            unreleased.clear();
        } else {
            self.lost_releases.entry(pod).or_default().push(operation);
        }
    }

    fn replica(&mut self) -> u64 {
        self.draw.below(self.replicas.count)
    }
}
