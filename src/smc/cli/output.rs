//! Standard output and standard error.
//!
//! Owns the choice between a table and JSON. A closed pipe (`smc … | head`) is no failure.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;
use thiserror::Error;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns.
    Table,
    /// One JSON object.
    Json,
}

/// The flag of the output format.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct OutputArgs {
    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

impl OutputArgs {
    /// Whether a program reads the output.
    pub(super) fn is_json(self) -> bool {
        self.output == Format::Json
    }

    /// Prints `message` as JSON, or as `table` renders it.
    pub(super) fn print<M: Serialize>(
        self,
        message: &M,
        table: impl FnOnce(&M) -> String,
    ) -> Result<(), NotPrinted> {
        match self.output {
            Format::Table => write(&table(message)),
            Format::Json => {
                let json = serde_json::to_string_pretty(message).map_err(io::Error::from)?;
                write(&format!("{json}\n"))
            }
        }
    }
}

/// Standard output cannot be written.
#[derive(Debug, Error)]
#[error("cannot write to standard output")]
pub(super) struct NotPrinted(#[from] io::Error);

/// Writes to standard output.
pub(super) fn write(text: &str) -> Result<(), NotPrinted> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes one line of progress to standard error. A failure cannot be reported, so it is ignored.
pub(super) fn print_progress(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes one line to standard error. A failure cannot be reported, so it is ignored.
pub(super) fn print_error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "smc: {text}");
}
