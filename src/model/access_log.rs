//! What sidecars log of requests and connections, and in which format.
//!
//! Owns the choice: all, failures, or none; and which collector is sent what is logged.

use std::sync::Arc;

use crate::declared::Declared;
use crate::log_format::{LogAttributes, LogFormat};
use crate::outside_server::ExtensionServer;

/// What the sidecar of a workload logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct AccessLog {
    /// Which requests and connections.
    pub logged: Logged,
    /// How a line is made; `None` for SMC's own fields.
    pub format: Option<Declared<LogFormat>>,
    /// The collector of OpenTelemetry to which all that is logged is sent as well.
    pub collector: Option<LogCollector>,
}

/// A collector of logs, and what is said to it besides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCollector {
    /// Where it is.
    pub server: Declared<Arc<ExtensionServer>>,
    /// The attributes of each record.
    pub attributes: Declared<LogAttributes>,
}

/// Which requests and connections sidecars log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Logged {
    /// Those that fail or are refused.
    #[default]
    Failures,
    /// Every one.
    All,
    /// None.
    Off,
}

impl Logged {
    /// The words for them, in the order of the variants. YAML reads `off` as a boolean, so it is none of
    /// them.
    pub const WORDS: [(&str, Self); 3] =
        [("failures", Self::Failures), ("all", Self::All), ("none", Self::Off)];

    /// The words, with commas between them.
    pub fn words() -> String {
        Self::WORDS.map(|(word, _)| word).join(", ")
    }

    /// Reads a word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, log)| *log)
    }
}
