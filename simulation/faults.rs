//! Faults of networks and machines.

use std::collections::BTreeSet;

use turmoil::{LinkIter, Sim};

use crate::replica::{Replica, host};
use crate::trace::Trace;
use crate::world::step;

/// A partition of the network that isolates one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// The replica can neither send nor receive.
    Both,
    /// The replica cannot send.
    Outbound,
    /// The replica cannot receive.
    Inbound,
}

impl Partition {
    /// Cuts the network between `replica` and `other`.
    pub fn cut(self, replica: &str, other: &str) {
        match self {
            Self::Both => turmoil::partition(replica, other),
            Self::Outbound => turmoil::partition_oneway(replica, other),
            Self::Inbound => turmoil::partition_oneway(other, replica),
        }
    }
}

/// The power supply of all replicas.
pub struct Power {
    replicas: Vec<Replica>,
    down: BTreeSet<u64>,
    trace: Trace,
}

impl Power {
    /// All replicas have power.
    pub fn new(replicas: Vec<Replica>, trace: Trace) -> Self {
        Self { replicas, down: BTreeSet::new(), trace }
    }

    /// Cuts the power of replica `id`, after what it has sent has arrived. Returns true if the simulation has
    /// ended.
    pub fn cut(&mut self, sim: &mut Sim<'_>, id: u64) -> turmoil::Result<bool> {
        // What has left the machine arrives, acknowledgements above all; what is not sent yet is lost.
        sim.links(|links| links.for_each(LinkIter::deliver_all));
        if step(sim)? {
            return Ok(true);
        }
        self.trace.note_at(sim.elapsed(), host(id), "loses its power");
        let (lost, others): (Vec<_>, Vec<_>) = self.replicas.iter().partition(|replica| replica.id() == id);
        // Before the crash, since turmoil closes the connections of a crashed host, and a machine without
        // power closes none.
        for other in others {
            sim.partition(host(id), host(other.id()));
        }
        sim.crash(host(id));
        lost.into_iter().for_each(Replica::lose_power);
        self.down.insert(id);
        Ok(false)
    }

    /// Restores the power of replica `id`, which starts again.
    pub fn restore(&mut self, sim: &mut Sim<'_>, id: u64) {
        self.down.remove(&id);
        let up = self.replicas.iter().map(Replica::id).filter(|other| !self.down.contains(other));
        up.filter(|other| *other != id).for_each(|other| sim.repair(host(id), host(other)));
        sim.bounce(host(id));
    }
}
