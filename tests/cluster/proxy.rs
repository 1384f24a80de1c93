//! A proxy that connects with its certificate, and disconnects as soon as it is served.

use std::time::Duration;

use serde_json::Value;
use smc_testkit::ads::{Credentials, DeltaStream, subscribe};
use smc_xds::resource::ResourceType;
use tokio::time::timeout;

/// A healthy replica answers at once. A paused or partitioned one may take longer, and the outcome
/// is unknown.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the controller at `address` with a bootstrap's certificate, and requests all
/// resources. Returns true if a response came: the proxy was admitted, and its certificate is
/// claimed.
pub(crate) async fn is_served(address: &str, bootstrap: &Value) -> bool {
    timeout(PATIENCE, ask(address, bootstrap)).await.ok().flatten().is_some()
}

async fn ask(address: &str, bootstrap: &Value) -> Option<()> {
    let credentials = Credentials::read(&bootstrap.to_string())?;
    let channel = credentials.connect(address).await.ok()?;
    let first =
        [ResourceType::Cluster, ResourceType::Listener].map(|kind| subscribe(&credentials, kind, &[]));
    let mut stream = DeltaStream::open(channel, first).await.ok()?;
    stream.next().await.ok()?.map(drop)
}
