//! The connections of this replica, and the streams of admitted proxies on them.
//!
//! Owns the table of both, and requests the end of those that [`smc_xds::connections`] evicts. Does
//! not end them itself: the task of a connection or stream does.

mod ending;
mod intake;
pub(super) mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_authority::pki::SerialNumber;
use smc_host::log_limit::LogLimit;
use smc_host::sync::lock;
use smc_model::replica_settings::ReplicaSettings;
use smc_types::ids::{ProxyName, ProxyUuid, WorkloadId};
use smc_xds::connections::{ConnectionId, Connections, Excess, Opened, StreamId, TooManyConnections};
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::end_reason::EndReason;
use super::open_stream::{OpenStream, StopReason};
use super::overhead::Overhead;
use super::rate_limit::RateLimit;
use super::reconnects::Connecting;
use super::request_body::Unhandled;
use crate::metrics::Metrics;
use intake::Intake;

/// The connections and open streams of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Proxies {
    table: Arc<Mutex<Table>>,
    /// How many proxies it may serve.
    settings: watch::Receiver<ReplicaSettings>,
    metrics: Metrics,
    /// Evictions in the log.
    evictions: Arc<LogLimit>,
    receiving: Arc<Intake>,
}

#[derive(Debug)]
struct Table {
    /// The bounds: which connections and streams stay.
    bounds: Connections,
    connections: BTreeMap<ConnectionId, Connection>,
    /// What each proxy may still do. Outlives its connections, so that a new one brings no new allowance,
    /// until it is as good as new.
    allowances: BTreeMap<ProxyName, Allowance>,
    /// The root of the last [`Proxies::update_trust`].
    trust_checked: Option<SerialNumber>,
    /// The streams of each proxy, oldest first.
    streams: BTreeMap<ProxyName, BTreeMap<StreamId, Arc<OpenStream>>>,
}

/// What one proxy may make the replica do, on all its connections. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    pub(super) rate_limit: RateLimit,
    /// The bytes of its requests that are not handled.
    pub(super) unhandled: Unhandled,
    /// What it sends beside them.
    pub(super) overhead: Overhead,
    /// How fast it connects.
    pub(super) connecting: Connecting,
}

impl Allowance {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            rate_limit: RateLimit::new(now),
            unhandled: Unhandled::default(),
            overhead: Overhead::new(now),
            connecting: Connecting::new(now),
        }
    }

    /// Whether a new one is the same.
    fn is_idle(&self, now: Instant) -> bool {
        self.rate_limit.is_idle(now) && self.overhead.is_idle(now) && self.connecting.is_idle(now)
    }
}

/// One connection, shared by its task, its streams and the table. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    id: ConnectionId,
    /// The address of the peer.
    pub(super) peer: SocketAddr,
    /// Cancelled to close it gracefully: no new streams, and the open ones may finish.
    pub(super) close: CancellationToken,
    /// Cancelled to drop it at once.
    pub(super) abort: CancellationToken,
    /// What its proxy may make the replica do, shared by all connections of the proxy.
    pub(super) allowance: Allowance,
    /// The number of streams of an admitted proxy on it.
    streams: watch::Sender<usize>,
}

impl Table {
    fn allowance(&mut self, proxy: &ProxyName) -> Allowance {
        // Swept when as many may be unused as connections are open, so that the sweeps cost nothing in the
        // mean.
        if self.allowances.len() > 2 * self.connections.len() + 64 {
            let now = Instant::now();
            self.allowances.retain(|_, allowance| !allowance.is_idle(now));
        }
        self.allowances.entry(proxy.clone()).or_insert_with(Allowance::new).clone()
    }
}

