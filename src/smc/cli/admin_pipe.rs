//! `smc admin-pipe`: connects the standard streams to the administration socket of this machine, for a caller
//! that reaches it through the API server of a cluster.

use std::path::PathBuf;

use clap::Args;
use thiserror::Error;
use tokio::io::{copy_bidirectional, join, stdin, stdout};
use tokio::net::UnixStream;

use super::outcome::{Outcome, Verdict};

/// The flag of `smc admin-pipe`.
#[derive(Debug, Args)]
pub(super) struct AdminPipeArgs {
    /// The controller's administration socket
    #[arg(long, value_name = "PATH", env = "SMC_ADMIN_SOCKET")]
    admin_socket: PathBuf,
}

/// The socket cannot be used.
#[derive(Debug, Error)]
#[error("cannot {action} the administration socket {}", path.display())]
struct PipeError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

pub(super) async fn run(args: AdminPipeArgs) -> Outcome {
    let path = args.admin_socket;
    let failed = |action| {
        let path = path.clone();
        move |source| PipeError { action, path, source }
    };
    let mut socket = UnixStream::connect(&path).await.map_err(failed("connect to"))?;
    let mut streams = join(stdin(), stdout());
    copy_bidirectional(&mut socket, &mut streams).await.map_err(failed("pass on"))?;
    Ok(Verdict::Ok)
}
