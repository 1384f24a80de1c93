//! bookbuyer and bookthief: one client with two names. Calls the bookstore at a steady rate, one
//! call at a time, and records each result.
//!
//! bookbuyer regularly makes a call that policy forbids, so that a mesh which allows everything
//! does not pass for one that works.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;
use smc_types::host_port::HostPort;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::client::{Connection, HttpRequest, HttpResponse, send_once};
use super::identity::IDENTITY_SEEN_HEADER;
use super::record::{Call, CallError, Journal, Record};
use super::server::{json, problem, serve, serve_health};
use super::store::VERSION_HEADER;
use super::{BookstoreError, bind};

/// The client's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The client that policy allows.
    Bookbuyer,
    /// The client that policy denies.
    Bookthief,
}

/// Arguments of a client.
#[derive(Debug, Clone, Args)]
pub struct ShopperArgs {
    /// The bookstore, as HOST:PORT.
    #[arg(long, default_value = "bookstore.bookstore:14001")]
    pub bookstore: HostPort,
    /// The warehouse, as HOST:PORT, which policy lets no client call.
    #[arg(long, default_value = "bookwarehouse.bookwarehouse:14001")]
    pub bookwarehouse: HostPort,
    /// Calls per second.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Calls made on one connection before a new one is opened.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub calls_per_connection: u32,
    /// Every N-th call of bookbuyer is one that policy forbids; 0 for none.
    #[arg(long, default_value_t = 10)]
    pub trespass_every: u32,
    /// Time limit of one call, in milliseconds.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
    /// Address for `GET /`, which returns the counts.
    #[arg(long, default_value = "0.0.0.0:14001")]
    pub listen: SocketAddr,
    /// Address for `GET /health`.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
}

/// A client with open ports.
#[derive(Debug)]
pub struct Shopper {
    role: Role,
    args: ShopperArgs,
    listener: TcpListener,
    health: TcpListener,
}

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    BooksBought,
    Buy,
    Admin,
    Warehouse,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Bookbuyer => "bookbuyer",
            Self::Bookthief => "bookthief",
        }
    }

    /// Returns the n-th call, counted from 0. All calls of the thief are forbidden, so it needs no
    /// extra one.
    fn kind(self, n: u64, trespass_every: u32) -> CallKind {
        let every = u64::from(trespass_every);
        if self == Self::Bookbuyer && every > 0 && n % every == every - 1 {
            let forbidden = n / every;
            return if forbidden.is_multiple_of(2) { CallKind::Admin } else { CallKind::Warehouse };
        }
        if n.is_multiple_of(2) { CallKind::BooksBought } else { CallKind::Buy }
    }
}

impl CallKind {
    fn to(self) -> &'static str {
        match self {
            Self::BooksBought | Self::Buy | Self::Admin => "bookstore",
            Self::Warehouse => "bookwarehouse",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::BooksBought | Self::Buy | Self::Admin => Method::GET,
            Self::Warehouse => Method::POST,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::BooksBought => "/books-bought",
            Self::Buy => "/buy/a-new-book",
            Self::Admin => "/admin",
            Self::Warehouse => "/restock",
        }
    }

    fn body(self) -> Bytes {
        match self {
            Self::BooksBought | Self::Buy | Self::Admin => Bytes::new(),
            Self::Warehouse => Bytes::from_static(b"a-free-book"),
        }
    }
}

impl Shopper {
    /// Opens the ports.
    pub async fn bind(role: Role, args: ShopperArgs) -> Result<Self, BookstoreError> {
        let listener = bind("the counts", args.listen).await?;
        let health = bind("health", args.health_listen).await?;
        Ok(Self { role, args, listener, health })
    }

    /// Makes calls until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let counts = Arc::new(Counts::default());
        let page_counts = Arc::clone(&counts);
        let page = serve(self.listener, shutdown.clone(), move |request| {
            let response = match (request.method(), request.uri().path()) {
                (&Method::GET, "/") => json(StatusCode::OK, &page_counts.to_json()),
                _ => problem(StatusCode::NOT_FOUND, "only GET / is here"),
            };
            std::future::ready(response)
        });
        let health = serve_health(self.health, shutdown.clone());
        let caller = Caller { role: self.role, args: self.args, counts, journal, kept: None };
        tokio::join!(page, health, caller.run(shutdown));
    }
}

