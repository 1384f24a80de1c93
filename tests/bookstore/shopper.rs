//! bookbuyer and bookthief: the same customer with two names. Calls the bookstore at a steady rate, one call at a
//! time, and writes down what came of each.
//!
//! bookbuyer also tries, now and then, what policy forbids it, so that a mesh which lets everything through does not
//! look like one that works.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::health::{bind_health, serve_health};
use super::http_client::{Answer, Ask, Connection, Target, ask_once};
use super::http_server::{json, problem, serve};
use super::identity::IDENTITY_SEEN_HEADER;
use super::record::{Call, CallError, Journal, Record};
use super::store::VERSION_HEADER;
use super::{BookstoreError, bind};

/// Who is shopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Character {
    /// The one policy allows.
    Bookbuyer,
    /// The one it does not.
    Bookthief,
}

/// How a customer is started.
#[derive(Debug, Clone, Args)]
pub struct ShopperArgs {
    /// The bookstore, as http://HOST:PORT.
    #[arg(long, default_value = "http://bookstore.bookstore:14001")]
    pub bookstore: Target,
    /// The warehouse, as http://HOST:PORT, which no customer may call.
    #[arg(long, default_value = "http://bookwarehouse.bookwarehouse:14001")]
    pub bookwarehouse: Target,
    /// Calls per second.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Calls made on one connection before a fresh one is opened.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub calls_per_connection: u32,
    /// One in so many of bookbuyer's calls is one that policy forbids; 0 for none.
    #[arg(long, default_value_t = 10)]
    pub trespass_every: u32,
    /// Longest wait for one call, in milliseconds.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
    /// Where `GET /` tells how shopping goes.
    #[arg(long, default_value = "0.0.0.0:14001")]
    pub listen: SocketAddr,
    /// Where `GET /health` is answered.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
}

/// A customer whose ports are open.
#[derive(Debug)]
pub struct Shopper {
    character: Character,
    args: ShopperArgs,
    listener: TcpListener,
    health: TcpListener,
}

/// One thing to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    BooksBought,
    Buy,
    Admin,
    Warehouse,
}

impl Character {
    fn name(self) -> &'static str {
        match self {
            Self::Bookbuyer => "bookbuyer",
            Self::Bookthief => "bookthief",
        }
    }

    /// What to do at the n-th call, counted from 0. The thief needs no errand of its own: all it tries is forbidden.
    fn errand(self, n: u64, trespass_every: u32) -> Errand {
        let every = u64::from(trespass_every);
        if self == Self::Bookbuyer && every > 0 && n % every == every - 1 {
            let trespass = n / every;
            return if trespass.is_multiple_of(2) { Errand::Admin } else { Errand::Warehouse };
        }
        if n.is_multiple_of(2) { Errand::BooksBought } else { Errand::Buy }
    }
}

impl Errand {
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
            Self::Warehouse => Bytes::from_static(br#"{"book":"a-free-book","copies":1}"#),
        }
    }
}

impl Shopper {
    /// Opens the ports.
    pub async fn bind(character: Character, args: ShopperArgs) -> Result<Self, BookstoreError> {
        let listener = bind("the counts", args.listen).await?;
        let health = bind_health(args.health_listen).await?;
        Ok(Self { character, args, listener, health })
    }

    /// Shops until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let counts = Arc::new(Counts::default());
        let told = Arc::clone(&counts);
        let page = serve(self.listener, shutdown.clone(), move |request| {
            let response = match (request.method(), request.uri().path()) {
                (&Method::GET, "/") => json(StatusCode::OK, &told.to_json()),
                _ => problem(StatusCode::NOT_FOUND, "only GET / is here"),
            };
            std::future::ready(response)
        });
        let health = serve_health(self.health, shutdown.clone());
        let trip = Trip { character: self.character, args: self.args, counts, journal, kept: None };
        tokio::join!(page, health, trip.shop(shutdown));
    }
}

/// How shopping goes, for the page.
#[derive(Debug, Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn add(&self, answer: &Result<Answer, CallError>) {
        let count = match answer {
            Ok(answer) if answer.status < 400 => &self.served,
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

struct Trip {
    character: Character,
    args: ShopperArgs,
    counts: Arc<Counts>,
    journal: Journal,
    /// The connection to the bookstore, and how many calls it has carried.
    kept: Option<(Connection, u32)>,
}

impl Trip {
    async fn shop(mut self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / self.args.rate);
        // After a slow call, go on at the usual pace instead of catching up in a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut n = 0;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let errand = self.character.errand(n, self.args.trespass_every);
            tokio::select! {
                // A call cut short by our own end says nothing about the mesh, so it leaves no record.
                () = shutdown.cancelled() => return,
                () = self.run_errand(errand) => {}
            }
            n += 1;
        }
    }

    async fn run_errand(&mut self, errand: Errand) {
        let ask = Ask {
            method: errand.method(),
            path: errand.path().to_owned(),
            headers: self.headers(),
            body: errand.body(),
        };
        let limit = Duration::from_millis(self.args.timeout_ms.into());
        let answer = match errand {
            Errand::Warehouse => ask_once(&self.args.bookwarehouse, ask, limit).await,
            Errand::BooksBought | Errand::Buy | Errand::Admin => self.ask_bookstore(ask, limit).await,
        };
        self.counts.add(&answer);
        let header = |name| answer.as_ref().ok().and_then(|answer| answer.header(name));
        self.journal
            .write(Record::Call(Call {
                t_ms: self.journal.now_ms(),
                from: self.character.name().to_owned(),
                to: errand.to().to_owned(),
                method: errand.method().to_string(),
                path: errand.path().to_owned(),
                status: answer.as_ref().ok().map(|answer| answer.status),
                error: answer.as_ref().err().copied(),
                version: header(VERSION_HEADER),
                identity_seen: header(IDENTITY_SEEN_HEADER),
            }))
            .await;
    }

    fn headers(&self) -> HeaderMap {
        let (agent, app) = match self.character {
            Character::Bookbuyer => ("bookbuyer-http-client/1.0", "bookbuyer"),
            Character::Bookthief => ("bookthief-http-client/1.0", "bookthief"),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        headers.insert("client-app", HeaderValue::from_static(app));
        headers
    }

    async fn ask_bookstore(&mut self, ask: Ask, limit: Duration) -> Result<Answer, CallError> {
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
            let answer = connection.send(ask).await?;
            Ok((answer, connection, calls + 1))
        };
        // On an error the connection is dropped with it.
        let (answer, connection, calls) =
            tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallError::TimedOut))?;
        if calls < self.args.calls_per_connection {
            self.kept = Some((connection, calls));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thief_alternates_and_the_buyer_trespasses_now_and_then() {
        use Errand::{Admin, BooksBought, Buy, Warehouse};
        let first = |character: Character, every| -> Vec<Errand> {
            (0..8).map(|n| character.errand(n, every)).collect()
        };
        let plain = vec![BooksBought, Buy, BooksBought, Buy, BooksBought, Buy, BooksBought, Buy];
        assert_eq!(first(Character::Bookthief, 4), plain);
        assert_eq!(first(Character::Bookbuyer, 0), plain);
        assert_eq!(
            first(Character::Bookbuyer, 4),
            vec![BooksBought, Buy, BooksBought, Admin, BooksBought, Buy, BooksBought, Warehouse]
        );
    }
}
