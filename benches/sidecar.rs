//! Simulated sidecars that behave towards their controllers as Envoy does, many in one process.
//!
//! Owns the order of replicas, ejection, back-off and resumption of each sidecar, all as its bootstrap says,
//! and the [`Board`] on which they write what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use serde_json::Value;
use smc_host::env::fixed::SeededEntropy;
use smc_testkit::ads::{Credentials, DeltaStream, ack, nack};
use smc_testkit::subscriptions::Subscriptions;
use smc_xds::resource::ResourceType;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;

use crate::Result;

/// The cluster of the controllers in a bootstrap.
const CLUSTER: &str = "/static_resources/clusters/0";

/// No replica.
const NONE: usize = usize::MAX;

/// What a bootstrap says about reconnecting.
#[derive(Debug, Clone, Copy)]
pub struct Reconnecting {
    base: Duration,
    max: Duration,
    connect_timeout: Duration,
    keepalive: Duration,
    keepalive_timeout: Duration,
    ejection: Duration,
    /// How many addresses may be ejected at a time, in percent.
    max_ejected: u64,
}

impl Reconnecting {
    /// Reads a bootstrap; `None` if it lacks a setting.
    pub fn read(bootstrap: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(bootstrap).ok()?;
        let seconds = |pointer: &str| {
            let text = json.pointer(pointer)?.as_str()?.strip_suffix('s')?;
            Duration::try_from_secs_f64(text.parse().ok()?).ok()
        };
        let service = "/dynamic_resources/ads_config/grpc_services/0/envoy_grpc";
        let http = format!(
            "{CLUSTER}/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/\
             explicit_http_config/http2_protocol_options/connection_keepalive"
        );
        Some(Self {
            base: seconds(&format!("{service}/retry_policy/retry_back_off/base_interval"))?,
            max: seconds(&format!("{service}/retry_policy/retry_back_off/max_interval"))?,
            connect_timeout: seconds(&format!("{CLUSTER}/connect_timeout"))?,
            keepalive: seconds(&format!("{http}/interval"))?,
            keepalive_timeout: seconds(&format!("{http}/timeout"))?,
            ejection: seconds(&format!("{CLUSTER}/outlier_detection/base_ejection_time"))?,
            max_ejected: json
                .pointer(&format!("{CLUSTER}/outlier_detection/max_ejection_percent"))?
                .as_u64()?,
        })
    }

    /// How to connect to a replica.
    fn endpoint(&self, credentials: &Credentials, address: &str) -> Result<Endpoint> {
        Ok(credentials
            .endpoint(address)?
            .http2_keep_alive_interval(self.keepalive)
            .keep_alive_timeout(self.keepalive_timeout)
            .keep_alive_while_idle(true))
    }

    /// The time before attempt `attempt`, which counts from 0: even over the interval, as Envoy draws it.
    fn back_off(&self, attempt: u32, random: u64) -> Duration {
        let interval = self.base.saturating_mul(2_u32.saturating_pow(attempt)).min(self.max);
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(random % nanos)
    }
}

/// What has happened to all sidecars.
#[derive(Debug, Default)]
pub struct Tally {
    /// Resources that came in the version that the sidecar held.
    pub resent: AtomicU64,
    /// Responses that were rejected.
    pub nacks: AtomicU64,
    /// Streams that did not end with OK, and connections that failed otherwise than by being refused.
    pub errors: AtomicU64,
    /// Connections that were refused, because no replica listened.
    pub refused: AtomicU64,
    gaps: Mutex<Vec<Duration>>,
}

/// What one sidecar shows.
#[derive(Debug)]
struct Slot {
    /// The replica whose stream has given it something.
    serving: AtomicUsize,
    /// The version of each endpoint resource.
    endpoints: Mutex<BTreeMap<String, String>>,
}

/// What the sidecars of a fleet write down.
#[derive(Debug)]
pub struct Board {
    slots: Vec<Slot>,
    tally: Tally,
}

impl Board {
    /// For this many sidecars.
    pub fn new(sidecars: usize) -> Self {
        let slot = || Slot { serving: AtomicUsize::new(NONE), endpoints: Mutex::default() };
        Self { slots: (0..sidecars).map(|_| slot()).collect(), tally: Tally::default() }
    }

    /// The counts.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Takes the times without a stream so far: from the end of one to the first response on the next.
    pub fn take_gaps(&self) -> Vec<Duration> {
        std::mem::take(&mut *hold(&self.tally.gaps))
    }

