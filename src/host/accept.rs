//! Accepting connections, for every port of a replica.
//!
//! Owns the discipline that all ports share. A new connection has one of a bounded number of places until
//! its peer has proved itself; [`eviction`] says which gives way. Those that come at once are served in the
//! order of the [`fair_queue`]. Some errors of `accept` concern one peer; after the others comes a pause.
//! What proves a peer, and how long it may take, is the port's.

mod eviction;
mod fair_queue;
mod first_bytes;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::log_limit::LogLimit;
use crate::network::{Io, Listener};
use crate::sync::lock;
pub use eviction::{Bounds, FAIR, source};
use eviction::{Room, Ticket};
pub use fair_queue::{Turn, Turns};
pub use first_bytes::FirstBytes;

/// The pause after `accept` fails for a reason of this process, such as exhausted file descriptors.
/// An immediate retry would only consume the CPU time that could free some.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Accepts connections on one port.
pub struct Acceptor {
    listener: Box<dyn Listener>,
    /// The name of the port in the log.
    port: &'static str,
    places: Places,
    /// The end of the pause after an error.
    retry_at: Option<Instant>,
}

/// The places of connections whose peers have not proved themselves.
pub struct Places {
    /// The name of the places in the log.
    name: &'static str,
    waiting: Arc<Mutex<Waiting>>,
    evictions: LogLimit,
}

/// The room, and the way to tell each connection in it that it is to leave: by dropping the sender.
struct Waiting {
    room: Room,
    places: BTreeMap<Ticket, oneshot::Sender<Infallible>>,
}

/// A connection that was accepted.
pub struct Accepted {
    /// The connection.
    pub socket: Box<dyn Io>,
    /// The address of its peer.
    pub peer: SocketAddr,
    /// Its place in the room.
    pub place: Place,
}

/// A connection's place among those whose peers have not proved themselves. Dropping it frees it; so the
/// holder keeps it until then, and no longer.
pub struct Place {
    waiting: Arc<Mutex<Waiting>>,
    ticket: Ticket,
    peer: IpAddr,
    evicted: oneshot::Receiver<Infallible>,
}

/// The connection has to be closed for a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("closed for a newer connection, since it was the oldest that had not proved itself")]
pub struct Evicted;

impl Acceptor {
    /// An acceptor that logs under the name `port`.
    pub fn new(listener: Box<dyn Listener>, port: &'static str, bounds: Bounds) -> Self {
        Self { listener, port, places: Places::new(port, bounds), retry_at: None }
    }

    /// Waits for the next connection. An error never ends the wait. Cancel-safe: a cancelled call loses no
    /// connection, and the next one keeps its pause.
    ///
    /// The task of a connection that is evicted for the new one learns of it, and closes the connection.
    /// Tokio makes the accepting task yield after a hundred connections or so, which bounds those that are
    /// evicted and not closed yet.
    pub async fn accept(&mut self) -> Accepted {
        let port = self.port;
        loop {
            if let Some(retry_at) = self.retry_at {
                sleep_until(retry_at).await;
                self.retry_at = None;
            }
            match self.listener.accept().await {
                Ok((socket, peer)) => return Accepted { socket, peer, place: self.places.enter(peer) },
                Err(error) if is_of_the_peer(&error) => {
                    debug!(port, %error, "a peer closed its connection before it was accepted");
                }
                Err(error) => {
                    warn!(port, %error, "cannot accept connections; retrying");
                    self.retry_at = Some(Instant::now() + BACK_OFF);
                }
            }
        }
    }
}

impl Places {
    /// Places that nothing has, which are logged under this name.
    pub fn new(name: &'static str, bounds: Bounds) -> Self {
        let waiting = Waiting { room: Room::new(bounds), places: BTreeMap::new() };
        Self { name, waiting: Arc::new(Mutex::new(waiting)), evictions: LogLimit::default() }
    }

