//! The effect of the commands for proxy certificates.
//!
//! Owns their life from the issuance to the release, the bounds of one proxy, and which gives way to
//! a new one in a full ledger. Once the group has agreed on a time, the latest certificate of a proxy
//! counts: its claim releases the earlier ones, and what is not claimed in time is refused
//! (docs/design/identity.md).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::authority::SignedFor;
use super::bounds::{
    MAX_CERTIFICATES_PER_PROXY, MAX_RELEASED_PER_PROXY, MAX_UNCLAIMED_PER_PROXY, RELEASED_KEPT, TIME_TO_CLAIM,
};
use super::outcome::{Outcome, Rejection, Reply};
use super::record::{ProxyCertificateRecord, ProxyCertificateState};
use super::rules::Rules;
use super::signed::is_ended;
use super::state::Ledger;
use crate::pki::SerialNumber;
use smc_types::ids::ProxyName;
use smc_types::time::Timestamp;

/// The order of one proxy's certificates: by number, and before there were numbers by time.
type Order = (u64, Timestamp);

/// What a release leaves of certificates that no proxy has connected with.
#[derive(Debug, Clone, Copy)]
enum Unclaimed {
    /// Their records, as released ones.
    Keep,
    /// Nothing: an unknown certificate is refused as well.
    Forget,
}

fn order(record: &ProxyCertificateRecord) -> Order {
    (record.number, record.issued_at)
}

impl Ledger {
    pub(super) fn record_proxy(
        &mut self,
        serial: SerialNumber,
        mut record: ProxyCertificateRecord,
        at: Timestamp,
        max: usize,
    ) -> Outcome {
        self.check_issued(SignedFor::Workloads, serial, &record.validity, record.issuer, at)?;
        let bounded = self.agreed_time().is_some();
        let unclaimed = |record: &ProxyCertificateRecord| record.state == ProxyCertificateState::Unclaimed;
        let mut forgotten =
            if bounded { self.excess(&record.proxy, MAX_UNCLAIMED_PER_PROXY - 1, unclaimed) } else { vec![] };
        if self.proxies.len() - forgotten.len() >= max {
            forgotten.push(self.giving_way(&record.proxy.namespace, max)?);
        }
        let live = |(_, other): &(_, &ProxyCertificateRecord)| !other.state.is_released();
        if !bounded && self.certificates_of(&record.proxy).filter(live).count() >= MAX_CERTIFICATES_PER_PROXY
        {
            return Err(Rejection::Full {
                what: "live certificates of this proxy",
                max: MAX_CERTIFICATES_PER_PROXY,
            });
        }
        self.forget_all(&forgotten);
        record.number = self.now.next_proxy();
        Arc::make_mut(self.by_proxy.entry(record.proxy.clone()).or_default()).insert(serial);
        self.serials.insert(serial);
        self.places.insert(serial, &record);
        self.proxies.insert(serial, Arc::new(record));
        Ok(Reply::Recorded)
    }

    /// The certificate that is forgotten for a new one of `namespace` in a full ledger. The released
    /// ones go first: refused they are anyway. Then go the unclaimed ones, which costs a bootstrap
    /// that is on its way. Of each, the namespace with the most pays, with its oldest. A namespace
    /// that has the most unclaimed ones itself is refused instead: a pod that is not made is made
    /// later, and one whose bootstrap was forgotten waits in vain. What a proxy uses is never taken.
    ///
    /// So a namespace is refused only if it has at least an equal share of the places that are
    /// not in use, whatever other namespaces do.
    fn giving_way(&self, namespace: &Arc<str>, max: usize) -> Result<SerialNumber, Rejection> {
        let full = Rejection::Full { what: "proxy certificates", max };
        if self.rules() < Rules::Second {
            return Err(full);
        }
        if let Some((_, oldest)) = self.places.released.largest() {
            return Ok(oldest);
        }
        let (most, oldest) = self.places.unclaimed.largest().ok_or(full)?;
        let unclaimed = self.places.unclaimed.count(namespace);
        if unclaimed < most {
            return Ok(oldest);
        }
        Err(Rejection::LargestShare { namespace: Arc::clone(namespace), unclaimed, max })
    }

    /// Brings a certificate to another state.
    fn set_state(&mut self, serial: SerialNumber, state: ProxyCertificateState) {
        if let Some(record) = self.proxies.get_mut(&serial).map(Arc::make_mut) {
            self.places.remove(serial, record);
            record.state = state;
            self.places.insert(serial, record);
        }
    }

