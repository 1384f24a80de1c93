//! Who is connected to this replica: connections, and the streams of admitted proxies on them.
//!
//! Owns the table of both, and tells those to end that [`smc_mesh::connections`] says must. Refuses to end them itself:
//! a connection's and a stream's own task do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use smc_mesh::connections::{ConnectionId, Connections, Excess, Opened, StreamId, TooManyConnections};
use smc_mesh::ids::{ProxyName, WorkloadId};
use smc_mesh::pki::SerialNumber;
use smc_mesh::problem::Problem;
use smc_mesh::world::World;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::lock;
use super::open_stream::{OpenStream, Stop};
use super::pace::Pace;
use crate::telemetry::Metrics;

/// The connections and open streams of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Proxies {
    table: Arc<Mutex<Table>>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Table {
    /// What is kept, and what makes room.
    kept: Connections,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The root that [`Proxies::look_for_trust`] looked for last.
    looked_for: Option<SerialNumber>,
    /// Streams by proxy, in the order they were opened.
    streams: BTreeMap<ProxyName, BTreeMap<StreamId, Arc<OpenStream>>>,
}

/// One connection, as its task, its streams and the table see it. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    id: ConnectionId,
    /// The other side.
    pub(super) peer: SocketAddr,
    /// Cancelled to end it in order: no new streams, and the open ones may finish what they say.
    pub(super) leave: CancellationToken,
    /// Cancelled to drop it at once.
    pub(super) cut: CancellationToken,
    /// How fast its proxy may ask, on all of its connections together.
    pub(super) pace: Pace,
    /// How many streams of an admitted proxy it carries.
    streams: watch::Sender<usize>,
}

