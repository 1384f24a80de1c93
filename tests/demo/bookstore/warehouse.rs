//! The bookwarehouse: takes orders over HTTP and records them in the database over TCP, with one
//! database connection per order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode};
use serde_json::json;
use smc_types::host_port::HostPort;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::database::{RESTOCK, restock};
use super::record::{Call, Journal, METHOD_TCP, Record};
use super::server::{acknowledge, json, problem, serve, serve_health};
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
    pub database: HostPort,
    /// Time limit for the database, in milliseconds.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
}

/// Whether this is the name of a book, which a path, an order and a line of the database take as it is: 1 to
/// 64 ASCII letters, digits, `.`, `_` and `-`.
pub(super) fn is_book(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// A warehouse with open ports.
#[derive(Debug)]
pub struct Warehouse {
    listener: TcpListener,
    health: TcpListener,
    database: HostPort,
    timeout: Duration,
}

impl Warehouse {
    /// Opens the ports.
    pub async fn bind(args: WarehouseArgs) -> Result<Self, BookstoreError> {
        let WarehouseArgs { listen, health_listen, database, timeout_ms } = args;
        Ok(Self {
            listener: bind("orders", listen).await?,
            health: bind("health", health_listen).await?,
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
    database: HostPort,
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

    /// The body is the name of the book that is ordered, one copy.
    async fn restock(&self, body: &Bytes) -> Response<Bytes> {
        let Some(book) = str::from_utf8(body).ok().filter(|name| is_book(name)) else {
            return problem(StatusCode::BAD_REQUEST, "the body is not the name of a book");
        };
        let stock = restock(&self.database, book, self.timeout).await;
        self.journal
            .write(Record::Call(Call {
                t_ms: self.journal.now_ms(),
                from: NAME.to_owned(),
                to: "database".to_owned(),
                method: METHOD_TCP.to_owned(),
                path: RESTOCK.to_owned(),
                status: None,
                error: stock.err(),
                version: None,
                identity_seen: None,
            }))
            .await;
        match stock {
            Ok(stock) => json(StatusCode::OK, &json!({ "book": book, "stock": stock })),
            Err(error) => problem(StatusCode::BAD_GATEWAY, &format!("the database: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_has_a_plain_short_name() {
        for (name, valid) in [
            ("a-new-book", true),
            ("A_1.2", true),
            (&"x".repeat(64)[..], true),
            (&"x".repeat(65)[..], false),
            ("", false),
            ("a b", false),
            ("a\nRESTOCK", false),
            ("a/b", false),
            ("%20", false),
            ("b\u{fc}cher", false),
        ] {
            assert_eq!(is_book(name), valid, "{name:?}");
        }
    }
}
