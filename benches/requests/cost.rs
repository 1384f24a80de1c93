//! Owns the loads: the same client and server through two sidecars and through the minimal Envoys, in turns.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use smc_benches::processor_time::ProcessorTime;
use smc_benches::{Result, percentile, rounded};
use smc_lab::tools::LoadResult;
use smc_lab::{Lab, LabHandle, LabOptions};
use tokio::task::JoinSet;

use crate::minimal;
use crate::pair::Pair;

/// A caller and a server in the mesh, with a policy for each protocol, and another pair outside of it.
const MESH: &str = include_str!("mesh.yaml");

/// How long the first request through the mesh may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Http1,
    /// The same requests, where the minimal Envoys speak HTTP/2 to each other.
    #[value(name = "http1over2")]
    Http1Over2,
    Http2,
    Grpc,
    Tcp,
}

/// How often, and how long each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    pub(crate) rounds: u32,
    pub(crate) each: Duration,
}

/// One of the two ways to the server.
struct Way<'a> {
    pod: &'a str,
    pair: &'a Pair,
    args: Vec<String>,
}

/// What came of the turns of one way.
#[derive(Debug, Default)]
struct Sum {
    requests: u64,
    failures: u64,
    seconds: f64,
    used: [ProcessorTime; 2],
    p50: Vec<Duration>,
    p99: Vec<Duration>,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http1Over2 => "http1over2",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
            Self::Tcp => "tcp",
        }
    }

    /// The arguments of `smc-lab load` for the mesh, and for the caller's minimal Envoy.
    fn args(self) -> [Vec<String>; 2] {
        let (mesh, port, scheme, path, flags): (_, _, _, _, &[&str]) = match self {
            Self::Http1 => ("web.bench", minimal::HTTP1, "http", "/ok", &[]),
            Self::Http1Over2 => ("web.bench", minimal::HTTP1_OVER_2, "http", "/ok", &[]),
            Self::Http2 => ("web.bench", minimal::HTTP2, "http", "/ok", &["--http2"]),
            Self::Grpc => ("web.bench:90", minimal::HTTP2, "http", "/echo.Echo/Say", &["--grpc"]),
            Self::Tcp => ("web.bench:7000", minimal::TCP, "tcp", "", &[]),
        };
        [mesh.to_owned(), format!("127.0.0.1:{port}")].map(|authority| {
            let url = format!("{scheme}://{authority}{path}");
            ["--url", &url, "--body", "hello"].iter().chain(flags).map(|&arg| arg.to_owned()).collect()
        })
    }
}

/// Measures each protocol with each number of connections.
pub(crate) async fn measure(protocols: &[Protocol], connections: &[u16], turns: Turns) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("mesh.yaml"), MESH)?;
    let lab = Lab::start(LabOptions::new(directory.path())).await?;
    let mut ends = JoinSet::new();
    let floor = minimal::start(&lab, &mut ends).await?;
    let sidecars = Pair::find("caller.bench", "web.bench")?;
    for protocol in protocols {
        answers(&lab, &protocol.args()[0]).await?;
    }
    let mut figures = Map::new();
    for &protocol in protocols {
        for &count in connections {
            let [mesh, minimal] = protocol.args();
            let ways = [
                Way { pod: "bench/caller", pair: &sidecars, args: mesh },
                Way { pod: "minimal/caller", pair: &floor, args: minimal },
            ];
            let mut sums = [Sum::default(), Sum::default()];
            for _ in 0..turns.rounds {
                for (way, sum) in ways.iter().zip(&mut sums) {
                    sum.add(way, &lab, count, turns.each).await?;
                }
            }
            let [mesh, floor] = sums;
            let figure = json!({
                "sidecars": mesh.figures(),
                "minimal": floor.figures(),
                "cpu_ratio": ratio(mesh.cpu_us(), floor.cpu_us()),
                "p50_ratio": ratio(percentile(&mesh.p50, 50).as_secs_f64(), percentile(&floor.p50, 50).as_secs_f64()),
            });
            figures.insert(format!("{}_{count}", protocol.name()), figure);
        }
    }
    lab.stop().await?;
    Ok(Value::Object(figures))
}

/// Waits until the policy is in effect.
async fn answers(lab: &LabHandle, args: &[String]) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let result = load(lab, "bench/caller", args, 1, Duration::from_millis(200)).await?;
        if result.failures == 0 {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            return Err(format!("{args:?}: {result:?}").into());
        }
    }
}

async fn load(
    lab: &LabHandle,
    pod: &str,
    args: &[String],
    connections: u16,
    duration: Duration,
) -> Result<LoadResult> {
    let (connections, duration) = (connections.to_string(), format!("{}ms", duration.as_millis()));
    let mut all: Vec<&str> = args.iter().map(String::as_str).collect();
    all.extend(["--connections", &connections, "--duration", &duration]);
    Ok(lab.load(pod, &all).await?)
}

impl Sum {
    async fn add(&mut self, way: &Way<'_>, lab: &LabHandle, connections: u16, each: Duration) -> Result<()> {
        let before = way.pair.used()?;
        let result = load(lab, way.pod, &way.args, connections, each).await?;
        let after = way.pair.used()?;
        for ((sum, after), before) in self.used.iter_mut().zip(after).zip(before) {
            *sum += after.since(before);
        }
        self.requests += result.requests;
        self.failures += result.failures;
        self.seconds += each.as_secs_f64();
        self.p50.push(Duration::from_micros(result.p50_us));
        self.p99.push(Duration::from_micros(result.p99_us));
        Ok(())
    }

    /// The processor time of both for a request, in microseconds.
    fn cpu_us(&self) -> f64 {
        self.used.iter().map(|used| self.each_us(used.total())).sum()
    }

    fn each_us(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / float(self.requests.max(1))
    }

    fn figures(&self) -> Value {
        let envoy = |used: ProcessorTime| json!({"user_us": rounded(self.each_us(used.user)), "system_us": rounded(self.each_us(used.system))});
        let [caller, server] = self.used;
        json!({
            "requests_per_second": rounded(float(self.requests) / self.seconds),
            "failures": self.failures,
            "p50_us": percentile(&self.p50, 50).as_micros(),
            "p99_us": percentile(&self.p99, 50).as_micros(),
            "caller": envoy(caller),
            "server": envoy(server),
        })
    }
}

/// Turns last seconds, so counts are far below the bound.
fn float(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

fn ratio(of: f64, to: f64) -> f64 {
    (of / to * 100.0).round() / 100.0
}
