//! The bookstore: five little programs that talk to one another the way a small business would.
//!
//! ```text
//! bookbuyer ──┐                 ┌─ bookstore v1 ─┐
//!             ├─ HTTP, bookstore┤                ├─ HTTP ─ bookwarehouse ─ TCP ─ database
//! bookthief ──┘                 └─ bookstore v2 ─┘
//! ```
//!
//! They are the traffic of the demo and of the tests, so they are honest about what happens to them: every call made
//! and every request received is one JSON line on standard output ([`record`]). They know nothing of the mesh and
//! refuse nothing on its behalf: whatever is refused was refused by a sidecar. They hold no state beyond memory.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::database::{Database, DatabaseArgs};
use self::record::Journal;
use self::shopper::{Character, Shopper, ShopperArgs};
use self::store::{Store, StoreArgs};
use self::warehouse::{Warehouse, WarehouseArgs};

mod acceptor;
pub mod book;
pub mod database;
mod database_client;
pub mod database_protocol;
mod health;
mod http_client;
mod http_server;
pub mod identity;
#[cfg(test)]
mod loopback_tests;
mod reception;
pub mod record;
pub mod shopper;
pub mod store;
pub mod warehouse;

/// How long a program may take, from SIGTERM on, to write out the lines it still holds. The lab, like a kubelet in a
/// hurry, kills it after five seconds.
const JOURNAL_DRAIN_MAX: Duration = Duration::from_secs(4);

/// The command line of `smc-bookstore`.
#[derive(Debug, Parser)]
#[command(name = "smc-bookstore", version, about = "The demo applications of the mesh")]
pub struct Cli {
    /// Which program this process is.
    #[command(subcommand)]
    pub program: Program,
}

/// One of the five programs.
#[derive(Debug, Subcommand)]
pub enum Program {
    /// Buys books, and now and then tries what policy forbids.
    Bookbuyer(ShopperArgs),
    /// Does what bookbuyer does, without being allowed to.
    Bookthief(ShopperArgs),
    /// Sells books; each sale is restocked from the warehouse.
    Bookstore(StoreArgs),
    /// Restocks books, and writes that down in the database.
    Bookwarehouse(WarehouseArgs),
    /// Counts books over a TCP protocol in which the server speaks first.
    Database(DatabaseArgs),
}

/// Why a program could not run.
#[derive(Debug, thiserror::Error)]
pub enum BookstoreError {
    /// A port could not be opened.
    #[error("cannot listen on {address} for {purpose}")]
    Bind {
        /// What the port is for.
        purpose: &'static str,
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Signal handlers could not be installed.
    #[error("cannot install the handler for {name}")]
    Signal {
        /// The signal.
        name: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Standard output is gone: nobody can see what happens any more.
    #[error("cannot write the journal to standard output")]
    Journal {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Runs one program until SIGTERM or SIGINT, writing its journal to standard output.
pub async fn run(cli: Cli) -> Result<ExitCode, BookstoreError> {
    let shutdown = CancellationToken::new();
    let (journal, records) = Journal::new();
    let output = standard_output().map_err(|source| BookstoreError::Journal { source })?;

    // The program owns the only journal, so its end closes the channel and lets the writer finish.
    let program = async {
        let ended = run_program(cli.program, journal, shutdown.clone()).await;
        shutdown.cancel();
        ended
    };
    let writer = async {
        let write = record::write_lines(records, output);
        let drained = async {
            shutdown.cancelled().await;
            tokio::time::sleep(JOURNAL_DRAIN_MAX).await;
        };
        let written = tokio::select! {
            written = write => written,
            () = drained => Err(std::io::ErrorKind::TimedOut.into()),
        };
        shutdown.cancel();
        written.map_err(|source| BookstoreError::Journal { source })
    };
    let signals = async {
        tokio::select! {
            ended = end_signal() => ended,
            () = shutdown.cancelled() => Ok(()),
        }?;
        shutdown.cancel();
        Ok(())
    };

    tokio::try_join!(program, writer, signals)?;
    Ok(ExitCode::SUCCESS)
}

/// Standard output without a buffer of its own, so that a line is out once it is written.
fn standard_output() -> std::io::Result<tokio::fs::File> {
    let descriptor = std::io::stdout().as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(descriptor.into()))
}

async fn run_program(
    program: Program,
    journal: Journal,
    shutdown: CancellationToken,
) -> Result<(), BookstoreError> {
    match program {
        Program::Bookbuyer(args) => {
            Shopper::bind(Character::Bookbuyer, args).await?.run(journal, shutdown).await;
        }
        Program::Bookthief(args) => {
            Shopper::bind(Character::Bookthief, args).await?.run(journal, shutdown).await;
        }
        Program::Bookstore(args) => Store::bind(args).await?.run(journal, shutdown).await,
        Program::Bookwarehouse(args) => Warehouse::bind(args).await?.run(journal, shutdown).await,
        Program::Database(args) => Database::bind(args).await?.run(journal, shutdown).await,
    }
    Ok(())
}

/// Returns when the process is asked to end.
async fn end_signal() -> Result<(), BookstoreError> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|source| BookstoreError::Signal { name: "SIGTERM", source })?;
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|source| BookstoreError::Signal { name: "SIGINT", source })?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Opens a listening socket, and says which one in the error.
async fn bind(purpose: &'static str, address: SocketAddr) -> Result<TcpListener, BookstoreError> {
    TcpListener::bind(address).await.map_err(|source| BookstoreError::Bind { purpose, address, source })
}