impl Proxies {
    /// An empty table for at most `max_connections` connections, and as many proxies as `settings` say.
    pub(crate) fn new(
        max_connections: usize,
        settings: watch::Receiver<ReplicaSettings>,
        metrics: Metrics,
    ) -> Self {
        let bounds = Connections::new(max_connections);
        let (connections, streams) = (BTreeMap::new(), BTreeMap::new());
        let allowances = BTreeMap::new();
        let table = Table { bounds, connections, allowances, trust_checked: None, streams };
        Self {
            table: Arc::new(Mutex::new(table)),
            settings,
            metrics,
            evictions: Arc::default(),
            receiving: Arc::default(),
        }
    }

    /// All open streams, by proxy, oldest first.
    pub fn streams(&self) -> BTreeMap<ProxyName, Vec<Arc<OpenStream>>> {
        let table = lock(&self.table);
        table
            .streams
            .iter()
            .map(|(proxy, streams)| (proxy.clone(), streams.values().cloned().collect()))
            .collect()
    }

    /// The proxies that have a stream, and the age of the newest.
    pub(crate) fn connected(&self) -> Vec<(ProxyUuid, Duration)> {
        let now = Instant::now();
        let age = |stream: &Arc<OpenStream>| now.saturating_duration_since(stream.began);
        let table = lock(&self.table);
        let newest = |streams: &BTreeMap<_, _>| streams.values().next_back().map_or(Duration::ZERO, age);
        table.streams.iter().map(|(proxy, streams)| (proxy.uuid, newest(streams))).collect()
    }

