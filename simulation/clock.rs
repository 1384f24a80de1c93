//! The time of day in a simulation.

use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use smc::env::Clock;
use smc_mesh::time::Timestamp;

/// When every simulation begins: 2026-01-01, 00:00 UTC.
const BEGINNING: Timestamp = Timestamp(1_767_225_600);

/// Shows the time since [`BEGINNING`] as the simulation counts it, the same on every host.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedClock;

/// How long the simulation has run, in simulated time; nothing before it begins.
pub(crate) fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        BEGINNING.plus(elapsed())
    }
}

impl TimeProvider for SimulatedClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.now().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
