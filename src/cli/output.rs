//! What goes to standard output and standard error.
//!
//! Owns the choice between a table and JSON. A reader that went away (`smc … | head`) is no failure.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;
use thiserror::Error;

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns.
    Table,
    /// One JSON object.
    Json,
}

/// The flag that chooses it.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct OutputArgs {
    /// The form of the answer
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

impl OutputArgs {
    /// Prints `message` as JSON, or what `table` makes of it.
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

/// The answer did not reach whoever asked.
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

/// Writes one line to standard error; if that is gone there is nobody to tell.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "smc: {text}");
}
