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
        let filter = EnvFilter::new(self.log_level.filter());
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

/// What is not logged of openraft unless a person names it. It warns of every heartbeat to a replica that
/// is down, twenty times a second; `smc cluster status` shows that replica. Each call that is open when
/// Raft stops, as at the end of a process, is an error of `openraft::raft`, which its caller gets as well.
const OPENRAFT: &str = "openraft=error,openraft::raft=off";

impl LogLevel {
    /// The directives, those of the default first.
    fn filter(&self) -> String {
        if self.0.contains("openraft") { self.0.clone() } else { format!("{OPENRAFT},{}", self.0) }
    }
}

impl FromStr for LogLevel {
    type Err = tracing_subscriber::filter::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        EnvFilter::builder().parse(text).map(|_| Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openraft_is_quiet_unless_it_is_named() {
        let filter = |level: &str| level.parse::<LogLevel>().unwrap().filter();
        assert_eq!(filter("info"), "openraft=error,openraft::raft=off,info");
        assert_eq!(filter("debug,openraft=info"), "debug,openraft=info");
    }
}
