//! The demo: the bookstore applications in the lab, each behind a real Envoy, and a look at what policy does to them.
//!
//! Attended, it shows a live table and shifts the split while a person watches ([`live`]). Unattended (`--once`), it
//! watches, shifts, watches again, and judges what it saw against a table of what policy says ([`unattended`],
//! [`verdict`]). It never looks into the mesh to find out what should happen: the applications say what did.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::lab_stage::LabStage;
use self::screen::Screen;
use self::stage::{Stage, StageError};
use self::unattended::Plan;
use crate::lab::Variant;

pub mod convergence;
mod course;
pub mod expectation;
pub mod follow;
mod lab_stage;
mod live;
pub mod manifests;
pub mod report;
mod screen;
#[cfg(test)]
mod scripted_stage;
pub mod share;
pub mod stage;
pub mod table;
pub mod tally;
pub mod unattended;
pub mod verdict;

/// Time after the acknowledgement of a split before shares are counted. Calls give up after two seconds, and all but
/// the slowest take a few milliseconds.
const GRACE: Duration = Duration::from_secs(1);

/// The command line of `smc-lab demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Run without a person: watch, shift the split, watch again, print one JSON object, and succeed only if
    /// everything was as policy says.
    #[arg(long)]
    pub once: bool,
    /// With --once: seconds until every kind of call must have come out right.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub settle_seconds: u32,
    /// With --once: requests to the bookstore before and after the shift.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(400..=1_000_000))]
    pub window_requests: u32,
    /// With --once: seconds until each window must have its requests.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub window_seconds: u32,
    /// With --once: seconds until the shifted split must be acknowledged.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub converge_seconds: u32,
    /// Without --once: seconds to watch before the split shifts.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub shift_after: u32,
    /// The program under test; otherwise the one beside this one.
    #[arg(long)]
    pub smc: Option<PathBuf>,
    /// Envoy; otherwise SMC_ENVOY, then the one in PATH.
    #[arg(long)]
    pub envoy: Option<PathBuf>,
    /// The xDS variant the proxies speak.
    #[arg(long, value_enum, default_value_t)]
    pub variant: Variant,
    /// Keep the lab's logs and state at the end.
    #[arg(long)]
    pub keep: bool,
}

/// Why the demo could not be given. That policy was not kept is no error but an exit code.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The mesh could not be written to a directory.
    #[error("cannot write the demo mesh")]
    Manifests {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The lab could not do something.
    #[error("the lab failed")]
    Stage(#[from] StageError),
    /// The lab ended while we were watching.
    #[error("the lab ended before the demo did")]
    Ended,
    /// The controller's account of a proxy makes no sense.
    #[error("cannot tell what {proxy} has acknowledged")]
    ProxyConfig {
        /// Which proxy.
        proxy: &'static str,
        /// What was wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Standard output is gone.
    #[error("cannot write to standard output")]
    Output {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The report could not be written as JSON.
    #[error("cannot write the report")]
    Report {
        /// What was wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Signal handlers could not be installed.
    #[error("cannot install signal handlers")]
    Signal {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl DemoError {
    /// The error and everything it carries, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }
}

/// Starts the demo mesh in a lab, gives the demo, and ends the lab; also on Ctrl-C, on SIGTERM, and when the terminal
/// closes.
pub async fn demo(args: DemoArgs) -> Result<ExitCode, DemoError> {
    // Before there is anything to leave behind.
    let (mut interrupt, mut terminate, mut hang_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let end = CancellationToken::new();
    let given = async {
        let mesh = tempfile::tempdir().map_err(|source| DemoError::Manifests { source })?;
        manifests::write_to(mesh.path()).map_err(|source| DemoError::Manifests { source })?;
        // Given up while it starts, the lab ends with the future that starts it.
        let mut stage = tokio::select! {
            stage = LabStage::start(&args, mesh.path()) => stage?,
            () = end.cancelled() => return Ok(ExitCode::FAILURE),
        };
        // The lab has a copy, and a demo that is killed should leave as little as it can.
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
    // By itself now, and in order.
    given.await
}

fn listen(kind: SignalKind) -> Result<Signal, DemoError> {
    signal(kind).map_err(|source| DemoError::Signal { source })
}

/// Gives the demo on a stage that is up. Ends when the verdict is in, or else on `end`; the stage is left running for
/// its owner to stop.
///
/// Succeeds if attended, and unattended if everything was as policy says. An unattended demo that was cut short has not
/// shown anything, and fails.
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
