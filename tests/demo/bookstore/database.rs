//! The database: counts books in memory and speaks [`super::database_protocol`]. Owns the counts
//! and the limits of a connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::acceptor::accept_each;
use super::book::Book;
use super::database_protocol::{Command, GREETING, LINE_BYTES_MAX, Reply};
use super::health::{bind_health, serve_health};
use super::record::{Journal, METHOD_TCP, Received, Record};
use super::{BookstoreError, bind};

/// Concurrent clients; the warehouse opens one connection per order.
const CONNECTIONS_MAX: usize = 128;

/// Limit of different books. The demo needs one.
const BOOKS_MAX: usize = 10_000;

/// Time limit between two commands of a client.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// Time limit for a client to read one line.
const WRITE_MAX: Duration = Duration::from_secs(5);

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
        Ok(Self { listener: bind("clients", listen).await?, health: bind_health(health_listen).await? })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let stock = Arc::new(Stock::default());
        let ended = shutdown.clone();
        let clients = accept_each(self.listener, CONNECTIONS_MAX, shutdown.clone(), move |stream| {
            let (journal, stock, ended) = (journal.clone(), Arc::clone(&stock), ended.clone());
            async move {
                tokio::select! {
                    // An error of one client's connection concerns that client only.
                    _ = converse(stream, &stock, &journal) => {}
                    () = ended.cancelled() => {}
                }
            }
        });
        tokio::join!(clients, serve_health(self.health, shutdown));
    }
}

async fn converse(mut stream: TcpStream, stock: &Stock, journal: &Journal) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut read = BufReader::with_capacity(LINE_BYTES_MAX, read);
    let mut send_line = async |line: String| {
        let line = line + "\r\n";
        tokio::time::timeout(WRITE_MAX, write.write_all(line.as_bytes())).await?
    };
    send_line(GREETING.to_owned()).await?;
    while let Some(line) = tokio::time::timeout(IDLE_MAX, read_line(&mut read)).await?? {
        let (path, reply, quit) = match Command::parse(&line) {
            Ok(command) => (command.verb(), stock.execute(&command), command == Command::Quit),
            Err(error) => ("?", Reply::Err(error.to_string()), false),
        };
        if !quit {
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
        }
        send_line(reply.to_string()).await?;
        if quit {
            break;
        }
    }
    Ok(())
}

/// Reads a line of at most [`LINE_BYTES_MAX`] bytes, without its line end. `None` at the end of the
/// stream.
pub(super) async fn read_line(read: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    // usize fits into u64 on every supported platform.
    read.take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "a line is cut off or too long"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line)
        .map(Some)
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "a line is not UTF-8"))
}

/// The copies of each book.
#[derive(Debug, Default)]
struct Stock {
    copies: Mutex<BTreeMap<Book, u64>>,
}

impl Stock {
    fn execute(&self, command: &Command) -> Reply {
        // Every change is one insertion, so the map is consistent even after a panic.
        let mut stock = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        match command {
            Command::Restock { book, copies } => {
                if !stock.contains_key(book) && stock.len() >= BOOKS_MAX {
                    return Reply::Err("no room for another book".to_owned());
                }
                let count = stock.entry(book.clone()).or_default();
                *count = count.saturating_add(u64::from(*copies));
                Reply::Ok(*count)
            }
            Command::Count => Reply::Ok(stock.values().fold(0, |sum, copies| sum.saturating_add(*copies))),
            Command::Quit => Reply::Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_whole_or_refused() {
        let long = format!("{}\n", "x".repeat(LINE_BYTES_MAX));
        for (input, expected) in [
            (&b"COUNT\r\n"[..], Ok(Some("COUNT"))),
            (b"COUNT\nQUIT\n", Ok(Some("COUNT"))),
            (b"\n", Ok(Some(""))),
            (b"", Ok(None)),
            (b"COUNT", Err(())),
            (b"\xff\n", Err(())),
            (long.as_bytes(), Err(())),
        ] {
            let read = read_line(&mut BufReader::new(input)).await.map_err(|_| ());
            assert_eq!(read.as_ref().map(Option::as_deref), expected.as_ref().copied(), "{input:?}");
        }
    }

    #[test]
    fn a_full_stock_takes_known_books_and_no_new_ones() {
        let stock = Stock::default();
        let restock = |name: String| Command::Restock { book: Book::parse(&name).unwrap(), copies: 2 };
        for number in 0..BOOKS_MAX {
            assert_eq!(stock.execute(&restock(format!("b{number}"))), Reply::Ok(2));
        }
        assert_eq!(stock.execute(&restock("b0".into())), Reply::Ok(4));
        assert!(matches!(stock.execute(&restock("new".into())), Reply::Err(_)));
        assert_eq!(stock.execute(&Command::Count), Reply::Ok(2 * (BOOKS_MAX as u64 + 1)));
    }
}