    /// Sets all counts to zero.
    pub fn reset(&self) {
        self.take_gaps();
        let Tally { resent, nacks, errors, refused, gaps: _ } = &self.tally;
        for count in [resent, nacks, errors, refused] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The replica that serves each sidecar, if one does.
    pub fn serving(&self) -> Vec<Option<usize>> {
        let replicas = self.slots.iter().map(|slot| slot.serving.load(Ordering::Relaxed));
        replicas.map(|replica| (replica != NONE).then_some(replica)).collect()
    }

    /// Whether every sidecar has a stream, and none of `without`.
    pub fn all_served(&self, without: Option<usize>) -> bool {
        let serving = |slot: &Slot| slot.serving.load(Ordering::Relaxed);
        self.slots.iter().map(serving).all(|replica| replica != NONE && Some(replica) != without)
    }

    /// The version that a sidecar holds of the endpoint resource whose name begins so.
    pub fn endpoints(&self, sidecar: usize, prefix: &str) -> Option<String> {
        let endpoints = hold(&self.slots.get(sidecar)?.endpoints);
        endpoints.iter().find(|(name, _)| name.starts_with(prefix)).map(|(_, version)| version.clone())
    }
}

/// One sidecar.
pub struct Sidecar {
    number: usize,
    credentials: Credentials,
    /// The way to the replica at each priority, with the TLS settings made once, as Envoy makes them.
    endpoints: Vec<Endpoint>,
    /// The number of the replica at each priority.
    replicas: Vec<usize>,
    reconnecting: Reconnecting,
    random: SeededEntropy,
    board: Arc<Board>,
    /// Until when each priority is ejected.
    ejected: Vec<Option<Instant>>,
    held: BTreeMap<ResourceType, BTreeMap<String, String>>,
    subscriptions: Subscriptions,
    /// When its last stream ended.
    ended: Option<Instant>,
    attempt: u32,
}

/// How an attempt at a stream ended.
enum End {
    /// With OK.
    Orderly,
    /// Without a connection; `true` if it was refused.
    Unconnected { refused: bool },
    /// With another status, from the controller.
    Refused,
    /// The connection broke.
    Broken,
}

impl Sidecar {
    /// A sidecar with this bootstrap, where the replicas listen on these addresses.
    pub fn new(number: usize, bootstrap: &str, addresses: &[String], board: &Arc<Board>) -> Result<Self> {
        let credentials = Credentials::read(bootstrap).ok_or("not a bootstrap")?;
        let replica = |address: &String| addresses.iter().position(|other| other == address);
        let replicas: Option<Vec<_>> = credentials.controllers.iter().map(replica).collect();
        let reconnecting = Reconnecting::read(bootstrap).ok_or("the bootstrap lacks a setting")?;
        let endpoints =
            credentials.controllers.iter().map(|address| reconnecting.endpoint(&credentials, address));
        Ok(Self {
            number,
            ejected: vec![None; credentials.controllers.len()],
            endpoints: endpoints.collect::<Result<_>>()?,
            credentials,
            replicas: replicas.ok_or("the bootstrap has an unknown controller")?,
            reconnecting,
            random: SeededEntropy::new(u64::try_from(number)?),
            board: Arc::clone(board),
            held: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            ended: None,
            attempt: 0,
        })
    }

    /// The replicas in the order in which it connects to them.
    pub fn replicas(&self) -> &[usize] {
        &self.replicas
    }

    /// Connects elsewhere than its bootstrap says.
    pub fn by_way_of(mut self, address: &str, relay: &str) -> Result<Self> {
        for (controller, endpoint) in self.credentials.controllers.iter().zip(&mut self.endpoints) {
            if controller == address {
                *endpoint = self.reconnecting.endpoint(&self.credentials, relay)?;
            }
        }
        Ok(self)
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        loop {
            let priority = self.priority();
            let end = self.stream(priority).await;
            if let Some(slot) = self.board.slots.get(self.number) {
                slot.serving.store(NONE, Ordering::Relaxed);
            }
            self.ended.get_or_insert_with(Instant::now);
            let tally = &self.board.tally;
            match end {
                End::Orderly => {}
                End::Unconnected { refused } => {
                    let count = if refused { &tally.refused } else { &tally.errors };
                    count.fetch_add(1, Ordering::Relaxed);
                    self.eject(priority);
                }
                End::Refused => {
                    tally.errors.fetch_add(1, Ordering::Relaxed);
                }
                End::Broken => {
                    tally.errors.fetch_add(1, Ordering::Relaxed);
                    self.eject(priority);
                }
            }
            sleep(self.reconnecting.back_off(self.attempt, self.random.draw())).await;
            self.attempt += 1;
        }
    }

