//! The faults of a replica that others must bridge, and how long that may take.

use std::time::Duration;

use smc_simulation::replica::Replica;
use smc_simulation::world::World;

/// How long a fault lasts: longer than keepalive takes to notice it, 7 s.
const FAILED: Duration = Duration::from_secs(9);

/// How long after healing every proxy is served: a keepalive that was under way, an election, the start of a
/// process, and the longest pause of a proxy.
pub(crate) const HEALED: Duration = Duration::from_secs(15);

/// How long after that every proxy is with its owner: it has rested twice after a move, for 10 and 20 s.
pub(crate) const SETTLED: Duration = Duration::from_mins(1);

/// What happens to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nothing reaches it, and nothing leaves it.
    Partition,
    /// Its process ends at once.
    Crash,
    /// As others see it, it stands still: what is sent to it and by it comes later.
    Freeze,
}

impl Fault {
    /// How long it lasts.
    pub(crate) fn lasts(self) -> Duration {
        if self == Self::None { Duration::from_secs(1) } else { FAILED }
    }
}

pub(crate) fn fail(world: &World, failing: &Replica, fault: Fault) {
    world.trace.note("operator", format!("{fault:?} of replica {}", failing.id()));
    match fault {
        Fault::None => {}
        Fault::Partition => world.each_link(failing.id(), |a, b| turmoil::partition(a, b)),
        Fault::Crash => failing.kill(),
        Fault::Freeze => world.each_link(failing.id(), |a, b| turmoil::hold(a, b)),
    }
}

pub(crate) fn heal(world: &World, failing: &Replica, fault: Fault) {
    world.trace.note("operator", "heals");
    match fault {
        Fault::None => {}
        Fault::Partition => world.each_link(failing.id(), |a, b| turmoil::repair(a, b)),
        Fault::Crash => failing.start(),
        Fault::Freeze => world.each_link(failing.id(), |a, b| turmoil::release(a, b)),
    }
}
