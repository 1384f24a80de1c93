//! The bookwarehouse: takes orders over HTTP and records them in the database over TCP, with one
//! database connection per order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::book::Book;
use super::database_client::{DatabaseTarget, command};
use super::database_protocol::{COPIES_MAX, Command, Reply};
use super::health::{bind_health, serve_health};
use super::http_server::{json, problem, serve};
use super::reception::acknowledge;
use super::record::{Call, CallError, Journal, METHOD_TCP, Record};
use super::{BookstoreError, bind};

/// Name of the warehouse in records.
const NAME: &str = "bookwarehouse";

/// Arguments of the warehouse.
#[derive(Debug, Clone, Args)]
pub struct WarehouseArgs {
    /// Address for orders.
    #[arg(long, default_value = "0.0.0.0:14001")]
    pub listen: SocketAddr,
    /// Address for `GET /health`.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
    /// The database, as HOST:PORT.
    #[arg(long, default_value = "database.bookdatabase:3306")]
    pub database: DatabaseTarget,
    /// Time limit for the database, in milliseconds.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
}

/// An order: the body of `POST /restock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Name of the book.
    pub book: Book,
    /// Number of copies, 1 to [`COPIES_MAX`].
    pub copies: u32,
}

/// A warehouse with open ports.
#[derive(Debug)]
pub struct Warehouse {
    listener: TcpListener,
    health: TcpListener,
    database: DatabaseTarget,
    timeout: Duration,
}

impl Warehouse {
    /// Opens the ports.
    pub async fn bind(args: WarehouseArgs) -> Result<Self, BookstoreError> {
        let WarehouseArgs { listen, health_listen, database, timeout_ms } = args;
        Ok(Self {
            listener: bind("orders", listen).await?,
            health: bind_health(health_listen).await?,
            database,
            timeout: Duration::from_millis(timeout_ms.into()),
        })
    }

    /// Returns the address for orders.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let handler = Arc::new(OrderHandler { database: self.database, timeout: self.timeout, journal });
        let orders = serve(self.listener, shutdown.clone(), move |request| {
            let handler = Arc::clone(&handler);
            async move { handler.handle(request).await }
        });
        tokio::join!(orders, serve_health(self.health, shutdown));
    }
}

#[derive(Debug)]
struct OrderHandler {
    database: DatabaseTarget,
    timeout: Duration,
    journal: Journal,
}

impl OrderHandler {
    async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        let response = match (request.method(), request.uri().path()) {
            (&Method::POST, "/restock") => self.restock(request.body()).await,
            (_, "/restock") => problem(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed"),
            _ => problem(StatusCode::NOT_FOUND, "only /restock is here"),
        };
        acknowledge(&self.journal, NAME, &request, response).await
    }

    async fn restock(&self, body: &Bytes) -> Response<Bytes> {
        let order: Order = match serde_json::from_slice(body) {
            Ok(order) => order,
            Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("not an order: {error}")),
        };
        if !(1..=COPIES_MAX).contains(&order.copies) {
            return problem(StatusCode::BAD_REQUEST, &format!("copies must be 1 to {COPIES_MAX}"));
        }
        let restock = Command::Restock { book: order.book.clone(), copies: order.copies };
        let reply = command(&self.database, &restock, self.timeout).await;
        self.record(&restock, reply.as_ref().err().copied()).await;
        match reply {
            Ok(Reply::Ok(stock)) => json(StatusCode::OK, &json!({ "book": order.book, "stock": stock })),
            Ok(Reply::Err(reason)) => problem(StatusCode::INSUFFICIENT_STORAGE, &reason),
            Err(error) => problem(StatusCode::BAD_GATEWAY, &format!("the database: {error}")),
        }
    }

    async fn record(&self, command: &Command, error: Option<CallError>) {
        self.journal
            .write(Record::Call(Call {
                t_ms: self.journal.now_ms(),
                from: NAME.to_owned(),
                to: "database".to_owned(),
                method: METHOD_TCP.to_owned(),
                path: command.verb().to_owned(),
                status: None,
                error,
                version: None,
                identity_seen: None,
            }))
            .await;
    }
}