    /// Ejects an address, if so many may be.
    fn eject(&mut self, priority: usize) {
        let now = Instant::now();
        let others = self
            .ejected
            .iter()
            .enumerate()
            .filter(|&(other, until)| other != priority && until.is_some_and(|until| until > now));
        let share = (others.count() + 1) * 100 / self.ejected.len().max(1);
        if u64::try_from(share).is_ok_and(|share| share <= self.reconnecting.max_ejected)
            && let Some(ejected) = self.ejected.get_mut(priority)
        {
            *ejected = Some(now + self.reconnecting.ejection);
        }
    }

    /// The first priority that is not ejected; the first of all, if all are.
    fn priority(&self) -> usize {
        let now = Instant::now();
        self.ejected.iter().position(|until| until.is_none_or(|until| until <= now)).unwrap_or(0)
    }

    async fn stream(&mut self, priority: usize) -> End {
        let Some(endpoint) = self.endpoints.get(priority) else { return End::Broken };
        let channel = match timeout(self.reconnecting.connect_timeout, endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return End::Unconnected { refused: is_refused(&error) },
            Err(_) => return End::Unconnected { refused: false },
        };
        let held = |kind| self.held.get(&kind).cloned().unwrap_or_default();
        let first = self.subscriptions.first(self.credentials.node(), held);
        let mut stream = match DeltaStream::open(channel, first).await {
            Ok(stream) => stream,
            Err(status) if status.source().is_none() => return End::Refused,
            Err(_) => return End::Broken,
        };
        let resumes = !self.held.is_empty();
        let mut awaited: BTreeSet<(ResourceType, String)> = BTreeSet::new();
        let mut served = false;
        loop {
            let response = match stream.next().await {
                Ok(Some(response)) => response,
                Ok(None) => return End::Orderly,
                Err(status) if status.source().is_none() => return End::Refused,
                Err(_) => return End::Broken,
            };
            self.attempt = 0;
            if let Some(ended) = self.ended.take() {
                hold(&self.board.tally.gaps).push(ended.elapsed());
            }
            for request in self.take(response, &mut awaited) {
                if stream.send(request).await.is_err() {
                    // The end of the stream says why.
                    break;
                }
            }
            if !served && (resumes || self.is_complete(&awaited)) {
                served = true;
                if let (Some(slot), Some(&replica)) =
                    (self.board.slots.get(self.number), self.replicas.get(priority))
                {
                    slot.serving.store(replica, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether it holds clusters, listeners and what they refer to.
    fn is_complete(&self, awaited: &BTreeSet<(ResourceType, String)>) -> bool {
        let has = |kind| self.held.contains_key(&kind);
        awaited.is_empty() && has(ResourceType::Cluster) && has(ResourceType::Listener)
    }

    /// Takes in a response. Returns its answer, and the subscriptions that follow from it.
    fn take(
        &mut self,
        response: DeltaDiscoveryResponse,
        awaited: &mut BTreeSet<(ResourceType, String)>,
    ) -> Vec<DeltaDiscoveryRequest> {
        let tally = &self.board.tally;
        let Some(kind) = ResourceType::from_url(&response.type_url) else {
            tally.nacks.fetch_add(1, Ordering::Relaxed);
            return vec![nack(&response, "an unknown type")];
        };
        let mut requests = vec![ack(&response)];
        let followed = self.subscriptions.follow(kind, &response.resources, &response.removed_resources);
        for (kind, names) in &followed.subscribe {
            awaited.extend(names.iter().map(|name| (*kind, name.clone())));
        }
        for (kind, names) in &followed.unsubscribe {
            // As Envoy does, it forgets what it does not use.
            let held = self.held.entry(*kind).or_default();
            for name in names {
                held.remove(name);
            }
        }
        requests.extend(followed.requests());
        let held = self.held.entry(kind).or_default();
        for resource in response.resources {
            awaited.remove(&(kind, resource.name.clone()));
            if kind == ResourceType::Endpoint
                && let Some(slot) = self.board.slots.get(self.number)
            {
                hold(&slot.endpoints).insert(resource.name.clone(), resource.version.clone());
            }
            let before = held.insert(resource.name, resource.version.clone());
            if before.is_some_and(|before| before == resource.version) {
                tally.resent.fetch_add(1, Ordering::Relaxed);
            }
        }
        for name in response.removed_resources {
            held.remove(&name);
            awaited.remove(&(kind, name));
        }
        requests
    }
}

/// Whether no process listened.
fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused)
        || error.source().is_some_and(is_refused)
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
