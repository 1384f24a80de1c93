//! The database: counts books in memory over TCP. Owns both sides of its exchange, one for each connection:
//!
//! ```text
//! S: READY
//! C: RESTOCK a-new-book
//! S: OK 1
//! ```
//!
//! The server speaks first on purpose: a proxy that waits for the client's first bytes to detect the
//! protocol waits for ever.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use smc_types::host_port::HostPort;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::client::{classify_io, connect};
use super::record::{CallError, Journal, METHOD_TCP, Received, Record};
use super::server::{accept_each, serve_health};
use super::{BookstoreError, bind};

/// The first line of every connection, sent by the server.
const GREETING: &str = "READY";

/// The one command, which a book follows.
pub(super) const RESTOCK: &str = "RESTOCK";

/// Longest line of either side, with its line end.
const LINE_BYTES_MAX: u64 = 128;

/// Time limit for one exchange.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);

/// Arguments of the database.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Address for clients.
    #[arg(long, default_value = "0.0.0.0:3306")]
    pub listen: SocketAddr,
    /// Address for `GET /health`.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
}

/// A database with open ports.
#[derive(Debug)]
pub struct Database {
    listener: TcpListener,
    health: TcpListener,
}

impl Database {
    /// Opens the ports.
    pub async fn bind(args: DatabaseArgs) -> Result<Self, BookstoreError> {
        let DatabaseArgs { listen, health_listen } = args;
        Ok(Self { listener: bind("clients", listen).await?, health: bind("health", health_listen).await? })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let stock = Arc::new(AtomicU64::new(0));
        let ended = shutdown.clone();
        let clients = accept_each(self.listener, shutdown.clone(), move |stream| {
            let (journal, stock, ended) = (journal.clone(), Arc::clone(&stock), ended.clone());
            async move {
                tokio::select! {
                    // An error of one client's connection concerns that client only.
                    _ = tokio::time::timeout(EXCHANGE_MAX, answer(stream, &stock, &journal)) => {}
                    () = ended.cancelled() => {}
                }
            }
        });
        tokio::join!(clients, serve_health(self.health, shutdown));
    }
}

/// The server's side: counts one copy.
async fn answer(stream: TcpStream, stock: &AtomicU64, journal: &Journal) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    write_line(&mut stream, GREETING).await?;
    let line = read_line(&mut stream).await?;
    let (path, reply) = match line.split_once(' ') {
        Some((RESTOCK, _)) => (RESTOCK, format!("OK {}", stock.fetch_add(1, Ordering::Relaxed) + 1)),
        _ => ("?", format!("ERR there is {RESTOCK} <book>")),
    };
    journal
        .write(Record::Received(Received {
            t_ms: journal.now_ms(),
            at: "database".to_owned(),
            from: None,
            method: METHOD_TCP.to_owned(),
            path: path.to_owned(),
            status: None,
        }))
        .await;
    write_line(&mut stream, &reply).await
}

/// The client's side: adds a copy of `book`, and returns the number of all copies.
pub(super) async fn restock(database: &HostPort, book: &str, limit: Duration) -> Result<u64, CallError> {
    let exchange = async {
        let mut stream = BufReader::new(connect(database).await?);
        let replied = async {
            if read_line(&mut stream).await? != GREETING {
                return Err(ErrorKind::InvalidData.into());
            }
            write_line(&mut stream, &format!("{RESTOCK} {book}")).await?;
            let reply = read_line(&mut stream).await?;
            let count = reply.strip_prefix("OK ").and_then(|count| count.parse().ok());
            count.ok_or_else(|| io::Error::from(ErrorKind::InvalidData))
        };
        replied.await.map_err(|error| classify_io(&error))
    };
    tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallError::TimedOut))
}

async fn write_line(stream: &mut BufReader<TcpStream>, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes()).await
}

/// Reads a line, and returns it without its end.
async fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.take(LINE_BYTES_MAX).read_line(&mut line).await?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None if line.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        None => Err(io::Error::new(ErrorKind::InvalidData, "a line is cut off or too long")),
    }
}
