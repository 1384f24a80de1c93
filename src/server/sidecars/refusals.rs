//! Peers that this replica refused since their certificate, or its own, is of another certificate authority.
//!
//! Owns for how long they are remembered. Any stranger can bring such a refusal about; it is only looked at
//! for pods whose sidecars are missing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_host::sync::lock;
use smc_types::ids::ProxyUuid;
use tokio::time::Instant;

/// How long a refusal is remembered. Envoy tries again within 30 seconds.
const REMEMBERED: Duration = Duration::from_mins(2);

/// Refusals that are remembered; about 64 KiB. Where more peers are refused, these show why.
const MAX_REFUSED: usize = 1024;

/// A refused peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refused {
    /// It has a certificate of this proxy that is not on record.
    Unrecorded(ProxyUuid),
    /// The handshake with this address failed, since one side does not know the other's CA.
    Distrustful(IpAddr),
}

/// The peers refused in the last minutes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<BTreeMap<Refused, Instant>>>);

impl Refusals {
    pub(crate) fn note(&self, refused: Refused) {
        let (now, mut known) = (Instant::now(), lock(&self.0));
        if known.len() >= MAX_REFUSED {
            known.retain(|_, at| now.saturating_duration_since(*at) < REMEMBERED);
        }
        if known.len() < MAX_REFUSED || known.contains_key(&refused) {
            known.insert(refused, now);
        }
    }

    pub(super) fn current(&self) -> Vec<Refused> {
        let mut known = lock(&self.0);
        known.retain(|_, at| at.elapsed() < REMEMBERED);
        known.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_are_bounded_and_forgotten() {
        let refusals = Refusals::default();
        let peer = |n: usize| Refused::Distrustful(IpAddr::from(u128::try_from(n).unwrap().to_be_bytes()));
        for n in 0..MAX_REFUSED + 5 {
            refusals.note(peer(n));
        }
        assert_eq!(refusals.current().len(), MAX_REFUSED);
        tokio::time::advance(REMEMBERED / 2).await;
        refusals.note(peer(0));
        tokio::time::advance(REMEMBERED / 2).await;
        assert_eq!(refusals.current(), [peer(0)]);
    }
}
