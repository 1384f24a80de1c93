//! Bounds on the connections and streams of a replica, and which ones are closed for new ones.
//!
//! Owns the bounds in number, and the bound on the bytes of names that a proxy's streams hold. It
//! opens and closes nothing itself: it returns what is to be closed, and no longer counts that.
//!
//! A connection is counted against the proxy that its certificate names, so a proxy can only close its own.
//! What is closed is most likely unused:
//!
//! - Among all connections: the oldest that has not shown a certificate yet, then the oldest
//!   without a stream. A connection with a stream is never closed for another one. Neither is an
//!   honest handshake: it is over long before the thousands of connections have come that would
//!   make it the oldest.
//! - Among the connections of a proxy: the oldest without a stream, then the oldest. Envoy keeps
//!   one connection, so an older one is half-open: the proxy restarted or lost its network, and the
//!   replica has not noticed yet. Refusing the newest would lock the proxy out until the replica
//!   does.
//! - Among the streams of a proxy: a new aggregated stream ends the older one, for the same reason.
//!   Of the separate streams the oldest of another connection ends. On the same connection all are
//!   in use, so the new one is refused: Envoy would only open an ended one again.

use std::collections::{BTreeMap, BTreeSet};

use smc_types::ids::ProxyName;
use smc_types::serial_number::SerialNumber;
use thiserror::Error;

use crate::session::{MAX_HELD_BYTES, Scope};

/// Connections at once, including those in the TLS handshake. A sidecar has one, and a replica is
/// sized for thousands of sidecars. A stranger's, whose handshake does not end, takes less than
/// 20 KiB, so all of them 400 MiB.
pub const MAX_CONNECTIONS: usize = 20_000;

/// File descriptors for everything else: the ledger's files (at most 64), other replicas,
/// administration and metrics connections, file watches.
const OTHER_DESCRIPTORS: u64 = 512;

/// How many connections a process with this limit of file descriptors may have: one for each
/// descriptor that nothing else needs, and at least half of them. A replica without descriptors
/// could not open the files of its ledger.
pub fn max_connections(descriptors: u64) -> usize {
    let left = descriptors - OTHER_DESCRIPTORS.min(descriptors / 2);
    usize::try_from(left).map_or(MAX_CONNECTIONS, |left| left.clamp(1, MAX_CONNECTIONS))
}

/// Connections of one proxy. Envoy has one. The others are half-open, of a proxy that restarts
/// repeatedly or whose network fails, until pings detect them after half a minute.
pub const MAX_CONNECTIONS_PER_PROXY: usize = 8;

/// Streams of one proxy on the separate services, of all types together. An Envoy without ADS has
/// one for each type; more are for SDS, one for each secret. The resources that SMC serves refer to
/// secrets and endpoints by ADS.
pub const MAX_SEPARATE_STREAMS: usize = 16;

/// A connection. Older ones compare less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// A stream of an admitted proxy. Older ones compare less, also on different connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    number: u64,
    connection: ConnectionId,
}

/// The connections of one replica, and their streams.
#[derive(Debug)]
pub struct Connections {
    /// The bound on connections.
    max: usize,
    /// The number of the latest connection or stream.
    latest: u64,
    open: BTreeMap<ConnectionId, Connection>,
    /// The connections without a stream, in the order in which they are closed for new ones.
    /// `false` has shown no certificate.
    idle: BTreeSet<(bool, ConnectionId)>,
    by_proxy: BTreeMap<ProxyName, BTreeSet<ConnectionId>>,
}

#[derive(Debug, Default)]
struct Connection {
    /// The proxy, and the certificate that it has shown.
    owner: Option<(ProxyName, SerialNumber)>,
    streams: BTreeMap<StreamId, Stream>,
}

#[derive(Debug)]
struct Stream {
    scope: Scope,
    /// The names that it holds, in bytes.
    held: usize,
}

/// The bound on connections is reached, and every connection has a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("there are {max} connections, all of them in use")]
pub struct TooManyConnections {
    /// The bound.
    pub max: usize,
}

/// A proxy exceeds a bound. A retry succeeds once it has closed streams or unsubscribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Excess {
    /// Too many streams.
    #[error("the proxy has {MAX_SEPARATE_STREAMS} streams for single types open on this connection")]
    Streams,
    /// Too many bytes of names.
    #[error("the names that the proxy's streams hold take {0} bytes, more than the {MAX_HELD_BYTES} allowed")]
    Names(usize),
}

/// A new stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The stream.
    pub stream: StreamId,
    /// Older streams of the proxy, which the caller must end.
    pub ended: Vec<StreamId>,
}

impl Connections {
    /// No connections, and a bound of `max` ([`max_connections`]).
    pub fn new(max: usize) -> Self {
        Self { max, latest: 0, open: BTreeMap::new(), idle: BTreeSet::new(), by_proxy: BTreeMap::new() }
    }

