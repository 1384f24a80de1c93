//! What an event affects.
//!
//! Owns the answer and how answers add up. The catalog works it out while it applies the event.

use std::collections::BTreeSet;

use smc_types::ids::{ProxyName, ServiceAccountId, ServiceId};

/// What may differ after an event. Everything that is not named here is unchanged; what is named may in
/// rare cases be unchanged, too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affected {
    /// All identities are affected: a mesh-wide setting changed.
    pub everything: bool,
    /// The identities in the mesh whose configuration may differ, except for endpoints: their classes, the
    /// identities that may reach them, and the services that they may call.
    pub accounts: BTreeSet<ServiceAccountId>,
    /// The identities in the mesh of which what may reach them may differ, and nothing else of their
    /// configuration.
    pub inbound: BTreeSet<ServiceAccountId>,
    /// Services whose endpoints differ on some port, also if the port or the service was added or removed.
    pub endpoints: BTreeSet<ServiceId>,
    /// Sidecars that were added or removed, or that belong to another workload or class than before.
    pub proxies: BTreeSet<ProxyName>,
}

impl Affected {
    /// Whether nothing is affected.
    pub fn is_empty(&self) -> bool {
        !self.everything
            && self.accounts.is_empty()
            && self.inbound.is_empty()
            && self.endpoints.is_empty()
            && self.proxies.is_empty()
    }

    /// Adds what another event affects.
    pub fn merge(&mut self, other: Self) {
        self.everything |= other.everything;
        self.accounts.extend(other.accounts);
        self.inbound.extend(other.inbound);
        self.endpoints.extend(other.endpoints);
        self.proxies.extend(other.proxies);
    }
}
