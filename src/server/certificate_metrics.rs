//! The metrics of certificates, and the log of warnings about the CA.
//!
//! Owns their intervals. Renews nothing: a near expiry in the metrics shows a certificate that could not be
//! renewed.

use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::Ledger;
use smc_authority::rules::{WantedCertificates, earliest_service_end};
use smc_host::tasks::Tasks;
use smc_issuing::BuiltinCa;
use smc_issuing::tls::ServerTls;
use smc_raft::ReplicatedLedger;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// Once per usual scrape.
const INTERVAL: Duration = Duration::from_secs(15);

/// The task that counts certificates.
pub(crate) struct CertificateMetrics {
    ledger: Arc<dyn ReplicatedLedger>,
    ca: Arc<BuiltinCa>,
    tls: Arc<ServerTls>,
    wanted: watch::Receiver<WantedCertificates>,
    metrics: Metrics,
}

impl CertificateMetrics {
    /// `wanted` are the identities in the mesh. Identities that left it keep a record, which is not renewed.
    pub(crate) fn new(
        ledger: &Arc<dyn ReplicatedLedger>,
        ca: &Arc<BuiltinCa>,
        tls: &Arc<ServerTls>,
        wanted: &watch::Receiver<WantedCertificates>,
        metrics: &Metrics,
    ) -> Self {
        let (ledger, ca, tls) = (Arc::clone(ledger), Arc::clone(ca), Arc::clone(tls));
        Self { ledger, ca, tls, wanted: wanted.clone(), metrics: metrics.clone() }
    }

    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("certificate metrics", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut warned = Vec::new();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.ledger.local().read(|ledger| count(ledger, &self.wanted.borrow(), &self.metrics));
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
    let gateways = ledger.gateway_certificates().map(|(_, record)| record.certificate.validity.not_after);
    metrics.certificate_expiry("gateway", gateways.min());
    let authority = ledger.authority();
    metrics.certificate_expiry("root", authority.map(|authority| authority.root.validity.not_after));
    metrics.certificate_expiry("issuing", authority.map(|authority| authority.issuing.validity.not_after));
}

/// Logs the warnings that are new, and the end of all warnings. A warning that counts days is new every day.
fn log(before: &[String], now: &[String]) {
    for warning in now.iter().filter(|warning| !before.contains(warning)) {
        warn!("{warning}");
    }
    if now.is_empty() && !before.is_empty() {
        info!("the warnings about the certificate authority have ended");
    }
}
