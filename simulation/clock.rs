//! The time of day in a simulation.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use smc_host::env::Clock;
use smc_host::sync::lock;
use smc_types::time::Timestamp;

/// The start of every simulation: 2026-01-01, 00:00 UTC.
pub(crate) const START: Timestamp = Timestamp(1_767_225_600);

/// [`START`] plus the simulated time, the same on every host.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedClock;

/// The simulated time since the start; zero before it.
pub(crate) fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        START.plus(elapsed())
    }
}

impl TimeProvider for SimulatedClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.now().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The clock of one host, which may be wrong. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct HostClock(Arc<Wrong>);

#[derive(Debug, Default)]
struct Wrong {
    /// Seconds that it is ahead of the simulated time.
    ahead: AtomicI64,
    /// Seconds that it gains each second, and since when.
    gains: Mutex<(i64, Duration)>,
}

impl HostClock {
    /// Sets it so many seconds ahead of the simulated time; it no longer drifts.
    pub fn set_ahead(&self, seconds: i64) {
        self.0.ahead.store(seconds, Ordering::SeqCst);
        *lock(&self.0.gains) = (0, Duration::ZERO);
    }

    /// Lets it gain so many seconds each second from now on.
    pub fn drift(&self, gains: i64) {
        *lock(&self.0.gains) = (gains, elapsed());
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        let (gains, since) = *lock(&self.0.gains);
        let drifted = i64::try_from(elapsed().saturating_sub(since).as_secs()).unwrap_or(i64::MAX);
        let wrong = self.0.ahead.load(Ordering::SeqCst).saturating_add(gains.saturating_mul(drifted));
        Timestamp(SimulatedClock.now().0.saturating_add(wrong))
    }
}
