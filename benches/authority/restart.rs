//! A controller with a large ledger: the time of its restart after `kill -9`, and its size.
//!
//! One certificate in ten belongs to an identity, the others to proxies. The controller is ready when it has
//! issued a certificate.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use smc_authority::ledger::Ledger;
use smc_benches::bootstraps::issued;
use smc_benches::controller::{Controller, PATIENCE};
use smc_benches::{Result, percentile};
use smc_host::env::Env;
use smc_raft::{Group, ReplicatedLedger, Storage};
use smc_types::ids::ReplicaId;
use tokio::time::{Instant, sleep};

use crate::issuance::{Amount, Kind, issue};
use crate::trio::{authority, key};

const ISSUERS: usize = 256;
const RESTARTS: usize = 5;

const MESH: &str = "apiVersion: v1\nkind: Namespace\n\
    metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}\n\
    ---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: buyer, namespace: shop}\n\
    ---\napiVersion: v1\nkind: Pod\nmetadata: {name: pod, namespace: shop}\n\
    spec: {serviceAccountName: buyer, containers: [{name: app, image: app}]}\n";

pub(crate) async fn measure(certificates: usize) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    fs::create_dir(directory.path().join("mesh"))?;
    fs::write(directory.path().join("mesh/mesh.yaml"), MESH)?;
    let snapshot = fill(directory.path(), &data.join("ledger"), certificates).await?;

    let mut readies = Vec::new();
    let (mut rss, mut peak) = (0, 0);
    for _ in 0..RESTARTS {
        let start = Instant::now();
        let flags = ["--xds-listen=127.0.0.1:0".to_owned()];
        let kek = directory.path().join("kek");
        let controller = Controller::start(directory.path(), &directory.path().join("mesh"), &kek, &flags)?;
        let mut client = controller.client().await?;
        issued(&mut client, "shop/pod".to_owned(), PATIENCE).await?;
        readies.push(start.elapsed());
        // Time to release memory that only the start needs.
        sleep(Duration::from_secs(2)).await;
        rss = rss.max(controller.memory_kib("VmRSS")?);
        peak = peak.max(controller.memory_kib("VmHWM")?);
        controller.kill().await?;
    }
    let disk = disk_usage(&data)?;
    Ok(json!({
        "certificates": certificates,
        "restart_100k_s": percentile(&readies, 100).as_secs_f64(),
        "restart_100k_p50_s": percentile(&readies, 50).as_secs_f64(),
        "rss_100k_mib": mib(rss * 1024),
        "rss_peak_100k_mib": mib(peak * 1024),
        "disk_100k_mib": mib(disk),
        "snapshot_100k_mib": mib(snapshot),
    }))
}

/// Issues all certificates on a replica in this process. Returns the size of a snapshot of them, in bytes.
async fn fill(directory: &Path, ledger: &Path, certificates: usize) -> Result<u64> {
    let keys = key(directory)?;
    let storage = Storage::Directory(ledger.to_owned());
    let group = Arc::new(Group::alone(ReplicaId(0), storage, &Env::system()).await?);
    let ca = authority(&group, &keys).await?;
    let of = |certificates| Amount { certificates, time: Duration::MAX };
    let services = certificates / 10;
    issue(&[Arc::clone(&ca)], Kind::Service, ISSUERS, 0, of(services)).await?;
    issue(&[Arc::clone(&ca)], Kind::Proxy, ISSUERS, 0, of(certificates - services)).await?;
    let snapshot = group.local().read(Ledger::canonical)?.len();
    group.stop().await;
    Ok(u64::try_from(snapshot)?)
}

/// The disk usage of the files in a directory, in bytes.
fn disk_usage(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_usage(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

#[expect(clippy::cast_precision_loss, reason = "some hundred MiB are exact")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