    /// A place for a connection of this peer, for which another one may have to leave.
    pub fn enter(&self, peer: SocketAddr) -> Place {
        let (told, evicted) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        let (ticket, leaving) = waiting.room.enter(peer.ip());
        for ticket in &leaving {
            waiting.places.remove(ticket);
        }
        waiting.places.insert(ticket, told);
        drop(waiting);
        for _ in leaving {
            if let Some(count) = self.evictions.note() {
                warn!(
                    port = self.name,
                    count,
                    latest_peer = %peer,
                    "too many connections whose peers have not proved themselves; the oldest are closed"
                );
            }
        }
        Place { waiting: Arc::clone(&self.waiting), ticket, peer: peer.ip(), evicted }
    }
}

impl Place {
    /// Does the work by which the peer proves itself, unless the connection is evicted before.
    pub async fn hold<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Evicted> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            _ = &mut self.evicted => Err(Evicted),
        }
    }

    /// Notes that the peer is one of those that may not be locked out: from now on its address has places of
    /// its own.
    pub fn vouch(&self) {
        lock(&self.waiting).room.vouch(self.peer);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.room.leave(self.ticket);
        waiting.places.remove(&self.ticket);
    }
}

/// Errors that `accept` reports for a peer that vanished between its SYN and the call (accept(2)).
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::future::BoxFuture;
    use tokio::time::timeout;

    use super::*;

    /// Fails with each of its errors in turn, then returns a connection.
    struct Failing(VecDeque<io::ErrorKind>);

    impl Listener for Failing {
        fn address(&self) -> SocketAddr {
            ([127, 0, 0, 1], 1).into()
        }

        fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
            let next = match self.0.pop_front() {
                Some(kind) => Err(io::Error::from(kind)),
                None => Ok((Box::new(tokio::io::empty()) as Box<dyn Io>, self.address())),
            };
            Box::pin(async { next })
        }
    }

    fn acceptor(errors: Vec<io::ErrorKind>) -> Acceptor {
        Acceptor::new(
            Box::new(Failing(errors.into())),
            "test",
            Bounds { total: 2, per_address: 2, fair: FAIR },
        )
    }

    #[tokio::test(start_paused = true)]
    async fn only_errors_of_this_process_are_followed_by_a_pause() {
        for (errors, pauses) in [
            (vec![], 0),
            (vec![io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionAborted], 0),
            (vec![io::ErrorKind::Other, io::ErrorKind::ConnectionReset, io::ErrorKind::Other], 2),
        ] {
            let start = Instant::now();
            acceptor(errors).accept().await;
            assert_eq!(start.elapsed(), BACK_OFF * pauses);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_does_not_cut_the_pause_short() {
        let mut acceptor = acceptor(vec![io::ErrorKind::Other]);
        let start = Instant::now();
        for _ in 0..3 {
            assert!(timeout(BACK_OFF / 4, acceptor.accept()).await.is_err());
        }
        acceptor.accept().await;
        assert_eq!(start.elapsed(), BACK_OFF);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_longest_is_told_to_leave_and_who_has_proved_itself_is_not() {
        let mut acceptor = acceptor(vec![]);
        let mut first = acceptor.accept().await.place;
        let mut second = acceptor.accept().await.place;
        assert_eq!(first.hold(async { 1 }).await, Ok(1));
        drop(first);
        let mut third = acceptor.accept().await.place;
        assert!(timeout(BACK_OFF, second.hold(std::future::pending::<()>())).await.is_err(), "there is room");
        let fourth = acceptor.accept().await.place;
        assert_eq!(second.hold(std::future::pending::<()>()).await, Err(Evicted));
        assert!(timeout(BACK_OFF, third.hold(std::future::pending::<()>())).await.is_err());
        drop((second, third, fourth));
        let waiting = lock(&acceptor.places.waiting);
        assert!(waiting.places.is_empty());
    }
}