/// The counts of `GET /`.
#[derive(Debug, Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn add(&self, response: &Result<HttpResponse, CallError>) {
        let count = match response {
            Ok(response) if response.status < 400 => &self.served,
            Ok(_) => &self.refused,
            Err(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "served": self.served.load(Ordering::Relaxed),
            "refused": self.refused.load(Ordering::Relaxed),
            "failed": self.failed.load(Ordering::Relaxed),
        })
    }
}

struct Caller {
    role: Role,
    args: ShopperArgs,
    counts: Arc<Counts>,
    journal: Journal,
    /// The connection to the bookstore, and the number of calls it has carried.
    kept: Option<(Connection, u32)>,
}

impl Caller {
    async fn run(mut self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / self.args.rate);
        // After a slow call, continues at the usual rate instead of catching up in a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut n = 0;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let kind = self.role.kind(n, self.args.trespass_every);
            tokio::select! {
                // A call that the shutdown interrupts shows nothing about the mesh, so it is not
                // recorded.
                () = shutdown.cancelled() => return,
                () = self.make_call(kind) => {}
            }
            n += 1;
        }
    }

    async fn make_call(&mut self, kind: CallKind) {
        let outgoing = HttpRequest {
            method: kind.method(),
            path: kind.path().to_owned(),
            headers: self.headers(),
            body: kind.body(),
        };
        let limit = Duration::from_millis(self.args.timeout_ms.into());
        let response = match kind {
            CallKind::Warehouse => send_once(&self.args.bookwarehouse, outgoing, limit).await,
            CallKind::BooksBought | CallKind::Buy | CallKind::Admin => {
                self.call_bookstore(outgoing, limit).await
            }
        };
        self.counts.add(&response);
        let header = |name| response.as_ref().ok().and_then(|response| response.header(name));
        self.journal
            .write(Record::Call(Call {
                t_ms: self.journal.now_ms(),
                from: self.role.name().to_owned(),
                to: kind.to().to_owned(),
                method: kind.method().to_string(),
                path: kind.path().to_owned(),
                status: response.as_ref().ok().map(|response| response.status),
                error: response.as_ref().err().copied(),
                version: header(VERSION_HEADER),
                identity_seen: header(IDENTITY_SEEN_HEADER),
            }))
            .await;
    }

    fn headers(&self) -> HeaderMap {
        let (agent, app) = match self.role {
            Role::Bookbuyer => ("bookbuyer-http-client/1.0", "bookbuyer"),
            Role::Bookthief => ("bookthief-http-client/1.0", "bookthief"),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        headers.insert("client-app", HeaderValue::from_static(app));
        headers
    }

    async fn call_bookstore(
        &mut self,
        outgoing: HttpRequest,
        limit: Duration,
    ) -> Result<HttpResponse, CallError> {
        let exchange = async {
            let kept = match self.kept.take() {
                Some((mut connection, calls)) => {
                    connection.is_reusable().await.then_some((connection, calls))
                }
                None => None,
            };
            let (mut connection, calls) = match kept {
                Some(kept) => kept,
                None => (Connection::open(&self.args.bookstore).await?, 0),
            };
            let response = connection.send(outgoing).await?;
            Ok((response, connection, calls + 1))
        };
        // On an error the connection is dropped with the future.
        let (response, connection, calls) =
            tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallError::TimedOut))?;
        if calls < self.args.calls_per_connection {
            self.kept = Some((connection, calls));
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thief_alternates_and_the_buyer_makes_forbidden_calls_in_between() {
        use CallKind::{Admin, BooksBought, Buy, Warehouse};
        let first = |role: Role, every| -> Vec<CallKind> { (0..8).map(|n| role.kind(n, every)).collect() };
        let plain = vec![BooksBought, Buy, BooksBought, Buy, BooksBought, Buy, BooksBought, Buy];
        assert_eq!(first(Role::Bookthief, 4), plain);
        assert_eq!(first(Role::Bookbuyer, 0), plain);
        assert_eq!(
            first(Role::Bookbuyer, 4),
            vec![BooksBought, Buy, BooksBought, Admin, BooksBought, Buy, BooksBought, Warehouse]
        );
    }
}
