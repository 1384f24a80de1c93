//! Whether the replica takes proxies, and how it copes with those that come.
//!
//! Owns the switch that a drain turns off, and the record of how new streams fare.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smc_host::accept::Turns;
use smc_host::sync::lock;
use smc_xds::shard::pace::{Answers, Load, settling};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Proxies;

/// Handshakes at once, of proxies that have asked for one. At half a millisecond of a core each, one is
/// done after some 15 ms, far below the time that a proxy waits for it. Proxies at a distance of 10 ms get
/// some thousand of them a second, more than two cores can do.
const HANDSHAKES_AT_ONCE: usize = 32;

/// What the replica takes, and how it copes.
#[derive(Debug)]
pub(super) struct Intake {
    /// Whether it takes connections and streams.
    accepts: watch::Sender<bool>,
    /// Since when the port is open; `None` while it is closed.
    open: watch::Sender<Option<Instant>>,
    /// Open streams of admitted proxies.
    pub(super) streams: watch::Sender<usize>,
    admitting: AtomicUsize,
    /// The handshakes that are done now, and those that wait.
    handshakes: Turns,
    began: Instant,
    answers: Mutex<Answers>,
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            accepts: watch::Sender::new(true),
            open: watch::Sender::new(None),
            streams: watch::Sender::new(0),
            admitting: AtomicUsize::new(0),
            handshakes: Turns::new(HANDSHAKES_AT_ONCE),
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
    pub fn accept_new(&self, accepts: bool) {
        self.receiving.accepts.send_replace(accepts);
    }

    /// Notes that the port is open now, or closed.
    pub(in crate::xds) fn note_port(&self, open: bool) {
        self.receiving.open.send_replace(open.then(Instant::now));
    }

    /// Whether the port is open: not before the sources have synced, and not while the replica drains.
    pub(crate) fn is_open(&self) -> bool {
        self.receiving.open.borrow().is_some()
    }

    /// Waits until the port is open.
    pub async fn opened(&self) {
        // The sender lives as long as this.
        let _ = self.receiving.open.subscribe().wait_for(Option::is_some).await;
    }

    /// The number of open streams, as it changes.
    pub(crate) fn stream_count(&self) -> watch::Receiver<usize> {
        self.receiving.streams.subscribe()
    }

    /// How the replica copes, one of so many, with how late its tasks run.
    pub(crate) fn load(&self, replicas: usize, late: Duration) -> Load {
        let receiving = &self.receiving;
        let admitting = receiving.admitting.load(Ordering::Relaxed) + receiving.handshakes.waiting();
        let open_for = receiving.open.borrow().map_or(Duration::ZERO, |opened| opened.elapsed());
        let settling = settling(open_for, replicas);
        let measured = Load { settling, late, admitting, room: self.room_left(), ..Load::default() };
        lock(&receiving.answers).load(receiving.began.elapsed(), measured)
    }

    /// The turns of handshakes.
    pub(in crate::xds) fn handshakes(&self) -> &Turns {
        &self.receiving.handshakes
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
