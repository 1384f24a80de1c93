//! Owns the demo: the bookstore applications in the lab, each behind a real Envoy, under a policy
//! that allows some of their calls.
//!
//! Attended, it shows a live table and shifts the split during the run ([`live`]). Unattended
//! (`--once`), it observes, shifts, observes again, and compares the observations with a table of
//! expected results ([`unattended`], [`verdict`]). Both end with a rolling upgrade of all replicas
//! ([`upgrade`]). The observations come from the applications' own
//! journals, not from the mesh.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use smc_lab::Variant;
use smc_types::causes::causes;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::lab_stage::LabStage;
use self::screen::Screen;
use self::stage::{Stage, StageError};
use self::unattended::Plan;

pub mod bookstore;
pub mod convergence;
pub mod expectation;
pub mod follow;
mod lab_stage;
mod live;
pub mod manifests;
pub mod report;
mod rolling;
mod screen;
#[cfg(test)]
mod scripted_stage;
pub mod share;
pub mod stage;
mod steps;
pub mod table;
pub mod tally;
pub mod unattended;
pub mod upgrade;
pub mod verdict;

/// Wait after the acknowledgement of a split before shares are counted. Calls time out after two
/// seconds, but nearly all take a few milliseconds.
const GRACE: Duration = Duration::from_secs(1);

/// The command line of `smc-demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Run unattended: observe, shift the split, observe again, print one JSON object, and exit
    /// with 0 only if every observation matches policy.
    #[arg(long)]
    pub once: bool,
    /// With --once: time limit in seconds until every kind of call has its expected result.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub settle_seconds: u32,
    /// With --once: requests to the bookstore before and after the shift.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(400..=1_000_000))]
    pub window_requests: u32,
    /// With --once: time limit in seconds for the requests of each window.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub window_seconds: u32,
    /// With --once: time limit in seconds for the acknowledgement of the shifted split.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub converge_seconds: u32,
    /// With --once: time limit in seconds for the rolling upgrade of all replicas.
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub upgrade_seconds: u32,
    /// Without --once: seconds before the split shifts.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub shift_after: u32,
    /// The `smc` program; by default the one in the directory of smc-demo.
    #[arg(long)]
    pub smc: Option<PathBuf>,
    /// The Envoy program; by default SMC_ENVOY, then envoy in PATH.
    #[arg(long)]
    pub envoy: Option<PathBuf>,
    /// The xDS variant the proxies use.
    #[arg(long, value_enum, default_value_t)]
    pub variant: Variant,
    /// Keep the lab's logs and state when the demo ends.
    #[arg(long)]
    pub keep: bool,
}

/// The reason why the demo could not run. A violation of policy is not an error, but an exit code.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The mesh could not be written to a directory.
    #[error("cannot write the demo mesh")]
    Manifests {
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// An operation of the lab failed.
    #[error("the lab failed")]
    Stage(#[from] StageError),
    /// The lab ended during the demo.
    #[error("the lab ended before the demo did")]
    Ended,
    /// The controller's output about a proxy could not be parsed.
    #[error("cannot tell what {proxy} has acknowledged")]
    ProxyConfig {
        /// Name of the proxy.
        proxy: &'static str,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// Standard output is closed.
    #[error("cannot write to standard output")]
    Output {
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The report could not be written as JSON.
    #[error("cannot write the report")]
    Report {
        /// The serializer's error.
        #[source]
        source: serde_json::Error,
    },
    /// Signal handlers could not be installed.
    #[error("cannot install signal handlers")]
    Signal {
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
}

impl DemoError {
    /// Returns the error and its causes on one line.
    pub fn chain(&self) -> String {
        causes(self)
    }
}

/// Starts the demo mesh in a lab, runs the demo, and ends the lab; also on Ctrl-C, SIGTERM and
/// SIGHUP (a closed terminal).
pub async fn demo(args: DemoArgs) -> Result<ExitCode, DemoError> {
    // Handlers come first, so that no signal can leave a lab behind.
    let (mut interrupt, mut terminate, mut hang_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let end = CancellationToken::new();
    let given = async {
        let mesh = tempfile::tempdir().map_err(|source| DemoError::Manifests { source })?;
        manifests::write_to(mesh.path()).map_err(|source| DemoError::Manifests { source })?;
        // Dropping the future of a lab that starts ends that lab.
        let mut stage = tokio::select! {
            stage = LabStage::start(&args, mesh.path()) => stage?,
            () = end.cancelled() => return Ok(ExitCode::FAILURE),
        };
        // The lab has a copy; without the directory, a killed demo leaves less behind.
        drop(mesh);
        let code = run_on(&args, &mut stage, &end).await;
        let stopped = stage.stop().await;
        let code = code?;
        stopped?;
        Ok(code)
    };
    tokio::pin!(given);
    tokio::select! {
        code = &mut given => return code,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    end.cancel();
    // After the cancellation `given` ends by itself, in order.
    given.await
}

fn listen(kind: SignalKind) -> Result<Signal, DemoError> {
    signal(kind).map_err(|source| DemoError::Signal { source })
}

/// Runs the demo on a running stage. Ends with the verdict or on `end`; the caller stops the stage.
///
/// Succeeds if attended, or if every observation matches policy. An unattended demo that is cut
/// short proves nothing, and fails.
#[expect(clippy::print_stdout, reason = "the report is what the command is for")]
pub async fn run_on(
    args: &DemoArgs,
    stage: &mut impl Stage,
    end: &CancellationToken,
) -> Result<ExitCode, DemoError> {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    if !args.once {
        let screen = Screen::standard_output().map_err(|source| DemoError::Output { source })?;
        live::run(stage, seconds(args.shift_after), end, screen).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = Plan {
        settle_max: seconds(args.settle_seconds),
        window_requests: args.window_requests.into(),
        window_max: seconds(args.window_seconds),
        converge_max: seconds(args.converge_seconds),
        upgrade_max: seconds(args.upgrade_seconds),
        grace: GRACE,
    };
    let report = tokio::select! {
        report = unattended::run(stage, &plan) => report?,
        () = end.cancelled() => return Ok(ExitCode::FAILURE),
    };
    let json = serde_json::to_string_pretty(&report).map_err(|source| DemoError::Report { source })?;
    println!("{json}");
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