impl Proxies {
    /// Nobody yet, and never more connections than `max_connections`.
    pub(crate) fn new(max_connections: usize, metrics: Metrics) -> Self {
        let kept = Connections::new(max_connections);
        let (connections, streams) = (BTreeMap::new(), BTreeMap::new());
        let table = Table { kept, connections, looked_for: None, streams };
        Self { table: Arc::new(Mutex::new(table)), metrics }
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

    /// The open streams of one proxy, oldest first.
    pub fn streams_of(&self, proxy: &ProxyName) -> Vec<Arc<OpenStream>> {
        lock(&self.table)
            .streams
            .get(proxy)
            .map(|streams| streams.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Tells the streams and connections to end whose certificate was released. Costs a look at every one.
    pub(crate) fn release(&self, released: impl Fn(&SerialNumber) -> bool) {
        let connections: Vec<_> = {
            let table = lock(&self.table);
            let shown = table.kept.certificates();
            shown
                .filter_map(|(id, serial)| Some((serial, table.connections.get(&id)?.leave.clone())))
                .collect()
        };
        for stream in self.streams().into_values().flatten() {
            if released(&stream.admission.serial) {
                stream.stop(Stop::Released);
            }
        }
        for (_, leave) in connections.iter().filter(|(serial, _)| released(serial)) {
            leave.cancel();
        }
    }

    /// Looks who of those that are connected has taken that it is to trust `root`, as the secrets in `world` say. Costs a
    /// look at every stream.
    pub(crate) fn look_for_trust(&self, root: SerialNumber, world: &World) {
        lock(&self.table).looked_for = Some(root);
        self.streams().values().flatten().for_each(|stream| stream.look_for_trust(root, world));
    }

    /// The workloads whose proxies are connected and were not seen to trust `root` at the last look; nobody before the first
    /// one, when none can have been told of it.
    pub(crate) fn distrustful(&self, root: SerialNumber) -> BTreeSet<WorkloadId> {
        if lock(&self.table).looked_for != Some(root) {
            return BTreeSet::new();
        }
        let streams = self.streams().into_values().flatten();
        streams
            .filter(|stream| !stream.trusts(root))
            .map(|stream| stream.admission.workload.clone())
            .collect()
    }

    /// What proxies rejected and still do not have, as problems of the mesh.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for stream in self.streams().into_values().flatten() {
            let object = format!("Proxy {}", stream.admission.workload);
            for (kind, status) in &stream.report().status.types {
                for (name, rejected) in &status.rejected {
                    let field = format!("{}/{name}", kind.short());
                    problems.push(Problem::error(&object, field, format!("rejected: {}", rejected.message)));
                }
            }
        }
        problems.sort();
        problems.dedup();
        problems
    }

    /// Enters a connection that was accepted. It leaves when `closing` is cancelled, and its entry is gone when the
    /// guard is dropped.
    pub(super) fn accept(
        &self,
        peer: SocketAddr,
        closing: &CancellationToken,
    ) -> Result<Connected, TooManyConnections> {
        let mut table = lock(&self.table);
        let (id, evicted) = table.kept.accept()?;
        if let Some(evicted) = evicted {
            self.evict(&table, evicted);
        }
        let connection = Connection {
            id,
            peer,
            leave: closing.child_token(),
            cut: CancellationToken::new(),
            pace: Pace::new(Instant::now()),
            streams: watch::Sender::new(0),
        };
        table.connections.insert(id, connection.clone());
        self.metrics.connections(table.connections.len());
        drop(table);
        Ok(Connected { proxies: self.clone(), connection })
    }

    fn evict(&self, table: &Table, id: ConnectionId) {
        self.metrics.connection_refused();
        if let Some(connection) = table.connections.get(&id) {
            info!(peer = %connection.peer, "too many connections; closing an older one");
            connection.cut.cancel();
        }
    }

    /// Enters a stream of an admitted proxy, and ends those whose place it takes. The entry is gone when the guard is
    /// dropped. `None` if the connection is closed.
    pub(super) fn enter(
        &self,
        connection: &Connection,
        stream: OpenStream,
    ) -> Result<Option<Entered>, Excess> {
        let proxy = stream.admission.proxy.clone();
        let stream = Arc::new(stream);
        let mut table = lock(&self.table);
        let Some(Opened { stream: id, ended }) = table.kept.open_stream(connection.id, stream.scope)? else {
            return Ok(None);
        };
        let streams = table.streams.entry(proxy.clone()).or_default();
        for older in ended.iter().filter_map(|older| streams.get(older)) {
            older.stop(Stop::Superseded);
        }
        streams.insert(id, Arc::clone(&stream));
        connection.streams.send_modify(|streams| *streams += 1);
        self.metrics.proxies_connected(table.streams.len());
        self.metrics.stream_opened(stream.variant);
        drop(table);
        let (proxies, connection) = (self.clone(), connection.clone());
        Ok(Some(Entered { proxies, connection, proxy, id, stream }))
    }
}

/// A connection's place in the table, given back when dropped.
#[derive(Debug)]
pub(super) struct Connected {
    proxies: Proxies,
    pub(super) connection: Connection,
}

impl Connected {
    /// Notes whose it is, by a certificate that is good so far.
    pub(super) fn identify(&mut self, proxy: &ProxyName, serial: SerialNumber) {
        let mut table = lock(&self.proxies.table);
        let others = table.kept.of(proxy).filter_map(|id| table.connections.get(&id));
        if let Some(other) = others.last() {
            self.connection.pace = other.pace.clone();
        }
        let id = self.connection.id;
        let evicted = table.kept.identify(id, proxy, serial);
        if let Some(own) = table.connections.get_mut(&id) {
            own.pace = self.connection.pace.clone();
        }
        if let Some(evicted) = evicted {
            self.proxies.evict(&table, evicted);
        }
    }

    /// How many streams it carries, as that changes.
    pub(super) fn streams(&self) -> watch::Receiver<usize> {
        self.connection.streams.subscribe()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut table = lock(&self.proxies.table);
        table.kept.close(self.connection.id);
        table.connections.remove(&self.connection.id);
        self.proxies.metrics.connections(table.connections.len());
    }
}

/// A stream's place in the table, given back when dropped.
#[derive(Debug)]
pub(super) struct Entered {
    proxies: Proxies,
    connection: Connection,
    proxy: ProxyName,
    id: StreamId,
    /// The stream itself.
    pub(super) stream: Arc<OpenStream>,
}

impl Entered {
    /// Notes what the names take that the stream holds.
    pub(super) fn hold(&self, bytes: usize) -> Result<(), Excess> {
        lock(&self.proxies.table).kept.hold(self.id, bytes)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut table = lock(&self.proxies.table);
        table.kept.end_stream(self.id);
        self.connection.streams.send_modify(|streams| *streams -= 1);
        if let Some(streams) = table.streams.get_mut(&self.proxy) {
            streams.remove(&self.id);
            if streams.is_empty() {
                table.streams.remove(&self.proxy);
            }
        }
        self.proxies.metrics.proxies_connected(table.streams.len());
    }
}
