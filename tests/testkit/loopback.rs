//! The places of a group of replicas on this machine.

use std::collections::BTreeMap;

use smc_host::network::{Listener, Network, Tcp};
use smc_types::ids::ReplicaId;

/// A free port of the loopback address for each replica, taken before the first one starts, since each
/// must know the addresses of all.
pub struct Loopback {
    /// Where each replica is reached.
    pub addresses: BTreeMap<ReplicaId, String>,
    /// What each replica listens on.
    pub listeners: BTreeMap<ReplicaId, Box<dyn Listener>>,
}

/// Takes the ports of the replicas 0 to `count`, exclusive.
pub async fn loopback(count: u64) -> Loopback {
    let mut listeners = BTreeMap::new();
    for id in 0..count {
        let listener = Tcp.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        listeners.insert(ReplicaId(id), listener);
    }
    let addresses = listeners.iter().map(|(id, listener)| (*id, listener.address().to_string())).collect();
    Loopback { addresses, listeners }
}
