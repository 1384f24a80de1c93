//! The level of log lines in force.
//!
//! Owns what the mesh changes of it while the process runs.

use smc_model::replica_settings::{LogLevel, ReplicaSettings};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::LogLevel as Flag;

/// What is logged, which the mesh may change while the process runs.
#[derive(Debug)]
pub struct LevelInForce {
    flag: Flag,
    handle: reload::Handle<EnvFilter, Registry>,
}

impl LevelInForce {
    /// The level of this flag, until the mesh says otherwise, with the layer that has it.
    pub(super) fn of_flag(flag: Flag) -> (reload::Layer<EnvFilter, Registry>, Self) {
        let (filter, handle) = reload::Layer::new(EnvFilter::new(flag.filter()));
        (filter, Self { flag, handle })
    }

    /// Obeys `observability.osmLogLevel` as it changes.
    pub async fn follow(self, mut settings: watch::Receiver<ReplicaSettings>, stopping: CancellationToken) {
        let mut in_force = None;
        loop {
            let wanted = settings.borrow_and_update().log_level;
            if wanted != in_force {
                in_force = wanted;
                self.set(wanted);
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                changed = settings.changed() => if changed.is_err() { return stopping.cancelled().await },
            }
        }
    }

    fn set(&self, wanted: Option<LogLevel>) {
        let level = wanted.map_or("that of the flag", LogLevel::name);
        // Said before and after, so that a reader sees it at whichever level logs more.
        info!(level, "the MeshConfig changes the log level");
        if let Err(error) = self.handle.reload(EnvFilter::new(filter_of(&self.flag, wanted))) {
            warn!(%error, "cannot change the log level");
        }
        info!(level, "the MeshConfig has changed the log level");
    }
}

/// The filter of a flag with this level in its place. Modules that the flag names keep theirs. More than
/// `info` is of SMC alone: libraries log the traffic of others.
fn filter_of(flag: &Flag, wanted: Option<LogLevel>) -> String {
    let wanted = match wanted {
        None => return flag.filter(),
        // Without what is logged of libraries by default.
        Some(LogLevel::Off) => return format!("{},off", flag.0),
        Some(wanted) => wanted,
    };
    let libraries = wanted.min(LogLevel::Info).name();
    let own = if flag.names("smc") { String::new() } else { format!(",smc={}", wanted.name()) };
    format!("{},{libraries}{own}", flag.filter())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use smc_host::sync::lock;

    use super::*;
    use crate::log_args::line::tests::Written;
    use crate::log_args::{LogArgs, LogFormat};

    #[test]
    fn the_mesh_changes_what_smc_logs_and_the_flag_holds_again_after_it() {
        let all = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (flag, wanted, expected) in [
            ("info", None, "smc/info smc/warn lib/info lib/warn named/info named/warn h2/error"),
            (
                "info",
                Some(LogLevel::Debug),
                "smc/debug smc/info smc/warn lib/info lib/warn named/debug named/info named/warn h2/error",
            ),
            ("info", Some(LogLevel::Warn), "smc/warn lib/warn named/warn h2/error"),
            ("info", Some(LogLevel::Off), ""),
            ("info,smc_named=warn", Some(LogLevel::Off), "named/warn"),
            ("info,smc=warn", Some(LogLevel::Debug), "smc/warn lib/info lib/warn named/warn h2/error"),
            ("debug", Some(LogLevel::Warn), "smc/warn lib/warn named/warn h2/error"),
            ("warn", None, "smc/warn lib/warn named/warn h2/error"),
            ("info,smc_named=debug", Some(LogLevel::Error), "named/debug named/info named/warn h2/error"),
            (
                "info,smc_named=warn",
                Some(LogLevel::Debug),
                "smc/debug smc/info smc/warn lib/info lib/warn named/warn h2/error",
            ),
        ] {
            let args = LogArgs { log_level: flag.parse().unwrap(), log_format: LogFormat::Text };
            let (logged, budgets) = (Written::default(), Arc::default());
            let writer = logged.clone();
            let (subscriber, level) = args.subscriber(move || writer.clone(), false, &budgets);
            let lines = || {
                lock(&logged.0).clear();
                tracing::debug!(target: "smc_xds", "=smc/debug");
                tracing::info!(target: "smc_xds", "=smc/info");
                tracing::warn!(target: "smc_xds", "=smc/warn");
                tracing::debug!(target: "hyper", "=lib/debug");
                tracing::info!(target: "hyper", "=lib/info");
                tracing::warn!(target: "hyper", "=lib/warn");
                tracing::debug!(target: "smc_named", "=named/debug");
                tracing::info!(target: "smc_named", "=named/info");
                tracing::warn!(target: "smc_named", "=named/warn");
                tracing::error!(target: "h2", "=h2/error");
                let text = String::from_utf8(lock(&logged.0).clone()).unwrap();
                text.lines().filter_map(|line| Some(line.rsplit_once('=')?.1.to_owned())).collect::<Vec<_>>()
            };
            tracing::subscriber::with_default(subscriber, || {
                let before = lines();
                level.set(wanted);
                assert_eq!(lines(), all(expected), "{flag} {wanted:?}");
                level.set(None);
                assert_eq!(lines(), before, "{flag} {wanted:?}");
            });
        }
    }
}
