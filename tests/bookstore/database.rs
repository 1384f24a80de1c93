//! The database: counts books in memory and speaks [`super::database_protocol`]. Owns the counts and the limits of a
//! connection.

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

/// Clients served at once; the warehouse opens one connection per request it works on.
const CONNECTIONS_MAX: usize = 128;

/// Different books kept. One is enough for the demo; the bound is for whoever sends something else.
const BOOKS_MAX: usize = 10_000;

/// Time a client may take between two commands.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// Time a client may take to read a line of ours.
const WRITE_MAX: Duration = Duration::from_secs(5);

/// How the database is started.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Where clients connect.
    #[arg(long, default_value = "0.0.0.0:3306")]
    pub listen: SocketAddr,
    /// Where `GET /health` is answered.
    #[arg(long, default_value = "0.0.0.0:14002")]
    pub health_listen: SocketAddr,
}

/// A database whose ports are open.
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

    /// Where clients connect.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until shutdown.
    pub async fn run(self, journal: Journal, shutdown: CancellationToken) {
        let shelf = Arc::new(Shelf::default());
        let ended = shutdown.clone();
        let clients = accept_each(self.listener, CONNECTIONS_MAX, shutdown.clone(), move |stream| {
            let (journal, shelf, ended) = (journal.clone(), Arc::clone(&shelf), ended.clone());
            async move {
                tokio::select! {
                    // A client that breaks off mid-line is its own concern.
                    _ = converse(stream, &shelf, &journal) => {}
                    () = ended.cancelled() => {}
                }
            }
        });
        tokio::join!(clients, serve_health(self.health, shutdown));
    }
}

async fn converse(mut stream: TcpStream, shelf: &Shelf, journal: &Journal) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut read = BufReader::with_capacity(LINE_BYTES_MAX, read);
    let mut say = async |line: String| {
        let line = line + "\r\n";
        tokio::time::timeout(WRITE_MAX, write.write_all(line.as_bytes())).await?
    };
    say(GREETING.to_owned()).await?;
    while let Some(line) = tokio::time::timeout(IDLE_MAX, read_line(&mut read)).await?? {
        let (path, reply, quit) = match Command::parse(&line) {
            Ok(command) => (command.verb(), shelf.execute(&command), command == Command::Quit),
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
        say(reply.to_string()).await?;
        if quit {
            break;
        }
    }
    Ok(())
}

/// Reads a line of at most [`LINE_BYTES_MAX`] bytes, without its line end. None at the end of the stream.
pub(super) async fn read_line(read: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    // usize to u64 loses nothing on any platform there is.
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

/// The counts.
#[derive(Debug, Default)]
struct Shelf {
    copies: Mutex<BTreeMap<Book, u64>>,
}

impl Shelf {
    fn execute(&self, command: &Command) -> Reply {
        // Every change is one insertion, so what a panicking holder left behind is whole.
        let mut shelf = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        match command {
            Command::Restock { book, copies } => {
                if !shelf.contains_key(book) && shelf.len() >= BOOKS_MAX {
                    return Reply::Err("no room for another book".to_owned());
                }
                let count = shelf.entry(book.clone()).or_default();
                *count = count.saturating_add(u64::from(*copies));
                Reply::Ok(*count)
            }
            Command::Count => Reply::Ok(shelf.values().fold(0, |sum, copies| sum.saturating_add(*copies))),
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
    fn a_full_shelf_takes_more_of_what_it_has_and_nothing_new() {
        let shelf = Shelf::default();
        let restock = |name: String| Command::Restock { book: Book::parse(&name).unwrap(), copies: 2 };
        for number in 0..BOOKS_MAX {
            assert_eq!(shelf.execute(&restock(format!("b{number}"))), Reply::Ok(2));
        }
        assert_eq!(shelf.execute(&restock("b0".into())), Reply::Ok(4));
        assert!(matches!(shelf.execute(&restock("new".into())), Reply::Err(_)));
        assert_eq!(shelf.execute(&Command::Count), Reply::Ok(2 * (BOOKS_MAX as u64 + 1)));
    }
}
