//! Owns `smc-lab tcp`: a TCP client that sends and reads lines.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use clap::Args;
use smc_types::duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::TcpResult;

/// Longest line of a server, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Flags of `smc-lab tcp`.
#[derive(Args, Clone, Debug)]
pub struct TcpArgs {
    /// HOST:PORT
    address: String,
    /// Wait for a line from the server before anything is sent.
    #[arg(long)]
    read_first: bool,
    /// Send this line, and wait for a line in reply.
    #[arg(long, value_name = "TEXT")]
    send: Option<String>,
    /// Send each line of standard input when it arrives, over one connection, and report each
    /// reply.
    #[arg(long, conflicts_with = "send")]
    stdin: bool,
    /// Time limit of each step.
    #[arg(long, default_value = "5s", value_parser = duration::parse)]
    timeout: Duration,
}

/// Runs the exchange and reports its result; with `--stdin` one result per line, and one more if
/// the connection fails. A failure is part of a result. Returns true if there was none.
pub async fn tcp(args: &TcpArgs, mut report: impl FnMut(&TcpResult)) -> bool {
    let mut result = TcpResult::default();
    let outcome = converse(args, &mut result, &mut report).await;
    if let Err(error) = &outcome {
        result.fail(error);
    }
    if outcome.is_err() || !args.stdin {
        report(&result);
    }
    outcome.is_ok()
}

async fn converse(
    args: &TcpArgs,
    result: &mut TcpResult,
    report: &mut impl FnMut(&TcpResult),
) -> io::Result<()> {
    let stream = step(args, "connect", super::connect(&args.address)).await?;
    result.connected = true;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    if args.read_first {
        result.greeting = Some(step(args, "read the greeting", line(&mut reader)).await?);
    }
    if args.stdin {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        let mut input = BufReader::new(tokio::fs::File::from_std(stdin.into())).lines();
        while let Some(text) = input.next_line().await? {
            step(args, "send", writer.write_all(format!("{text}\n").as_bytes())).await?;
            result.reply = Some(step(args, "read the reply", line(&mut reader)).await?);
            report(result);
            (result.greeting, result.reply) = (None, None);
        }
    } else if let Some(text) = &args.send {
        step(args, "send", writer.write_all(format!("{text}\n").as_bytes())).await?;
        result.reply = Some(step(args, "read the reply", line(&mut reader)).await?);
    }
    if !args.read_first && args.send.is_none() && !args.stdin {
        // Nothing to send: checks whether the server keeps the connection open.
        match tokio::time::timeout(Duration::from_millis(300), line(&mut reader)).await {
            Ok(Ok(greeting)) => result.greeting = Some(greeting),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

async fn step<T>(args: &TcpArgs, what: &str, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let outcome = tokio::time::timeout(args.timeout, future).await;
    let outcome = outcome.unwrap_or_else(|_| Err(super::timeout()));
    outcome.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
}

/// The next line, without its end. One that is too long comes in parts.
pub(super) async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    if reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
