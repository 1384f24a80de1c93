//! The time of day in a simulation.

use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use smc_host::env::Clock;
use smc_types::time::Timestamp;

/// The start of every simulation: 2026-01-01, 00:00 UTC.
const START: Timestamp = Timestamp(1_767_225_600);

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
