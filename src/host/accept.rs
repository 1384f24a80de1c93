//! Accepting connections, for every port of a replica.
//!
//! Owns which errors of `accept` concern one peer, and the pause after the others.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::network::{Io, Listener};

/// The pause after `accept` fails for a reason of this process, such as exhausted file descriptors.
/// An immediate retry would only consume the CPU time that could free some.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Accepts connections on one port.
pub struct Acceptor {
    listener: Box<dyn Listener>,
    /// The name of the port in the log.
    port: &'static str,
    /// The end of the pause after an error.
    retry_at: Option<Instant>,
}

impl Acceptor {
    /// An acceptor that logs under the name `port`.
    pub fn new(listener: Box<dyn Listener>, port: &'static str) -> Self {
        Self { listener, port, retry_at: None }
    }

    /// Waits for the next connection, and returns it with the address of its peer. An error never ends
    /// the wait. Cancel-safe: a cancelled call loses no connection, and the next one keeps its pause.
    pub async fn accept(&mut self) -> (Box<dyn Io>, SocketAddr) {
        let port = self.port;
        loop {
            if let Some(retry_at) = self.retry_at {
                sleep_until(retry_at).await;
                self.retry_at = None;
            }
            match self.listener.accept().await {
                Ok(connection) => return connection,
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

    #[tokio::test(start_paused = true)]
    async fn only_errors_of_this_process_are_followed_by_a_pause() {
        for (errors, pauses) in [
            (vec![], 0),
            (vec![io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionAborted], 0),
            (vec![io::ErrorKind::Other, io::ErrorKind::ConnectionReset, io::ErrorKind::Other], 2),
        ] {
            let start = Instant::now();
            Acceptor::new(Box::new(Failing(errors.into())), "test").accept().await;
            assert_eq!(start.elapsed(), BACK_OFF * pauses);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_does_not_cut_the_pause_short() {
        let mut acceptor = Acceptor::new(Box::new(Failing([io::ErrorKind::Other].into())), "test");
        let start = Instant::now();
        for _ in 0..3 {
            assert!(timeout(BACK_OFF / 4, acceptor.accept()).await.is_err());
        }
        acceptor.accept().await;
        assert_eq!(start.elapsed(), BACK_OFF);
    }
}
