//! What an event touched.
//!
//! Owns the shape of the answer and how answers add up. Refuses to work it out: the catalog does, while it
//! applies the event.

use std::collections::BTreeSet;

use crate::ids::{ProxyName, ServiceAccountId, ServiceId};

/// What may look different after an event. Everything that is not named here is promised to be as it
/// was; what is named may in rare cases be unchanged all the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Impact {
    /// All identities are touched: a switch of the whole mesh was turned.
    pub everything: bool,
    /// Of the identities that run in the mesh, those whose own answers may differ: their classes, who may reach them, the services they may
    /// call and what those look like, except for endpoints.
    pub accounts: BTreeSet<ServiceAccountId>,
    /// Services whose endpoints differ on some port, also because the port or the service came or went.
    pub endpoints: BTreeSet<ServiceId>,
    /// Sidecars that appeared, vanished, or now stand beside another workload or in another class.
    pub proxies: BTreeSet<ProxyName>,
}

impl Impact {
    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.accounts.is_empty() && self.endpoints.is_empty() && self.proxies.is_empty()
    }

    /// Adds what another event touched.
    pub fn merge(&mut self, other: Self) {
        self.everything |= other.everything;
        self.accounts.extend(other.accounts);
        self.endpoints.extend(other.endpoints);
        self.proxies.extend(other.proxies);
    }
}
