//! Owns what the programs of figures have in common: two flags, the runtime, and how figures are printed.

#![allow(clippy::print_stdout, reason = "the figures are the programs' output")]

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Map, Value};

use crate::Result;

/// Flags of every program.
#[derive(Args, Debug, Clone)]
pub struct Flags {
    /// Print the JSON object only.
    #[arg(long)]
    pub json: bool,
    /// Cargo passes this; it is ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The figures of several parts.
#[derive(Debug, Default)]
pub struct Report(Map<String, Value>);

impl Report {
    /// Adds the fields of a JSON object.
    pub fn add(&mut self, figures: Value) -> Result<()> {
        let Value::Object(figures) = figures else { return Err("figures are objects".into()) };
        self.0.extend(figures);
        Ok(())
    }
}

impl From<Report> for Value {
    fn from(report: Report) -> Self {
        Self::Object(report.0)
    }
}

/// Measures, and prints the figures.
pub fn run(flags: &Flags, measured: impl Future<Output = Result<Value>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    print(flags, &runtime.block_on(measured)?);
    Ok(())
}

/// Prints figures for people, and on the last line as JSON.
pub fn print(flags: &Flags, figures: &Value) {
    if !flags.json {
        println!("{figures:#}");
    }
    println!("{figures}");
}

/// Lets this process, and those that it starts, have as many connections as the machine admits.
pub fn admit_connections() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}
