//! Connecting, one attempt at a time.
//!
//! Owns how many connections are attempted at once. The pool asks for a connection for each request
//! that finds none, since only the TLS handshake tells whether one connection will do for all
//! (ALPN). A surplus connection would stay: the request that asked for it keeps it as long as its
//! response lasts, and a watch lasts.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::Connection;
use smc_host::sync::lock;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tower::{BoxError, Service};

/// How long one attempt has precedence. Then another one may begin beside it, so that a packet that
/// was lost, or an address behind which nothing answers, holds up the others no longer than this.
/// With the limit of an attempt, ten seconds, five are under way at once at most. A handshake
/// within a cluster takes milliseconds.
const PRECEDENCE: Duration = Duration::from_secs(2);

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// A connection for any number of requests.
    Shared,
    /// A connection for one request at a time.
    Exclusive,
}

/// An attempt, as others see it: nothing until it has come to something. Its sender is gone without
/// a result when it failed or was given up.
type Attempt = watch::Receiver<Option<Made>>;

/// The pool has a connection for the request already, or that connection broke at once.
#[derive(Debug, Error)]
#[error("another request made the connection")]
struct Superfluous;

/// Whose turn it is.
enum Turn {
    /// The caller's own: it says what its attempt came to.
    Own(watch::Sender<Option<Made>>),
    /// That of an attempt that is under way.
    Others(Attempt),
}

/// A connector that waits for an attempt of another request. When that comes to a connection for
/// all requests, the pool hands it out to those that wait, and what waits here is superfluous. When
/// the attempt fails, the next one has its turn.
pub(super) struct Dial<C> {
    connector: C,
    current: Arc<Mutex<Option<Attempt>>>,
}

impl<C: Clone> Clone for Dial<C> {
    fn clone(&self) -> Self {
        Self { connector: self.connector.clone(), current: Arc::clone(&self.current) }
    }
}

impl<C> Dial<C> {
    pub(super) fn new(connector: C) -> Self {
        Self { connector, current: Arc::default() }
    }

    /// Whose turn it is. An attempt that is `past` its precedence counts no more.
    fn turn(&self, past: Option<&Attempt>) -> Turn {
        let mut current = lock(&self.current);
        // Its sender is gone once it has ended in any way.
        let under_way = |attempt: &&Attempt| attempt.has_changed().is_ok();
        match current.as_ref().filter(under_way) {
            Some(attempt) if !past.is_some_and(|past| past.same_channel(attempt)) => {
                Turn::Others(attempt.clone())
            }
            _ => {
                let (sender, attempt) = watch::channel(None);
                *current = Some(attempt);
                Turn::Own(sender)
            }
        }
    }

    /// Waits until the caller may connect, with a place to say what came of it if others wait for
    /// that.
    async fn wait(&self) -> Result<Option<watch::Sender<Option<Made>>>, Superfluous> {
        let mut past = None;
        loop {
            let mut attempt = match self.turn(past.as_ref()) {
                Turn::Own(sender) => return Ok(Some(sender)),
                Turn::Others(attempt) => attempt,
            };
            let made = timeout(PRECEDENCE, attempt.wait_for(Option::is_some)).await;
            // The guard of the value would keep the sender from setting another.
            let made = made.map(|made| made.map(|made| *made));
            match made {
                Ok(Ok(Some(Made::Shared))) => {
                    // Not before the pool has handed it out, which it does at once.
                    sleep(PRECEDENCE).await;
                    return Err(Superfluous);
                }
                // Each request needs a connection of its own, and knows it now.
                Ok(Ok(_)) => return Ok(None),
                Ok(Err(_failed)) => {}
                Err(_elapsed) => past = Some(attempt),
            }
            // What has waited for as long as it may has no turn, where both end in one moment.
            yield_now().await;
        }
    }
}

impl<C> Service<Uri> for Dial<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Send,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // The clone has not been asked whether it is ready; this one has.
        let connector = self.connector.clone();
        let mut dial = Self {
            connector: std::mem::replace(&mut self.connector, connector),
            current: Arc::clone(&self.current),
        };
        async move {
            let turn = dial.wait().await?;
            let connection = dial.connector.call(uri).await.map_err(Into::into)?;
            if let Some(turn) = turn {
                let shared = connection.connected().is_negotiated_h2();
                turn.send_replace(Some(if shared { Made::Shared } else { Made::Exclusive }));
            }
            Ok(connection)
        }
        .boxed()
    }
}
