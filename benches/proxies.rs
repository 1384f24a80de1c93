//! Proxies that subscribe as Envoy does, and what they receive.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use smc_testkit::ads::{Credentials, DeltaStream, ack};
use smc_testkit::subscriptions::Subscriptions;
use smc_xds::resource::ResourceType;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::Result;
use crate::controller::PATIENCE;

/// The next event of a proxy, or the error of a stream that ended.
pub async fn next(received: &mut mpsc::Receiver<Event>, streams: &mut JoinSet<Result<()>>) -> Result<Event> {
    tokio::select! {
        event = received.recv() => Ok(event.ok_or("every stream ended")?),
        Some(ended) = streams.join_next() => match ended? {
            Ok(()) => Err("a stream ended".into()),
            Err(error) => Err(error),
        },
        () = tokio::time::sleep(PATIENCE) => Err("nothing was received for too long".into()),
    }
}

/// An event of a proxy.
pub enum Event {
    /// It received endpoints.
    Endpoints(Held),
    /// It holds all clusters, listeners and the resources that they reference, for the first time.
    Complete,
}

/// An endpoint set that a proxy holds now.
pub struct Held {
    /// The number of the proxy.
    pub proxy: usize,
    /// The name of the set.
    pub name: String,
    /// The length of the response that brought it.
    pub bytes: usize,
    /// When it arrived.
    pub at: Instant,
}

/// A proxy that subscribes as Envoy does, to all clusters and listeners and to the resources that they
/// reference by name, and ACKs everything.
pub struct Proxy {
    number: usize,
    channel: Channel,
    credentials: Credentials,
}

impl Proxy {
    /// Connects to the preferred controller of its bootstrap.
    pub async fn connect(number: usize, credentials: Credentials) -> Result<Self> {
        let address = credentials.controllers.first().ok_or("the bootstrap has no controller")?;
        let channel = credentials.connect(address).await?;
        Ok(Self { number, channel, credentials })
    }

    /// Runs until the stream ends.
    pub async fn run(self, events: mpsc::Sender<Event>) -> Result<()> {
        let mut subscriptions = Subscriptions::default();
        let first = subscriptions.first(self.credentials.node(), |_| BTreeMap::new());
        let mut stream = DeltaStream::open(self.channel, first).await?;
        // What has not arrived yet; a wildcard has no name.
        let wildcards = [ResourceType::Cluster, ResourceType::Listener].map(|kind| (kind, String::new()));
        let mut awaited = BTreeSet::from(wildcards);
        let mut complete = false;
        while let Some(response) = stream.next().await? {
            let at = Instant::now();
            stream.send(ack(&response)).await?;
            let kind = ResourceType::from_url(&response.type_url).ok_or("an unknown type")?;
            let followed = subscriptions.follow(kind, &response.resources, &response.removed_resources);
            for (kind, names) in &followed.subscribe {
                awaited.extend(names.iter().map(|name| (*kind, name.clone())));
            }
            for request in followed.requests() {
                stream.send(request).await?;
            }
            awaited.remove(&(kind, String::new()));
            let names = response.resources.iter().map(|resource| &resource.name);
            for name in names.chain(&response.removed_resources) {
                awaited.remove(&(kind, name.clone()));
            }
            if kind == ResourceType::Endpoint {
                let bytes = response.encoded_len();
                for resource in response.resources {
                    let held = Held { proxy: self.number, name: resource.name, bytes, at };
                    events.send(Event::Endpoints(held)).await?;
                }
            }
            if awaited.is_empty() && !complete {
                complete = true;
                events.send(Event::Complete).await?;
            }
        }
        Ok(())
    }
}