    fn all_streams(&self) -> Vec<Arc<OpenStream>> {
        lock(&self.table).streams.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The open streams of one proxy, oldest first.
    pub fn streams_of(&self, proxy: &ProxyName) -> Vec<Arc<OpenStream>> {
        lock(&self.table)
            .streams
            .get(proxy)
            .map(|streams| streams.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Updates, for every stream, whether the proxy has ACKed the secrets of `served`, whose trust
    /// bundle contains `root`. O(streams).
    pub(crate) fn update_trust(&self, root: SerialNumber, served: &ServedState) {
        lock(&self.table).trust_checked = Some(root);
        self.all_streams().iter().for_each(|stream| stream.update_trust(root, served));
    }

    /// The workloads of connected proxies that did not trust `root` at the last [`Self::update_trust`].
    /// Empty before the first update for `root`, when no proxy can have received it.
    pub(crate) fn distrustful(&self, root: SerialNumber) -> BTreeSet<WorkloadId> {
        if lock(&self.table).trust_checked != Some(root) {
            return BTreeSet::new();
        }
        self.all_streams()
            .into_iter()
            .filter(|stream| !stream.trusts(root))
            .map(|stream| stream.admission.workload.clone())
            .collect()
    }

    /// For each connected proxy, by its workload, the generation of the latest served state all of which the
    /// proxy is known to have answered on all its streams. Looks at `served`. O(streams).
    pub(crate) fn answered_up_to(&self, served: &ServedState) -> BTreeMap<WorkloadId, u64> {
        let mut answered = BTreeMap::new();
        for stream in self.all_streams() {
            let generation = stream.answered(served);
            let least = answered.entry(stream.admission.workload.clone()).or_insert(generation);
            *least = generation.min(*least);
        }
        answered
    }

    /// Adds an accepted connection. It closes when `closing` is cancelled; dropping the guard removes it.
    pub(super) fn accept(
        &self,
        peer: SocketAddr,
        closing: &CancellationToken,
    ) -> Result<ConnectionGuard, TooManyConnections> {
        let mut table = lock(&self.table);
        let (id, evicted) = table.bounds.accept()?;
        if let Some(evicted) = evicted {
            self.evict(&table, evicted);
        }
        let connection = Connection {
            id,
            peer,
            close: closing.child_token(),
            abort: CancellationToken::new(),
            allowance: Allowance::new(),
            streams: watch::Sender::new(0),
        };
        table.connections.insert(id, connection.clone());
        self.metrics.connections(table.connections.len());
        drop(table);
        Ok(ConnectionGuard { proxies: self.clone(), connection })
    }

    /// The bound on connections.
    pub(super) fn max_connections(&self) -> usize {
        lock(&self.table).bounds.max()
    }

    fn evict(&self, table: &Table, id: ConnectionId) {
        self.metrics.connection_refused();
        if let Some(connection) = table.connections.get(&id) {
            if let Some(count) = self.evictions.note() {
                info!(count, latest_peer = %connection.peer, "too many connections; older ones are closed");
            }
            connection.abort.cancel();
        }
    }

    /// Adds a stream of an admitted proxy, and ends the streams that it supersedes. Dropping the guard
    /// removes it. `None` if the connection is closed. A proxy that has no stream needs room.
    pub(super) fn enter(
        &self,
        connection: &Connection,
        stream: OpenStream,
    ) -> Result<Option<StreamGuard>, EndReason> {
        let proxy = stream.admission.proxy.clone();
        let stream = Arc::new(stream);
        let mut table = lock(&self.table);
        if !table.streams.contains_key(&proxy) {
            self.room(&table).check()?;
        }
        let Some(Opened { stream: id, ended }) = table.bounds.open_stream(connection.id, stream.scope)?
        else {
            return Ok(None);
        };
        let streams = table.streams.entry(proxy.clone()).or_default();
        for older in ended.iter().filter_map(|older| streams.get(older)) {
            older.stop(StopReason::Superseded);
        }
        streams.insert(id, Arc::clone(&stream));
        connection.streams.send_modify(|streams| *streams += 1);
        self.metrics.proxies_connected(table.streams.len());
        self.metrics.stream_opened(stream.variant);
        self.receiving.streams.send_modify(|streams| *streams += 1);
        drop(table);
        let (proxies, connection) = (self.clone(), connection.clone());
        Ok(Some(StreamGuard { proxies, connection, proxy, id, stream }))
    }
}

/// A connection's entry in the table, removed on drop.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    proxies: Proxies,
    pub(super) connection: Connection,
}

impl ConnectionGuard {
    /// Records the proxy and the certificate of the connection.
    pub(super) fn identify(&mut self, proxy: &ProxyName, serial: SerialNumber) {
        let mut table = lock(&self.proxies.table);
        self.connection.allowance = table.allowance(proxy);
        let id = self.connection.id;
        let evicted = table.bounds.identify(id, proxy, serial);
        if let Some(own) = table.connections.get_mut(&id) {
            own.allowance = self.connection.allowance.clone();
        }
        if let Some(evicted) = evicted {
            self.proxies.evict(&table, evicted);
        }
    }

    /// The number of streams on the connection, as it changes.
    pub(super) fn streams(&self) -> watch::Receiver<usize> {
        self.connection.streams.subscribe()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut table = lock(&self.proxies.table);
        table.bounds.close(self.connection.id);
        table.connections.remove(&self.connection.id);
        self.proxies.metrics.connections(table.connections.len());
    }
}

/// A stream's entry in the table, removed on drop.
#[derive(Debug)]
pub(super) struct StreamGuard {
    proxies: Proxies,
    connection: Connection,
    proxy: ProxyName,
    id: StreamId,
    /// The stream itself.
    pub(super) stream: Arc<OpenStream>,
}

impl StreamGuard {
    /// Records the memory that the names of the stream take, in bytes.
    pub(super) fn hold(&self, bytes: usize) -> Result<(), Excess> {
        lock(&self.proxies.table).bounds.hold(self.id, bytes)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut table = lock(&self.proxies.table);
        table.bounds.end_stream(self.id);
        self.connection.streams.send_modify(|streams| *streams -= 1);
        self.proxies.receiving.streams.send_modify(|streams| *streams -= 1);
        if let Some(streams) = table.streams.get_mut(&self.proxy) {
            streams.remove(&self.id);
            if streams.is_empty() {
                table.streams.remove(&self.proxy);
            }
        }
        self.proxies.metrics.proxies_connected(table.streams.len());
    }
}
