//! The rate at which the authority issues certificates: real keys, real signatures, and records on the disks
//! of a majority.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use smc_authority::rules::WantedCertificates;
use smc_benches::Result;
use smc_benches::controller::PATIENCE;
use smc_host::env::Env;
use smc_issuing::renewal::Renewer;
use smc_issuing::{BuiltinCa, Issuer};
use smc_raft::ReplicatedLedger;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::trio::{Trio, account, proxy};

/// The kind of certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Of identities: the record holds the chain and the sealed key, 2.5 KiB.
    Service,
    /// Of proxies: the record holds what identifies the certificate, 0.5 KiB.
    Proxy,
}

/// How much is issued: the limit that is reached first ends it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) certificates: usize,
    pub(crate) time: Duration,
}

/// Issues to `first`, `first + 1`, … from `issuers` concurrent callers, distributed over the authorities.
/// Returns how many certificates were issued per second.
pub(crate) async fn issue(
    authorities: &[Arc<BuiltinCa>],
    kind: Kind,
    issuers: usize,
    first: usize,
    amount: Amount,
) -> Result<f64> {
    let taken = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for ca in authorities.iter().cycle().take(issuers) {
        let (ca, taken) = (Arc::clone(ca), Arc::clone(&taken));
        tasks.spawn(async move {
            let mut issued = 0usize;
            while start.elapsed() < amount.time {
                let n = taken.fetch_add(1, Ordering::Relaxed);
                if n >= amount.certificates {
                    break;
                }
                match kind {
                    Kind::Service => drop(ca.issue_service(&account(first + n)?, None).await?),
                    Kind::Proxy => {
                        let (proxy, account) = proxy(first + n)?;
                        drop(ca.issue_proxy(&proxy, &account).await?);
                    }
                }
                issued += 1;
            }
            Result::Ok(issued)
        });
    }
    let mut issued = 0;
    while let Some(task) = tasks.join_next().await {
        issued += task??;
    }
    Ok(per_second(issued, start.elapsed()))
}

#[expect(clippy::cast_precision_loss, reason = "some hundred thousand are exact")]
fn per_second(count: usize, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}

/// Both kinds for `seconds` each, after a second of warm-up.
pub(crate) async fn sustained(issuers: usize, seconds: u64) -> Result<Value> {
    let trio = Trio::start().await?;
    let endless = |time| Amount { certificates: usize::MAX, time };
    let (warming, time) = (endless(Duration::from_secs(1)), endless(Duration::from_secs(seconds)));
    issue(&trio.authorities, Kind::Proxy, issuers, 0, warming).await?;
    let proxies = issue(&trio.authorities, Kind::Proxy, issuers, 100_000, time).await?;
    let services = issue(&trio.authorities, Kind::Service, issuers, 0, time).await?;
    trio.stop().await?;
    Ok(json!({
        "issuers": issuers,
        // The lower of the two.
        "issued_per_s": proxies.min(services),
        "issued_proxy_per_s": proxies,
        "issued_service_per_s": services,
    }))
}

/// The cold start of three replicas on empty disks, in a mesh with `identities`: the time from the start of
/// the first replica until every replica has published a certificate for each identity.
pub(crate) async fn cold(identities: usize) -> Result<Value> {
    let start = Instant::now();
    let trio = Trio::start().await?;
    let founded = start.elapsed();
    let accounts = (0..identities).map(account).collect::<Result<BTreeSet<_>>>()?;
    let (wanted_sender, wanted) = watch::channel(WantedCertificates { accounts, lifetime: None });
    let stopping = CancellationToken::new();
    let mut renewers = JoinSet::new();
    let mut takers = JoinSet::new();
    for ca in &trio.authorities {
        let issuer: Arc<dyn Issuer> = Arc::<BuiltinCa>::clone(ca);
        let (issued, mut certificates) = mpsc::channel(256);
        let renewer = Renewer { issuer, env: Env::system(), wanted: wanted.clone(), issued };
        renewers.spawn(renewer.run(stopping.clone()));
        takers.spawn(async move {
            let mut having = BTreeSet::new();
            while having.len() < identities {
                let Some((account, certificate)) = certificates.recv().await else { break };
                if certificate.is_some() {
                    having.insert(account);
                }
            }
            // Kept open, since renewal ends when its receiver is dropped.
            (having.len(), certificates)
        });
    }
    let mut kept = Vec::new();
    while let Some(taken) = timeout(PATIENCE, takers.join_next()).await? {
        let (count, certificates) = taken?;
        if count < identities {
            return Err("a rotation ended early".into());
        }
        kept.push(certificates);
    }
    let took = start.elapsed();
    let superseded: usize = trio.groups[0].local().read(|ledger| {
        let accounts = ledger.service_certificates().map(|(account, _)| account);
        accounts.map(|account| ledger.superseded_certificates(account).len()).sum()
    });
    stopping.cancel();
    renewers.shutdown().await;
    drop((kept, wanted_sender));
    trio.stop().await?;
    Ok(json!({
        "cold_identities": identities,
        "cold_10k_s": took.as_secs_f64(),
        "cold_founded_s": founded.as_secs_f64(),
        // Certificates that replaced one of another replica in the same cold start.
        "cold_superseded": superseded,
    }))
}
