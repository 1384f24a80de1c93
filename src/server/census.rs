//! Counting certificates and their ends for those who watch over a replica.
//!
//! Owns what the metrics say of certificates, and the warnings about the authority in the log. Refuses to renew
//! anything: that a certificate is counted here as ending soon means that whoever should have renewed it could not.

use std::sync::Arc;
use std::time::Duration;

use smc_mesh::ledger::Ledger;
use smc_mesh::pki::{WantedCertificates, earliest_service_end};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ca::CertificateManager;
use crate::ca::tls::ServerTls;
use crate::telemetry::Metrics;

/// Once per usual scrape.
const INTERVAL: Duration = Duration::from_secs(15);

/// See the module.
pub(super) struct Census {
    pub(super) ca: Arc<dyn CertificateManager>,
    pub(super) tls: Arc<ServerTls>,
    /// The identities in the mesh. Those that left it keep a record, which nobody renews.
    pub(super) wanted: watch::Receiver<WantedCertificates>,
    pub(super) metrics: Metrics,
}

impl Census {
    pub(super) async fn run(self, stopping: CancellationToken) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut warned = Vec::new();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.ca.ledger().read(|ledger| count(ledger, &self.wanted.borrow(), &self.metrics));
            self.metrics.certificate_expiry("controller", Some(self.tls.validity().not_after));
            let warnings = self.ca.warnings();
            log(&warned, &warnings);
            warned = warnings;
        }
    }
}

fn count(ledger: &Ledger, wanted: &WantedCertificates, metrics: &Metrics) {
    let proxies = ledger.count_proxy_certificates();
    metrics.certificates("proxy_unclaimed", proxies.unclaimed);
    metrics.certificates("proxy_claimed", proxies.claimed);
    metrics.certificates("proxy_released", proxies.released);
    metrics.certificates("service", ledger.service_certificates().count());
    metrics.certificate_expiry("service", earliest_service_end(wanted, ledger));
    let authority = ledger.authority();
    metrics.certificate_expiry("root", authority.map(|authority| authority.root.validity.not_after));
    metrics.certificate_expiry("issuing", authority.map(|authority| authority.issuing.validity.not_after));
}

/// Logs what was not said the last time, and that all is well again. A warning that counts days is new every day.
fn log(before: &[String], now: &[String]) {
    for warning in now.iter().filter(|warning| !before.contains(warning)) {
        warn!("{warning}");
    }
    if now.is_empty() && !before.is_empty() {
        info!("the certificate authority is well again");
    }
}