    /// Adds a connection of a peer without a certificate yet. Also returns the connection that the
    /// caller must close for it, if any.
    pub fn accept(&mut self) -> Result<(ConnectionId, Option<ConnectionId>), TooManyConnections> {
        let evicted = if self.open.len() < self.max {
            None
        } else {
            let &(_, oldest) = self.idle.first().ok_or(TooManyConnections { max: self.max })?;
            self.close(oldest);
            Some(oldest)
        };
        let id = ConnectionId(self.number());
        self.open.insert(id, Connection::default());
        self.idle.insert((false, id));
        Ok((id, evicted))
    }

    /// Notes that the connection has shown this valid certificate of this proxy. Returns the
    /// connection of the proxy that the caller must close, if any. Does nothing to a closed
    /// connection.
    pub fn identify(
        &mut self,
        id: ConnectionId,
        proxy: &ProxyName,
        serial: SerialNumber,
    ) -> Option<ConnectionId> {
        let connection = self.open.get_mut(&id)?;
        connection.owner = Some((proxy.clone(), serial));
        if self.idle.remove(&(false, id)) {
            self.idle.insert((true, id));
        }
        let own = self.by_proxy.entry(proxy.clone()).or_default();
        own.insert(id);
        if own.len() <= MAX_CONNECTIONS_PER_PROXY {
            return None;
        }
        let mut older = own.iter().filter(|other| **other != id);
        let idle = older.clone().find(|other| self.idle.contains(&(true, **other)));
        let evicted = *idle.or_else(|| older.next())?;
        self.close(evicted);
        Some(evicted)
    }

    /// Removes a connection, with its streams.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.open.remove(&id) else { return };
        self.idle.remove(&(connection.owner.is_some(), id));
        if let Some((proxy, _)) = connection.owner
            && let Some(own) = self.by_proxy.get_mut(&proxy)
        {
            own.remove(&id);
            if own.is_empty() {
                self.by_proxy.remove(&proxy);
            }
        }
    }

    /// Adds a stream of the proxy that the connection belongs to. `None` if the connection is closed.
    pub fn open_stream(&mut self, id: ConnectionId, scope: Scope) -> Result<Option<Opened>, Excess> {
        let Some((proxy, _)) = self.open.get(&id).and_then(|connection| connection.owner.as_ref()) else {
            return Ok(None);
        };
        let aggregated = scope == Scope::Aggregated;
        let own = self.connections_of(proxy).flat_map(|connection| &connection.streams);
        let alike = own.filter(|(_, other)| (other.scope == Scope::Aggregated) == aggregated);
        let mut ended: Vec<StreamId> = alike.map(|(stream, _)| *stream).collect();
        if !aggregated {
            let full = ended.len() >= MAX_SEPARATE_STREAMS;
            ended.retain(|stream| full && stream.connection != id);
            ended.sort_unstable();
            ended.truncate(1);
            if full && ended.is_empty() {
                return Err(Excess::Streams);
            }
        }
        for &older in &ended {
            self.end_stream(older);
        }
        let stream = StreamId { number: self.number(), connection: id };
        if let Some(connection) = self.open.get_mut(&id) {
            connection.streams.insert(stream, Stream { scope, held: 0 });
        }
        self.idle.remove(&(true, id));
        Ok(Some(Opened { stream, ended }))
    }

    /// Notes how many bytes of names the stream holds. On an error, the caller must end the stream.
    pub fn hold(&mut self, stream: StreamId, bytes: usize) -> Result<(), Excess> {
        let Some(connection) = self.open.get_mut(&stream.connection) else { return Ok(()) };
        // A stream that is to end is not counted.
        let Some(found) = connection.streams.get_mut(&stream) else { return Ok(()) };
        found.held = bytes;
        let Some((proxy, _)) = &self.open[&stream.connection].owner else { return Ok(()) };
        let own = self.connections_of(proxy).flat_map(|connection| connection.streams.values());
        let total: usize = own.map(|stream| stream.held).sum();
        if total > MAX_HELD_BYTES { Err(Excess::Names(total)) } else { Ok(()) }
    }

    /// Removes a stream.
    pub fn end_stream(&mut self, stream: StreamId) {
        let Some(connection) = self.open.get_mut(&stream.connection) else { return };
        if connection.streams.remove(&stream).is_some() && connection.streams.is_empty() {
            self.idle.insert((true, stream.connection));
        }
    }

    /// The connections of a proxy, oldest first.
    pub fn of(&self, proxy: &ProxyName) -> impl Iterator<Item = ConnectionId> + '_ {
        self.by_proxy.get(proxy).into_iter().flatten().copied()
    }

    /// The connections that have shown a certificate, with its serial number.
    pub fn certificates(&self) -> impl Iterator<Item = (ConnectionId, SerialNumber)> + '_ {
        self.open.iter().filter_map(|(id, connection)| Some((*id, connection.owner.as_ref()?.1)))
    }

    /// The bound on connections.
    pub fn max(&self) -> usize {
        self.max
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn connections_of(&self, proxy: &ProxyName) -> impl Iterator<Item = &Connection> + '_ {
        self.of(proxy).filter_map(|id| self.open.get(&id))
    }

    fn number(&mut self) -> u64 {
        self.latest += 1;
        self.latest
    }
}

#[cfg(test)]
mod tests;
