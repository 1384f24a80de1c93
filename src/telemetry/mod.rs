//! What SMC tells its operators about itself: logs, metrics, and whether it is alive and ready.
//!
//! Owns names and formats. Refuses to decide anything by them.

mod http;
mod metrics;

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use http::serve;
pub use metrics::Metrics;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The flags of every command that logs.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// Which log lines are written
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl LogArgs {
    /// Sets up logging to standard error for the whole process; called once, by the command that runs, since a process
    /// has one standard error.
    pub fn start_logging(&self) {
        let registry = tracing_subscriber::registry().with(EnvFilter::new(&self.log_level.0));
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init(),
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
        }
    }
}

/// Which log lines are written, in the syntax of [`EnvFilter`]: `info`, or `info,smc::xds=debug`. Checked.
#[derive(Debug, Clone)]
pub struct LogLevel(String);

impl FromStr for LogLevel {
    type Err = tracing_subscriber::filter::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        EnvFilter::builder().parse(text).map(|_| Self(text.to_owned()))
    }
}
