//! The flags of every command that logs.
//!
//! Owns the formats of log lines, and what is logged by default.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The flags of every command that logs.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// The filter of log lines: a level, or a list such as `info,smc_server::xds=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// The format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl LogArgs {
    /// Sets up logging to standard error for the whole process. Must be called once.
    pub fn start_logging(&self) {
        // openraft warns of every heartbeat to a replica that is down, twenty times a second. `smc cluster
        // status` shows that replica; `--log-level info,openraft=info` shows the warnings.
        let filter = EnvFilter::new(format!("openraft=error,{}", self.log_level.0));
        let registry = tracing_subscriber::registry().with(filter);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init(),
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
        }
    }
}

/// A valid filter of log lines in the syntax of [`EnvFilter`]: `info`, or `info,smc_server::xds=debug`.
#[derive(Debug, Clone)]
pub(crate) struct LogLevel(String);

impl FromStr for LogLevel {
    type Err = tracing_subscriber::filter::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        EnvFilter::builder().parse(text).map(|_| Self(text.to_owned()))
    }
}
