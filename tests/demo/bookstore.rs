//! Owns the bookstore: five small programs that call one another.
//!
//! ```text
//! bookbuyer ──┐                 ┌─ bookstore v1 ─┐
//!             ├─ HTTP, bookstore┤                ├─ HTTP ─ bookwarehouse ─ TCP ─ database
//! bookthief ──┘                 └─ bookstore v2 ─┘
//! ```
//!
//! Their calls are the traffic of the demo and of the tests. They write one JSON line on standard
//! output for each call they make and each request they receive ([`record`]). They know nothing of
//! the mesh and enforce no policy, so a sidecar made every refusal. They keep their state in memory.

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
use self::shopper::{Role, Shopper, ShopperArgs};
use self::store::{Store, StoreArgs};
use self::warehouse::{Warehouse, WarehouseArgs};

mod client;
pub mod database;
pub mod identity;
pub mod record;
mod server;
pub mod shopper;
pub mod store;
pub mod warehouse;

/// Time limit, from SIGTERM on, for writing the remaining journal lines. The lab kills a container
/// after five seconds.
const JOURNAL_DRAIN_MAX: Duration = Duration::from_secs(4);

/// The command line of `smc-bookstore`.
#[derive(Debug, Parser)]
#[command(name = "smc-bookstore", version, about = "The demo applications of the mesh")]
pub struct Cli {
    /// The program to run.
    #[command(subcommand)]
    pub program: Program,
}

/// One of the five programs.
#[derive(Debug, Subcommand)]
pub enum Program {
    /// Buys books, and regularly makes a call that policy forbids.
    Bookbuyer(ShopperArgs),
    /// Makes the calls of bookbuyer, without a policy that allows them.
    Bookthief(ShopperArgs),
    /// Sells books; each sale is restocked from the warehouse.
    Bookstore(StoreArgs),
    /// Restocks books, and records them in the database.
    Bookwarehouse(WarehouseArgs),
    /// Counts books over a TCP protocol in which the server speaks first.
    Database(DatabaseArgs),
}

/// The reason why a program could not run.
#[derive(Debug, thiserror::Error)]
pub enum BookstoreError {
    /// A port could not be opened.
    #[error("cannot listen on {address} for {purpose}")]
    Bind {
        /// Purpose of the port.
        purpose: &'static str,
        /// The address to listen on.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// Signal handlers could not be installed.
    #[error("cannot install the handler for {name}")]
    Signal {
        /// Name of the signal.
        name: &'static str,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// Standard output is closed, so nothing can observe the program any more.
    #[error("cannot write the journal to standard output")]
    Journal {
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Runs one program until SIGTERM or SIGINT, writing its journal to standard output.
pub async fn run(cli: Cli) -> Result<ExitCode, BookstoreError> {
    let shutdown = CancellationToken::new();
    let (journal, records) = Journal::new();
    let output = standard_output().map_err(|source| BookstoreError::Journal { source })?;

    // The program owns the only journal: when it ends, the channel closes and the writer finishes.
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

/// Standard output without a buffer, so that each line is visible once it is written.
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
            Shopper::bind(Role::Bookbuyer, args).await?.run(journal, shutdown).await;
        }
        Program::Bookthief(args) => {
            Shopper::bind(Role::Bookthief, args).await?.run(journal, shutdown).await;
        }
        Program::Bookstore(args) => Store::bind(args).await?.run(journal, shutdown).await,
        Program::Bookwarehouse(args) => Warehouse::bind(args).await?.run(journal, shutdown).await,
        Program::Database(args) => Database::bind(args).await?.run(journal, shutdown).await,
    }
    Ok(())
}

/// Returns when the process receives SIGTERM or SIGINT.
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

/// Opens a listening socket; an error names its purpose and address.
async fn bind(purpose: &'static str, address: SocketAddr) -> Result<TcpListener, BookstoreError> {
    TcpListener::bind(address).await.map_err(|source| BookstoreError::Bind { purpose, address, source })
}

#[cfg(test)]
mod tests;
