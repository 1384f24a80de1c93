//! Owns `smc-lab load`: connections that each send one request after the other for a while, and what the
//! requests took.

use std::io;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use smc_types::duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fetch::{Client, RequestArgs};
use super::tcp;
use crate::LabError;

/// The most connections of one client: each has a task and a socket.
const MAX_CONNECTIONS: u16 = 1024;

/// The most requests of one connection, so that their times take some MiB.
const MAX_REQUESTS: usize = 1_000_000;

/// Flags of `smc-lab load`.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Connections at a time. Each has one request under way.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS)))]
    connections: u16,
    /// How long to go on.
    #[arg(long, default_value = "5s", value_parser = duration::parse)]
    duration: Duration,
}

/// What came of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Requests with an answer, of a status below 400 where there is one.
    pub requests: u64,
    /// Requests without one.
    pub failures: u64,
    /// Half of the answers took no longer than this, in microseconds.
    pub p50_us: u64,
    /// 99 of 100 took no longer than this.
    pub p99_us: u64,
    /// Why a request failed, if one did.
    pub error: Option<String>,
}

/// Sends requests until the time is over. Only invalid arguments are an `Err`.
pub async fn load(args: &LoadArgs) -> Result<LoadResult, LabError> {
    let end = Instant::now() + args.duration;
    let mut connections = JoinSet::new();
    for _ in 0..args.connections {
        let mut connection = Connection::new(&args.request)?;
        connections.spawn(async move {
            let (mut times, mut failures, mut error) = (Vec::new(), 0, None);
            while Instant::now() < end && times.len() + failures < MAX_REQUESTS {
                let start = Instant::now();
                match connection.ask().await {
                    Ok(()) => times.push(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)),
                    Err(failed) => (failures, error) = (failures + 1, Some(failed)),
                }
            }
            (times, failures, error)
        });
    }
    let (mut times, mut failures, mut error) = (Vec::new(), 0, None);
    for (more, failed, why) in connections.join_all().await {
        times.extend(more);
        failures += failed;
        error = error.or(why);
    }
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    Ok(LoadResult {
        requests: times.len() as u64,
        failures: failures as u64,
        p50_us: at(50),
        p99_us: at(99),
        error,
    })
}

enum Connection {
    Http(Box<Client>),
    Lines { address: String, line: String, timeout: Duration, stream: Option<BufReader<TcpStream>> },
}

impl Connection {
    fn new(args: &RequestArgs) -> Result<Self, LabError> {
        match (args.url.scheme_str(), args.url.authority()) {
            (Some("tcp"), Some(authority)) => Ok(Self::Lines {
                address: authority.to_string(),
                line: format!("{}\n", args.body),
                timeout: args.timeout,
                stream: None,
            }),
            _ => Client::new(args).map(Box::new).map(Self::Http),
        }
    }

    async fn ask(&mut self) -> Result<(), String> {
        match self {
            Self::Http(client) => {
                let result = client.fetch().await;
                // A refusal of gRPC has no body, and its status in the headers.
                let grpc = [&result.trailers, &result.headers]
                    .into_iter()
                    .find_map(|fields| fields.get("grpc-status"));
                match (result.error, result.status) {
                    (Some(error), _) => Err(error),
                    (None, Some(status)) if status < 400 && grpc.is_none_or(|status| status == "0") => Ok(()),
                    (None, status) => Err(format!("status {status:?}, grpc-status {grpc:?}")),
                }
            }
            Self::Lines { address, line, timeout, stream } => {
                let said = tokio::time::timeout(*timeout, say(stream, address, line)).await;
                let said = said.unwrap_or_else(|_| Err(super::timeout()));
                if said.is_err() {
                    *stream = None;
                }
                said.map_err(|error| error.to_string())
            }
        }
    }
}

async fn say(stream: &mut Option<BufReader<TcpStream>>, address: &str, line: &str) -> io::Result<()> {
    let stream = match stream {
        Some(stream) => stream,
        none => {
            let connected = super::connect(address).await?;
            connected.set_nodelay(true)?;
            none.insert(BufReader::new(connected))
        }
    };
    stream.write_all(line.as_bytes()).await?;
    tcp::line(stream).await.map(drop)
}
