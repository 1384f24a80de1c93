//! What a mesh says of its own controllers.
//!
//! Owns the settings that take effect in replicas that run.

use std::num::NonZeroU32;

/// What each replica obeys. The default leaves all to its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaSettings {
    /// How many sidecars a replica serves at a time; `None` means as many as it may have connections.
    pub max_proxies: Option<NonZeroU32>,
    /// What a replica logs; `None` means what its flag says.
    pub log_level: Option<LogLevel>,
}

/// The least severe lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// None.
    Off,
    /// Errors.
    Error,
    /// Warnings.
    Warn,
    /// What happens.
    Info,
    /// What happens within.
    Debug,
    /// All.
    Trace,
}

impl LogLevel {
    /// Its name in a filter of log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}
