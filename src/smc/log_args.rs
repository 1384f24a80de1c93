//! The flags of every command that logs.
//!
//! Owns the formats of log lines, what is logged by default, and the summaries of what is left out.

mod budget;
mod level;
mod line;

use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_host::sync::lock;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Subscriber, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use budget::{Budgets, LeftOut};
pub(crate) use level::LevelInForce;
use line::{Lines, Sources};

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

/// The time between two summaries of what is left out.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(10);

impl LogArgs {
    /// Sets up logging to standard error for the whole process. Must be called once.
    pub fn start_logging(&self) -> (Summaries, LevelInForce) {
        let budgets = Arc::default();
        let ansi = std::io::stderr().is_terminal();
        let (subscriber, level) = self.subscriber(std::io::stderr, ansi, &budgets);
        subscriber.init();
        (Summaries(budgets), level)
    }

    /// A subscriber that writes lines to `writer`, and what changes its level.
    fn subscriber<W>(
        &self,
        writer: W,
        ansi: bool,
        budgets: &Arc<Mutex<Budgets>>,
    ) -> (Box<dyn Subscriber + Send + Sync>, LevelInForce)
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let (filter, level) = LevelInForce::of_flag(self.log_level.clone());
        let registry = tracing_subscriber::registry().with(filter).with(Sources);
        let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(ansi);
        let (format, budgets) = (self.log_format, Arc::clone(budgets));
        let subscriber: Box<dyn Subscriber + Send + Sync> = match format {
            LogFormat::Text => Box::new(registry.with(lines.map_event_format(|inner| {
                // The line is a writer of its own, which knows nothing of a terminal.
                Lines { inner: inner.with_ansi(ansi), format, budgets }
            }))),
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                Box::new(registry.with(lines.map_event_format(|inner| Lines { inner, format, budgets })))
            }
        };
        (subscriber, level)
    }
}

/// What the log leaves out.
#[derive(Debug)]
pub struct Summaries(Arc<Mutex<Budgets>>);

impl Summaries {
    /// Logs every 10 seconds how many lines were left out.
    pub async fn log(self, stopping: CancellationToken) {
        while timeout(SUMMARY_INTERVAL, stopping.cancelled()).await.is_err() {
            // Unlocked before it is logged, which locks it.
            let left_out = lock(&self.0).left_out();
            for LeftOut { module, level, lines, latest_source } in left_out {
                warn!(module, %level, lines, latest_source, "log lines left out");
            }
        }
    }
}

/// A valid filter of log lines in the syntax of [`EnvFilter`]: `info`, or `info,smc_server::xds=debug`.
#[derive(Debug, Clone)]
pub(crate) struct LogLevel(String);

/// What is not logged of a library unless a person names the library.
const QUIET: [(&str, &str); 3] = [
    // It warns of every heartbeat to a replica that is down, twenty times a second; `smc cluster status`
    // shows that replica. Each call that is open when Raft stops, as at the end of a process, is an error of
    // `openraft::raft`, which its caller gets as well.
    ("openraft", "openraft=error,openraft::raft=off"),
    // It warns of frames that its peer should not send. That costs the peer 17 bytes each, and no person can
    // do anything about it.
    ("h2", "h2=error"),
    // It warns of an answer that it cannot read, with all objects in it. Its callers log the failure.
    ("kube_client", "kube_client=error"),
];

impl LogLevel {
    /// Whether it has a directive for this target as a whole.
    fn names(&self, target: &str) -> bool {
        self.0.split(',').any(|directive| directive.split('=').next().map(str::trim) == Some(target))
    }

    /// The directives, those of the default first.
    fn filter(&self) -> String {
        let quiet = QUIET.iter().filter(|(library, _)| !self.0.contains(library));
        quiet.map(|(_, directives)| *directives).chain([self.0.as_str()]).collect::<Vec<_>>().join(",")
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
    fn a_library_that_logs_too_much_is_quiet_unless_it_is_named() {
        let filter = |level: &str| level.parse::<LogLevel>().unwrap().filter();
        assert_eq!(filter("info"), "openraft=error,openraft::raft=off,h2=error,kube_client=error,info");
        assert_eq!(filter("debug,openraft=info"), "h2=error,kube_client=error,debug,openraft=info");
        assert_eq!(filter("openraft=off,h2=warn,kube_client=off"), "openraft=off,h2=warn,kube_client=off");
    }
}
