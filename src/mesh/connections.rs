//! Which connections and streams of proxies a replica keeps, and which make room for others.
//!
//! Owns their bounds in number, and the bound on the names that a proxy's streams hold. Refuses to open or close
//! anything: what is to be closed is returned, and counts no more from then on.
//!
//! A proxy is who its certificate says it is, so what one opens is counted against that one and closes nobody else's.
//! What makes room is what is most likely of no use:
//!
//! - Among all connections: the oldest that has not shown a certificate yet, then the oldest without a stream. One
//!   with a stream stays whatever others do, and so does an honest handshake, which is over long before the thousands
//!   have come that would make it the oldest.
//! - Among a proxy's: the oldest without a stream, then the oldest. Envoy keeps one connection, so an older one is
//!   half-open: the proxy was restarted, or lost its network, and we have not noticed yet. To refuse the newest would
//!   shut it out until we do.
//! - Among a proxy's streams: a newer aggregated one ends the older, for the same reason. Of the separate ones the
//!   oldest of another connection ends; on one and the same connection the newest is refused, since there all are in
//!   use, and ending one would only make its owner open it again.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::ids::ProxyName;
use crate::pki::SerialNumber;
use crate::session::{MAX_HELD_BYTES, Scope};

/// Connections held at once, those that still shake hands included. A sidecar holds one, and a replica is dimensioned
/// for thousands of sidecars (about 50 KiB each).
pub const MAX_CONNECTIONS: usize = 20_000;

/// File descriptors that a replica needs for everything else: the ledger's files (64 at most), the other replicas, the
/// administration's and the metrics' connections, watches.
const OTHER_DESCRIPTORS: u64 = 512;

/// How many connections a process may hold that may have so many file descriptors: one each, with room for everything
/// else, or half of them where there are few. A replica that ran out could not open the files of its ledger.
pub fn max_connections(descriptors: u64) -> usize {
    let left = descriptors - OTHER_DESCRIPTORS.min(descriptors / 2);
    usize::try_from(left).map_or(MAX_CONNECTIONS, |left| left.clamp(1, MAX_CONNECTIONS))
}

/// Connections of one proxy. Envoy keeps one; the others are what a proxy that restarts again and again, or whose
/// network breaks and heals, leaves half-open before our pings find out, half a minute later.
pub const MAX_CONNECTIONS_PER_PROXY: usize = 8;

/// Streams of one proxy on the separate services, all types together. One per type is what an Envoy without ADS has at
/// its top; more are for SDS, one per secret. What these secrets and endpoints belong to is told to use ADS.
pub const MAX_SEPARATE_STREAMS: usize = 16;

/// A connection. Older ones are less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// A stream of an admitted proxy. Older ones are less, on whichever connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    number: u64,
    connection: ConnectionId,
}

/// All connections of one replica, and their streams.
#[derive(Debug)]
pub struct Connections {
    /// How many there may be.
    max: usize,
    /// The number of the latest connection or stream.
    latest: u64,
    open: BTreeMap<ConnectionId, Connection>,
    /// Those without a stream, in the order in which they make room: `false` has not shown a certificate.
    idle: BTreeSet<(bool, ConnectionId)>,
    by_proxy: BTreeMap<ProxyName, BTreeSet<ConnectionId>>,
}

#[derive(Debug, Default)]
struct Connection {
    /// Whose it is, and by which certificate.
    owner: Option<(ProxyName, SerialNumber)>,
    streams: BTreeMap<StreamId, Stream>,
}

#[derive(Debug)]
struct Stream {
    scope: Scope,
    /// Bytes of names.
    held: usize,
}

/// Every connection there may be has a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("there are {max} connections, all of them in use")]
pub struct TooManyConnections {
    /// How many there may be.
    pub max: usize,
}

/// A proxy asks for more than one proxy may have. Trying again helps once it has given back some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Excess {
    /// Streams.
    #[error("the proxy has {MAX_SEPARATE_STREAMS} streams for single types open on this connection")]
    Streams,
    /// Names.
    #[error("the names that the proxy's streams hold take {0} bytes, more than the {MAX_HELD_BYTES} allowed")]
    Names(usize),
}

/// A stream that may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The stream.
    pub stream: StreamId,
    /// Older ones of the proxy that are to end.
    pub ended: Vec<StreamId>,
}

impl Connections {
    /// None yet, and never more than `max`; see [`max_connections`].
    pub fn new(max: usize) -> Self {
        Self { max, latest: 0, open: BTreeMap::new(), idle: BTreeSet::new(), by_proxy: BTreeMap::new() }
    }

    /// Takes a new connection of somebody yet unknown. With it comes the one that is to be closed instead, if any.
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

    /// The connection has shown this certificate of this proxy, which is good so far. Returns the one of the proxy that
    /// is to be closed, if any. Nothing happens to a connection that is closed already.
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

    /// The connection was closed. Its streams are gone with it.
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

    /// Takes a new stream of the proxy that the connection is of. `None` if the connection is closed.
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

    /// The stream holds names of so many bytes now. If that is too much, it must end.
    pub fn hold(&mut self, stream: StreamId, bytes: usize) -> Result<(), Excess> {
        let Some(connection) = self.open.get_mut(&stream.connection) else { return Ok(()) };
        // One that was told to end counts no more.
        let Some(found) = connection.streams.get_mut(&stream) else { return Ok(()) };
        found.held = bytes;
        let Some((proxy, _)) = &self.open[&stream.connection].owner else { return Ok(()) };
        let own = self.connections_of(proxy).flat_map(|connection| connection.streams.values());
        let total: usize = own.map(|stream| stream.held).sum();
        if total > MAX_HELD_BYTES { Err(Excess::Names(total)) } else { Ok(()) }
    }

    /// The stream ended.
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

    /// The certificates that connections have shown.
    pub fn certificates(&self) -> impl Iterator<Item = (ConnectionId, SerialNumber)> + '_ {
        self.open.iter().filter_map(|(id, connection)| Some((*id, connection.owner.as_ref()?.1)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is none.
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
