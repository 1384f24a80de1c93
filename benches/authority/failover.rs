//! `kill -9` of the leader: the time until another replica has issued a certificate.
//!
//! Three real controllers. Right after the kill, one caller at each survivor requests a certificate, as
//! `smc proxy bootstrap` does, and the first response counts. So the request is sent after the leader has
//! died, and its record is committed without it.

use std::time::Duration;

use serde_json::{Value, json};
use smc_benches::bootstraps::issued;
use smc_benches::controller::PATIENCE;
use smc_benches::controllers::{Controllers, REPLICAS};
use smc_benches::{Result, percentile_ms};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Pods that certificates are issued for.
const PODS: usize = 200;

/// How long all replicas run before the next leader is killed.
const CALM: Duration = Duration::from_millis(500);

pub(crate) async fn measure(kills: usize) -> Result<Value> {
    let mut controllers = Controllers::start(PODS)?;
    let mut latencies = Vec::new();
    for kill in 0..kills {
        let leader = controllers.leader().await?;
        sleep(CALM).await;
        let mut clients = Vec::new();
        for survivor in (0..REPLICAS).filter(|replica| *replica != leader) {
            clients.push(controllers.client(survivor).await?);
        }
        let killed = controllers.take(leader)?;
        let start = Instant::now();
        killed.kill().await?;
        let mut issuing = JoinSet::new();
        for (n, mut client) in clients.into_iter().enumerate() {
            let pod = format!("shop/pod-{}", (2 * kill + n) % PODS);
            issuing.spawn(async move { issued(&mut client, pod, PATIENCE).await });
        }
        timeout(PATIENCE, issuing.join_next()).await?.ok_or("no replica issues")???;
        latencies.push(start.elapsed());
        // The other request as well, so that it does not overlap with the next kill.
        timeout(PATIENCE, issuing.join_next()).await?.ok_or("no replica issues")???;
        controllers.run(leader)?;
    }
    Ok(json!({
        "kills": kills,
        "failover_p50_ms": percentile_ms(&latencies, 50),
        "failover_p99_ms": percentile_ms(&latencies, 99),
        "failover_max_ms": percentile_ms(&latencies, 100),
    }))
}
