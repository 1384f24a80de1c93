//! Ends the connections and streams of proxies whose certificates are released, on every replica.

use std::collections::BTreeSet;
use std::sync::Arc;

use smc_authority::ledger::Announcement;
use smc_authority::pki::SerialNumber;
use smc_host::tasks::Tasks;
use smc_raft::ReplicatedLedger;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// The connections and streams of a replica, as far as a release concerns them.
pub(crate) trait EndReleased: Send {
    /// Ends the connections and streams of the certificates that `is_released` selects.
    fn end_released(&self, is_released: &dyn Fn(&SerialNumber) -> bool);
}

/// Follows the ledger's announcements of released certificates.
pub(crate) struct ReleaseWatcher<P> {
    ledger: Arc<dyn ReplicatedLedger>,
    announcements: broadcast::Receiver<Announcement>,
    proxies: P,
}

impl<P: EndReleased + 'static> ReleaseWatcher<P> {
    /// Starts the task, which sees every release from now on.
    pub(crate) fn start(ledger: Arc<dyn ReplicatedLedger>, proxies: P, tasks: &mut Tasks) {
        let announcements = ledger.local().announcements();
        let watcher = Self { ledger, announcements, proxies };
        tasks.spawn("releases", |stopping| watcher.run(stopping));
    }

    async fn run(mut self, stopping: CancellationToken) {
        loop {
            let announced = tokio::select! {
                () = stopping.cancelled() => return,
                announced = self.announcements.recv() => announced,
            };
            match announced {
                // Announcements were missed; the ledger has all releases.
                Ok(Announcement::Replaced) | Err(RecvError::Lagged(_)) => self.end_all_released(),
                Ok(announcement) => {
                    if let Some(serials) = released(announcement) {
                        self.proxies.end_released(&|serial| serials.contains(serial));
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Ends the connections and streams of all certificates that the ledger has as released, or not at all.
    fn end_all_released(&self) {
        self.proxies.end_released(&|serial| {
            self.ledger.local().read(|ledger| {
                ledger.proxy_certificate(serial).is_none_or(|record| record.state.is_released())
            })
        });
    }
}

/// The certificates that an announcement releases, if any. A proxy's first claim releases none: a look at all
/// streams for each would cost a storm of new proxies its square.
fn released(announcement: Announcement) -> Option<BTreeSet<SerialNumber>> {
    match announcement {
        Announcement::ProxyReleased { serials } | Announcement::ProxyClaimed { released: serials, .. } => {
            Some(BTreeSet::from_iter(serials)).filter(|serials| !serials.is_empty())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_concerns_the_streams_of_what_it_releases() {
        let serial = |number: u8| SerialNumber::draw([number; 16]);
        let claimed = |released| Announcement::ProxyClaimed { serial: serial(9), released };
        for (sentence, announcement, expected) in [
            ("a first claim", claimed(vec![]), None),
            ("a claim of a newer certificate", claimed(vec![serial(1)]), Some([serial(1)].into())),
            (
                "a release",
                Announcement::ProxyReleased { serials: vec![serial(2), serial(1)] },
                Some([serial(1), serial(2)].into()),
            ),
            ("a rotation", Announcement::AuthorityChanged, None),
        ] {
            assert_eq!(released(announcement), expected, "{sentence}");
        }
    }
}
