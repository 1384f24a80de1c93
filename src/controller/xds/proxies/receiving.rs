//! Whether the replica takes proxies, and how it copes with those that come.
//!
//! Owns the switch that a drain turns off, and the record of how new streams fare.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smc_host::sync::lock;
use smc_mesh::shard::pace::{Answers, Load};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Proxies;

/// What the replica takes, and how it copes.
#[derive(Debug)]
pub(super) struct Receiving {
    /// Whether it takes connections and streams.
    accepts: watch::Sender<bool>,
    /// Open streams of admitted proxies.
    pub(super) streams: watch::Sender<usize>,
    admitting: AtomicUsize,
    began: Instant,
    answers: Mutex<Answers>,
}

impl Default for Receiving {
    fn default() -> Self {
        Self {
            accepts: watch::Sender::new(true),
            streams: watch::Sender::new(0),
            admitting: AtomicUsize::new(0),
            began: Instant::now(),
            answers: Mutex::default(),
        }
    }
}

impl Proxies {
    /// Whether the replica takes connections and streams: not while it drains.
    pub fn accepts(&self) -> bool {
        *self.receiving.accepts.borrow()
    }

    /// The same, with every change.
    pub(crate) fn accepting(&self) -> watch::Receiver<bool> {
        self.receiving.accepts.subscribe()
    }

    /// Opens or closes the replica for connections and streams. Those that are open stay.
    pub(crate) fn accept_new(&self, accepts: bool) {
        self.receiving.accepts.send_replace(accepts);
    }

    /// The number of open streams, as it changes.
    pub(crate) fn stream_count(&self) -> watch::Receiver<usize> {
        self.receiving.streams.subscribe()
    }

    /// How the replica copes, with how late its tasks run.
    pub(crate) fn load(&self, late: Duration) -> Load {
        let receiving = &self.receiving;
        let admitting = receiving.admitting.load(Ordering::Relaxed);
        lock(&receiving.answers).load(receiving.began.elapsed(), late, admitting)
    }

    /// Counts a stream as being admitted as long as the guard lives.
    pub(in crate::xds) fn admitting(&self) -> AdmittingGuard {
        self.receiving.admitting.fetch_add(1, Ordering::Relaxed);
        AdmittingGuard(self.clone())
    }

    /// Notes the first answer on a stream: how long after its admission, and whether it was a NACK.
    pub(in crate::xds) fn answered(&self, latency: Duration, rejected: bool) {
        lock(&self.receiving.answers).note(self.receiving.began.elapsed(), latency, rejected);
    }
}

/// A stream that is being admitted.
#[derive(Debug)]
pub(in crate::xds) struct AdmittingGuard(Proxies);

impl Drop for AdmittingGuard {
    fn drop(&mut self) {
        self.0.receiving.admitting.fetch_sub(1, Ordering::Relaxed);
    }
}
