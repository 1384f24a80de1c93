//! The effect of the commands for proxy certificates.
//!
//! Owns their life from the issuance to the release, and the bounds of one proxy. Once the group
//! has agreed on a time, the latest certificate of a proxy counts: its claim releases the earlier
//! ones, and what is not claimed in time is refused (docs/design/identity.md).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::authority::SignedFor;
use super::bounds::{
    MAX_CERTIFICATES_PER_PROXY, MAX_PROXY_CERTIFICATES, MAX_RELEASED_PER_PROXY, MAX_UNCLAIMED_PER_PROXY,
    RELEASED_KEPT, TIME_TO_CLAIM,
};
use super::outcome::{Outcome, Rejection, Reply};
use super::record::{ProxyCertificateRecord, ProxyCertificateState};
use super::signed::is_ended;
use super::state::Ledger;
use crate::pki::SerialNumber;
use smc_types::ids::ProxyName;
use smc_types::time::Timestamp;

/// The order of one proxy's certificates: by number, and before there were numbers by time.
type Order = (u64, Timestamp);

fn order(record: &ProxyCertificateRecord) -> Order {
    (record.number, record.issued_at)
}

impl Ledger {
    pub(super) fn record_proxy(
        &mut self,
        serial: SerialNumber,
        mut record: ProxyCertificateRecord,
        at: Timestamp,
    ) -> Outcome {
        self.check_issued(SignedFor::Workloads, serial, &record.validity, record.issuer, at)?;
        let bounded = self.agreed_time().is_some();
        let unclaimed = |record: &ProxyCertificateRecord| record.state == ProxyCertificateState::Unclaimed;
        let replaced =
            if bounded { self.excess(&record.proxy, MAX_UNCLAIMED_PER_PROXY - 1, unclaimed) } else { vec![] };
        if self.proxies.len() - replaced.len() >= MAX_PROXY_CERTIFICATES {
            return Err(Rejection::Full { what: "proxy certificates", max: MAX_PROXY_CERTIFICATES });
        }
        let live = |(_, other): &(_, &ProxyCertificateRecord)| !other.state.is_released();
        if !bounded && self.certificates_of(&record.proxy).filter(live).count() >= MAX_CERTIFICATES_PER_PROXY
        {
            return Err(Rejection::Full {
                what: "live certificates of this proxy",
                max: MAX_CERTIFICATES_PER_PROXY,
            });
        }
        self.forget_all(&replaced);
        record.number = self.next_proxy();
        Arc::make_mut(self.by_proxy.entry(record.proxy.clone()).or_default()).insert(serial);
        self.serials.insert(serial);
        self.proxies.insert(serial, Arc::new(record));
        Ok(Reply::Recorded)
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
        if let Some(record) = self.proxies.get_mut(serial).map(Arc::make_mut) {
            record.state = ProxyCertificateState::Claimed { at };
        }
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

    /// Releases the certificates of a proxy that were issued before `latest`. Of those that no proxy
    /// has connected with, nothing is kept. Returns their serial numbers, sorted.
    fn release_before(&mut self, proxy: &ProxyName, latest: Order, at: Timestamp) -> Vec<SerialNumber> {
        let earlier = self
            .certificates_of(proxy)
            .filter(|(_, record)| order(record) < latest && !record.state.is_released());
        let (unclaimed, claimed): (Vec<_>, Vec<_>) = earlier
            .map(|(serial, record)| (*serial, record.state))
            .partition(|(_, state)| *state == ProxyCertificateState::Unclaimed);
        let serials = |found: Vec<(SerialNumber, _)>| found.into_iter().map(|(serial, _)| serial).collect();
        let (unclaimed, claimed): (Vec<_>, Vec<_>) = (serials(unclaimed), serials(claimed));
        self.forget_all(&unclaimed);
        for serial in &claimed {
            if let Some(record) = self.proxies.get_mut(serial).map(Arc::make_mut) {
                record.state = ProxyCertificateState::Released { at };
            }
        }
        self.forget_released(proxy);
        let mut all = [unclaimed, claimed].concat();
        all.sort();
        all
    }

    pub(super) fn release(&mut self, mut serials: BTreeSet<SerialNumber>) -> Reply {
        let at = self.now();
        let mut proxies = BTreeSet::new();
        serials.retain(|serial| match self.proxies.get_mut(serial).map(Arc::make_mut) {
            Some(record) if !record.state.is_released() => {
                record.state = ProxyCertificateState::Released { at };
                proxies.insert(record.proxy.clone());
                true
            }
            _ => false,
        });
        if self.agreed_time().is_some() {
            for proxy in &proxies {
                self.forget_released(proxy);
            }
        }
        Reply::Released { serials: serials.into_iter().collect() }
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
