//! The proxy certificates that may give way to new ones in a full ledger.
//!
//! Owns the index of those that are not in use: of each namespace, the released and the unclaimed
//! ones, the oldest first, and which namespace has the most of each.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use smc_types::time::Timestamp;

use super::record::{ProxyCertificateRecord, ProxyCertificateState};
use crate::pki::SerialNumber;

/// The order in which certificates of one state give way: by when they came to it, and those of one
/// second by number.
type Age = (Timestamp, u64, SerialNumber);

/// The certificates that are not in use. Follows from the records alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Kept to say that they were released: without its record, a certificate is refused as well.
    pub(super) released: Shares,
    /// Those of bootstraps that are on their way, or never come.
    pub(super) unclaimed: Shares,
}

impl Places {
    /// Notes a record that is new, or came to another state.
    pub(super) fn insert(&mut self, serial: SerialNumber, record: &ProxyCertificateRecord) {
        if let Some((shares, since)) = self.of(record) {
            shares.insert(&record.proxy.namespace, (since, record.number, serial));
        }
    }

    /// Takes a record out, before it comes to another state or is deleted.
    pub(super) fn remove(&mut self, serial: SerialNumber, record: &ProxyCertificateRecord) {
        if let Some((shares, since)) = self.of(record) {
            shares.remove(&record.proxy.namespace, &(since, record.number, serial));
        }
    }

    /// The shares that a record counts in, and since when; `None` if a proxy uses the certificate.
    fn of(&mut self, record: &ProxyCertificateRecord) -> Option<(&mut Shares, Timestamp)> {
        match record.state {
            ProxyCertificateState::Unclaimed => Some((&mut self.unclaimed, record.issued_at)),
            ProxyCertificateState::Claimed { .. } => None,
            ProxyCertificateState::Released { at } => Some((&mut self.released, at)),
        }
    }
}

/// The certificates of one state by namespace. Finds the oldest of the largest share in O(log n).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shares {
    by_namespace: OrdMap<Arc<str>, OrdSet<Age>>,
    /// The size of each share, with the namespace.
    sizes: OrdSet<(usize, Arc<str>)>,
}

impl Shares {
    /// How many certificates of this namespace there are.
    pub(super) fn count(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).map_or(0, OrdSet::len)
    }

    /// The size of the largest share, and its oldest certificate; `None` if there is no certificate.
    pub(super) fn largest(&self) -> Option<(usize, SerialNumber)> {
        let (size, namespace) = self.sizes.get_max()?;
        let (_, _, oldest) = self.by_namespace.get(namespace)?.get_min()?;
        Some((*size, *oldest))
    }

    fn insert(&mut self, namespace: &Arc<str>, age: Age) {
        self.change(namespace, |share| {
            share.insert(age);
        });
    }

    fn remove(&mut self, namespace: &Arc<str>, age: &Age) {
        self.change(namespace, |share| {
            share.remove(age);
        });
    }

    fn change(&mut self, namespace: &Arc<str>, change: impl FnOnce(&mut OrdSet<Age>)) {
        let share = self.by_namespace.entry(Arc::clone(namespace)).or_default();
        let before = share.len();
        change(share);
        let after = share.len();
        self.sizes.remove(&(before, Arc::clone(namespace)));
        if after == 0 {
            self.by_namespace.remove(namespace);
        } else {
            self.sizes.insert((after, Arc::clone(namespace)));
        }
    }
}
