//! The probes of a process: started, alive, ready.
//!
//! Owns what each means, from the first moment of the process on:
//!
//! - *Started*: the disk is read, the log replayed as far as it is known to be committed.
//! - *Alive*: this process answers. Neither a quorum nor the API server has a part in it: a restart of a
//!   replica that waits for others would not help them.
//! - *Ready*: it serves proxies.

mod grpc;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

pub use grpc::start;

type Ready = Box<dyn Fn() -> bool + Send + Sync>;

/// The state that probes ask for. Cheap to clone.
#[derive(Clone, Default)]
pub struct Probes(Arc<State>);

#[derive(Default)]
struct State {
    started: AtomicBool,
    ready: OnceLock<Ready>,
}

impl std::fmt::Debug for Probes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probes").field("started", &self.started()).field("ready", &self.ready()).finish()
    }
}

impl Probes {
    /// The disk is read.
    pub fn note_start(&self) {
        self.0.started.store(true, Ordering::Release);
    }

    /// From now on `ready` decides. Only the first call counts.
    pub fn decide_by(&self, ready: impl Fn() -> bool + Send + Sync + 'static) {
        // A second server in one process does not exist.
        let _ = self.0.ready.set(Box::new(ready));
    }

    fn started(&self) -> bool {
        self.0.started.load(Ordering::Acquire)
    }

    fn ready(&self) -> bool {
        self.0.ready.get().is_some_and(|ready| ready())
    }

    /// The answer to the probe of this name; `None` if there is no such probe.
    fn answer(&self, probe: &str) -> Option<bool> {
        match probe {
            // The health of the whole server, by the gRPC health checking protocol.
            "" | "liveness" => Some(true),
            "startup" => Some(self.started()),
            "readiness" => Some(self.ready()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_before_it_is_started_and_started_before_it_is_ready() {
        let probes = Probes::default();
        let all = |probes: &Probes| ["", "liveness", "startup", "readiness"].map(|name| probes.answer(name));
        assert_eq!(all(&probes), [Some(true), Some(true), Some(false), Some(false)]);
        probes.note_start();
        assert_eq!(all(&probes), [Some(true), Some(true), Some(true), Some(false)]);
        let draining = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&draining);
        probes.decide_by(move || !asked.load(Ordering::Relaxed));
        assert_eq!(probes.answer("readiness"), Some(true));
        draining.store(true, Ordering::Relaxed);
        assert_eq!(probes.answer("readiness"), Some(false));
        assert_eq!(probes.answer("xds"), None);
    }
}
