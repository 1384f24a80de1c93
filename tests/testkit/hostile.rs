//! Hostile proxies: clients with a proxy certificate of the mesh that cost a controller what they can.
//!
//! Owns the attacks, and what they got done. Each was once enough to stop a replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Extension;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use smc_xds::resource::ResourceType;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

use crate::ads::{Credentials, DeltaStream, ack, subscribe};

/// The names that a hostile proxy subscribes to, of endpoints that do not exist.
const NAMES: usize = 49_000;

/// How long one connection is used, if the controller does not end it.
const TURN: Duration = Duration::from_secs(15);

/// The pause before the next connection.
const PAUSE: Duration = Duration::from_millis(50);

/// A way to attack.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Holds tens of thousands of names, and makes the session look at all of them as often as it can.
    Walk,
    /// Sends requests that are small on the wire and large in the generated messages.
    Inflate,
    /// Opens streams and drops them.
    Flicker,
}

/// What the hostile proxies got done. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Done(Arc<[AtomicU64; 3]>);

impl Done {
    fn count(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Wildcards sent on streams with many names, large requests, and streams opened.
    pub fn counts(&self) -> [u64; 3] {
        [0, 1, 2].map(|kind| self.0[kind].load(Ordering::Relaxed))
    }
}

/// Attacks all controllers at these addresses in every way, with one certificate. Dropping the set ends it.
pub fn attack(addresses: &[String], own: &Credentials, done: &Done) -> JoinSet<()> {
    let mut attackers = JoinSet::new();
    for address in addresses {
        for kind in [Kind::Walk, Kind::Inflate, Kind::Flicker] {
            attackers.spawn(attack_one(address.clone(), own.clone(), kind, done.clone()));
        }
    }
    attackers
}

/// Attacks one controller. A stream or connection that is ended is opened again.
async fn attack_one(address: String, own: Credentials, kind: Kind, done: Done) {
    loop {
        if let Ok(channel) = own.connect(&address).await {
            let attacking = async {
                match kind {
                    Kind::Walk => walk(channel, &own, &done).await,
                    Kind::Inflate => inflate(channel, &own, &done).await,
                    Kind::Flicker => flicker(channel, &done).await,
                }
            };
            let _ = timeout(TURN, attacking).await;
        }
        sleep(PAUSE).await;
    }
}

async fn walk(channel: Channel, own: &Credentials, done: &Done) -> Option<()> {
    let names = (0..NAMES).map(|i| format!("unknown-{i:06}")).collect();
    let first = DeltaDiscoveryRequest {
        resource_names_subscribe: names,
        ..subscribe(own, ResourceType::Endpoint, &[])
    };
    let mut stream = DeltaStream::open(channel, [first]).await.ok()?;
    let endpoints = |subscribed: &[&str], unsubscribed: &[&str]| DeltaDiscoveryRequest {
        resource_names_unsubscribe: unsubscribed.iter().map(ToString::to_string).collect(),
        ..subscribe(own, ResourceType::Endpoint, subscribed)
    };
    for number in 0_u64.. {
        while let Ok(response) = timeout(Duration::ZERO, stream.next()).await {
            stream.send(ack(&response.ok()??)).await.ok()?;
        }
        stream.send(endpoints(&["*"], &[])).await.ok()?;
        if number % 4 == 0 {
            stream.send(endpoints(&[], &["*"])).await.ok()?;
        }
        done.count(Kind::Walk);
    }
    None
}

async fn inflate(channel: Channel, own: &Credentials, done: &Done) -> Option<()> {
    let mut request = subscribe(own, ResourceType::Cluster, &[]);
    request.node.as_mut()?.extensions = vec![Extension::default(); 1 << 20];
    let mut stream = DeltaStream::open(channel, [request]).await.ok()?;
    done.count(Kind::Inflate);
    while let Ok(Some(_)) = stream.next().await {}
    Some(())
}

async fn flicker(channel: Channel, done: &Done) -> Option<()> {
    loop {
        DeltaStream::open(channel.clone(), []).await.ok()?;
        done.count(Kind::Flicker);
    }
}
