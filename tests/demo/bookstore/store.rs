//! The bookstore, in two versions that differ in name only. A sale needs a restock from the
//! warehouse.
//!
//! `/admin` answers 200 to every caller: policy allows it to none, so a 200 shows a hole in the
//! mesh, and a 403 never comes from the application.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::json;
use smc_types::host_port::HostPort;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client::{HttpRequest, send_once};
use super::identity::IDENTITY_SEEN_HEADER;
use super::record::{Call, Journal, Record};
use super::server::{acknowledge, json, problem, serve, serve_health};
use super::warehouse::is_book;
use super::{BookstoreError, bind};

/// The response header with the version that answered.
pub const VERSION_HEADER: &str = "bookstore-version";

/// Version of the bookstore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// The old version.
    V1,
    /// The new version.
    V2,
}

impl Version {
    /// The value of the response header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// Name of this bookstore in records.
    pub fn workload(self) -> &'static str {
        match self {
            Self::V1 => "bookstore-v1",
            Self::V2 => "bookstore-v2",
        }
    }
}

/// Arguments of a bookstore.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Version to run.
    #[arg(long = "version", value_enum)]
    pub store_version: Version,
    /// Address for clients.
    #[arg(long, default_value = "0.0.0.0:14001")]
    pub listen: SocketAddr,
    /// Address for `GET /health`.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
    /// The warehouse, as HOST:PORT.
    #[arg(long, default_value = "bookwarehouse.bookwarehouse:14001")]
    pub bookwarehouse: HostPort,
    /// Time limit for the warehouse, in milliseconds. Longer than the warehouse's limit for its
    /// database, shorter than the clients' limit, so that the program nearest to a fault reports
    /// it.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
}

/// A bookstore with open ports.
#[derive(Debug)]
pub struct Store {
    listener: TcpListener,
    health: TcpListener,
    version: Version,
    warehouse: HostPort,
    timeout: Duration,
}

impl Store {
    /// Opens the ports.
    pub async fn bind(args: StoreArgs) -> Result<Self, BookstoreError> {
        let StoreArgs { store_version, listen, health_listen, bookwarehouse, timeout_ms } = args;
        Ok(Self {
            listener: bind("customers", listen).await?,
            health: bind("health", health_listen).await?,
            version: store_version,
            warehouse: bookwarehouse,
            timeout: Duration::from_millis(timeout_ms.into()),
        })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the address for probes.
    pub fn health_address(&self) -> std::io::Result<SocketAddr> {
        self.health.local_addr()
    }

    /// Serves until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let handler = Arc::new(SaleHandler {
            version: self.version,
            warehouse: self.warehouse,
            timeout: self.timeout,
            bought: AtomicU64::new(0),
            journal,
        });
        let customers = serve(self.listener, shutdown.clone(), move |request| {
            let handler = Arc::clone(&handler);
            async move { handler.handle(request).await }
        });
        tokio::join!(customers, serve_health(self.health, shutdown));
    }
}

#[derive(Debug)]
struct SaleHandler {
    version: Version,
    warehouse: HostPort,
    timeout: Duration,
    bought: AtomicU64,
    journal: Journal,
}

impl SaleHandler {
    async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        let mut response = match (request.method(), request.uri().path()) {
            (&Method::GET, "/books-bought") => self.counts_response(None),
            (&Method::GET, "/admin") => json(StatusCode::OK, &json!({ "version": self.version.as_str() })),
            (&Method::GET, path) => match path.strip_prefix("/buy/") {
                Some(book) if is_book(book) => self.sell(book).await,
                Some(_) => problem(StatusCode::BAD_REQUEST, "this is not the name of a book"),
                None => problem(StatusCode::NOT_FOUND, "there are /books-bought, /buy/<book> and /admin"),
            },
            _ => problem(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed"),
        };
        response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(self.version.as_str()));
        acknowledge(&self.journal, self.version.workload(), &request, response).await
    }

    fn counts_response(&self, sold: Option<&str>) -> Response<Bytes> {
        let bought = self.bought.load(Ordering::Relaxed);
        json(StatusCode::OK, &json!({ "sold": sold, "books_bought": bought }))
    }

    async fn sell(&self, book: &str) -> Response<Bytes> {
        let outgoing = HttpRequest {
            method: Method::POST,
            path: "/restock".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from(book.to_owned()),
        };
        let response = send_once(&self.warehouse, outgoing, self.timeout).await;
        self.journal
            .write(Record::Call(Call {
                t_ms: self.journal.now_ms(),
                from: self.version.workload().to_owned(),
                to: "bookwarehouse".to_owned(),
                method: Method::POST.to_string(),
                path: "/restock".to_owned(),
                status: response.as_ref().ok().map(|response| response.status),
                error: response.as_ref().err().copied(),
                version: None,
                identity_seen: response
                    .as_ref()
                    .ok()
                    .and_then(|response| response.header(IDENTITY_SEEN_HEADER)),
            }))
            .await;
        match response {
            Ok(response) if response.status == 200 => {
                self.bought.fetch_add(1, Ordering::Relaxed);
                self.counts_response(Some(book))
            }
            Ok(response) => {
                problem(StatusCode::BAD_GATEWAY, &format!("the warehouse answered {}", response.status))
            }
            Err(error) => problem(StatusCode::BAD_GATEWAY, &format!("the warehouse: {error}")),
        }
    }
}
