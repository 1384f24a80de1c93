//! The bookstore, in two versions that differ in name only. A sale is made if the warehouse restocks it.
//!
//! `/admin` answers 200 to anyone: policy opens it to nobody, so whoever gets in shows a hole in the mesh, and a 403
//! is never of the application's making.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::book::Book;
use super::health::{bind_health, serve_health};
use super::http_client::{Ask, Target, ask_once};
use super::http_server::{json, problem, serve};
use super::identity::IDENTITY_SEEN_HEADER;
use super::reception::acknowledge;
use super::record::{Call, Journal, Record};
use super::warehouse::Order;
use super::{BookstoreError, bind};

/// The response header that says which version answered.
pub const VERSION_HEADER: &str = "bookstore-version";

/// Which bookstore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// The one before.
    V1,
    /// The one after.
    V2,
}

impl Version {
    /// As it is written in the response header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// How this bookstore calls itself in its records.
    pub fn workload(self) -> &'static str {
        match self {
            Self::V1 => "bookstore-v1",
            Self::V2 => "bookstore-v2",
        }
    }
}

/// How a bookstore is started.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Which version this is.
    #[arg(long = "version", value_enum)]
    pub store_version: Version,
    /// Where customers arrive.
    #[arg(long, default_value = "0.0.0.0:14001")]
    pub listen: SocketAddr,
    /// Where `GET /health` is answered.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
    /// The warehouse, as http://HOST:PORT.
    #[arg(long, default_value = "http://bookwarehouse.bookwarehouse:14001")]
    pub bookwarehouse: Target,
    /// Longest wait for the warehouse, in milliseconds. Longer than the warehouse waits for its database, shorter than
    /// customers wait for us, so that the one nearest to a fault reports it.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
}

/// A bookstore whose ports are open.
#[derive(Debug)]
pub struct Store {
    listener: TcpListener,
    health: TcpListener,
    version: Version,
    warehouse: Target,
    timeout: Duration,
}

impl Store {
    /// Opens the ports.
    pub async fn bind(args: StoreArgs) -> Result<Self, BookstoreError> {
        let StoreArgs { store_version, listen, health_listen, bookwarehouse, timeout_ms } = args;
        Ok(Self {
            listener: bind("customers", listen).await?,
            health: bind_health(health_listen).await?,
            version: store_version,
            warehouse: bookwarehouse,
            timeout: Duration::from_millis(timeout_ms.into()),
        })
    }

    /// Where customers arrive.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where probes arrive.
    pub fn health_address(&self) -> std::io::Result<SocketAddr> {
        self.health.local_addr()
    }

    /// Serves until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let counter = Arc::new(Counter {
            version: self.version,
            warehouse: self.warehouse,
            timeout: self.timeout,
            bought: AtomicU64::new(0),
            journal,
        });
        let customers = serve(self.listener, shutdown.clone(), move |request| {
            let counter = Arc::clone(&counter);
            async move { counter.handle(request).await }
        });
        tokio::join!(customers, serve_health(self.health, shutdown));
    }
}

#[derive(Debug)]
struct Counter {
    version: Version,
    warehouse: Target,
    timeout: Duration,
    bought: AtomicU64,
    journal: Journal,
}

impl Counter {
    async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        let mut response = match (request.method(), request.uri().path()) {
            (&Method::GET, "/books-bought") => self.tell(None),
            (&Method::GET, "/admin") => json(StatusCode::OK, &json!({ "version": self.version.as_str() })),
            (&Method::GET, path) => match path.strip_prefix("/buy/").map(Book::parse) {
                Some(Ok(book)) => self.sell(book).await,
                Some(Err(error)) => problem(StatusCode::BAD_REQUEST, &error.to_string()),
                None => problem(StatusCode::NOT_FOUND, "there are /books-bought, /buy/<book> and /admin"),
            },
            _ => problem(StatusCode::METHOD_NOT_ALLOWED, "everything here is a GET"),
        };
        response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(self.version.as_str()));
        acknowledge(&self.journal, self.version.workload(), &request, response).await
    }

    fn tell(&self, sold: Option<&Book>) -> Response<Bytes> {
        let bought = self.bought.load(Ordering::Relaxed);
        json(StatusCode::OK, &json!({ "sold": sold, "books_bought": bought }))
    }

    async fn sell(&self, book: Book) -> Response<Bytes> {
        let order = json!(Order { book: book.clone(), copies: 1 });
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let ask = Ask {
            method: Method::POST,
            path: "/restock".to_owned(),
            headers,
            body: Bytes::from(order.to_string()),
        };
        let answer = ask_once(&self.warehouse, ask, self.timeout).await;
        self.journal
            .write(Record::Call(Call {
                t_ms: self.journal.now_ms(),
                from: self.version.workload().to_owned(),
                to: "bookwarehouse".to_owned(),
                method: Method::POST.to_string(),
                path: "/restock".to_owned(),
                status: answer.as_ref().ok().map(|answer| answer.status),
                error: answer.as_ref().err().copied(),
                version: None,
                identity_seen: answer.as_ref().ok().and_then(|answer| answer.header(IDENTITY_SEEN_HEADER)),
            }))
            .await;
        match answer {
            Ok(answer) if answer.status == 200 => {
                self.bought.fetch_add(1, Ordering::Relaxed);
                self.tell(Some(&book))
            }
            Ok(answer) => {
                problem(StatusCode::BAD_GATEWAY, &format!("the warehouse answered {}", answer.status))
            }
            Err(error) => problem(StatusCode::BAD_GATEWAY, &format!("the warehouse: {error}")),
        }
    }
}