    pub(super) fn claim(&mut self, serial: &SerialNumber) -> Outcome {
        let at = self.now();
        let record = self.proxies.get(serial).ok_or(Rejection::UnknownProxyCertificate(*serial))?;
        match record.state {
            ProxyCertificateState::Unclaimed => {}
            ProxyCertificateState::Claimed { .. } => {
                return Ok(Reply::Claimed { first: false, released: Vec::new() });
            }
            ProxyCertificateState::Released { .. } => return Err(Rejection::Released(*serial)),
        }
        if self.is_too_late_to_claim(record) {
            return Err(Rejection::NotClaimedInTime(*serial));
        }
        let (proxy, latest) = (record.proxy.clone(), order(record));
        self.set_state(*serial, ProxyCertificateState::Claimed { at });
        let mut released = Vec::new();
        if self.agreed_time().is_some() {
            released = self.release_before(&proxy, latest, at);
        }
        Ok(Reply::Claimed { first: true, released })
    }

    /// Whether a claim of this certificate comes too late, by the time of the group.
    pub fn is_too_late_to_claim(&self, record: &ProxyCertificateRecord) -> bool {
        record.state == ProxyCertificateState::Unclaimed
            && self.agreed_time().is_some_and(|now| now.since(record.issued_at) > TIME_TO_CLAIM)
    }

    /// Releases the certificates of a proxy that were issued before `latest`. Returns their serial
    /// numbers, sorted.
    fn release_before(&mut self, proxy: &ProxyName, latest: Order, at: Timestamp) -> Vec<SerialNumber> {
        let earlier = self.certificates_of(proxy).filter(|(_, record)| order(record) < latest);
        let earlier: BTreeSet<_> = earlier.map(|(serial, _)| *serial).collect();
        let (released, _) = self.release_each(earlier, at, Unclaimed::Forget);
        self.forget_released(proxy);
        released
    }

    pub(super) fn release(&mut self, serials: BTreeSet<SerialNumber>) -> Reply {
        let unclaimed = if self.rules() < Rules::Second { Unclaimed::Keep } else { Unclaimed::Forget };
        let (serials, proxies) = self.release_each(serials, self.now(), unclaimed);
        if self.agreed_time().is_some() {
            for proxy in &proxies {
                self.forget_released(proxy);
            }
        }
        Reply::Released { serials }
    }

    /// Releases those of these certificates that are not released yet. Returns them, sorted, and the
    /// proxies that have one more released certificate on record.
    fn release_each(
        &mut self,
        serials: BTreeSet<SerialNumber>,
        at: Timestamp,
        unclaimed: Unclaimed,
    ) -> (Vec<SerialNumber>, BTreeSet<ProxyName>) {
        let (mut released, mut proxies) = (Vec::new(), BTreeSet::new());
        for serial in serials {
            let Some(record) = self.proxies.get(&serial) else { continue };
            match (record.state, unclaimed) {
                (ProxyCertificateState::Released { .. }, _) => continue,
                (ProxyCertificateState::Unclaimed, Unclaimed::Forget) => self.forget_all(&[serial]),
                (ProxyCertificateState::Unclaimed | ProxyCertificateState::Claimed { .. }, _) => {
                    proxies.insert(record.proxy.clone());
                    self.set_state(serial, ProxyCertificateState::Released { at });
                }
            }
            released.push(serial);
        }
        (released, proxies)
    }

    /// Forgets the first released certificates of a proxy beyond [`MAX_RELEASED_PER_PROXY`].
    fn forget_released(&mut self, proxy: &ProxyName) {
        let excess = self.excess(proxy, MAX_RELEASED_PER_PROXY, |record| record.state.is_released());
        self.forget_all(&excess);
    }

    /// The first of a proxy's certificates of one kind that are more than `most`.
    fn excess(
        &self,
        proxy: &ProxyName,
        most: usize,
        is_counted: impl Fn(&ProxyCertificateRecord) -> bool,
    ) -> Vec<SerialNumber> {
        let counted = self.certificates_of(proxy).filter(|(_, record)| is_counted(record));
        let mut sorted: Vec<_> = counted.map(|(serial, record)| (order(record), *serial)).collect();
        sorted.sort();
        sorted.truncate(sorted.len().saturating_sub(most));
        sorted.into_iter().map(|(_, serial)| serial).collect()
    }

    /// Deletes the records of proxy certificates.
    pub(super) fn forget_all(&mut self, serials: &[SerialNumber]) {
        for serial in serials {
            let Some(record) = self.proxies.remove(serial) else { continue };
            self.serials.remove(serial);
            self.places.remove(*serial, &record);
            if let Some(serials) = self.by_proxy.get_mut(&record.proxy).map(Arc::make_mut) {
                serials.remove(serial);
                if serials.is_empty() {
                    self.by_proxy.remove(&record.proxy);
                }
            }
        }
    }

    /// Whether pruning at `now` deletes a record.
    pub(super) fn is_proxy_prunable(&self, record: &ProxyCertificateRecord, now: Timestamp) -> bool {
        let released_long_ago = match record.state {
            ProxyCertificateState::Released { at } => at.plus(RELEASED_KEPT) < now,
            ProxyCertificateState::Unclaimed | ProxyCertificateState::Claimed { .. } => false,
        };
        released_long_ago || self.is_too_late_to_claim(record) || is_ended(&record.validity, now)
    }
}
