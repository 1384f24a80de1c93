//! A controller with many connected proxies: what a change costs, and how long it takes, where one in a
//! hundred proxies sees it and where all do.

use std::sync::Arc;
use std::time::Duration;

use smc_benches::bootstraps::credentials;
use smc_benches::mesh::Mesh;
use smc_benches::proxies::{Event, Held, Proxy, next};
use smc_benches::{Result, percentile_ms};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{start, write_pod};

/// Proxies that connect at once. They try once: of 10,000, some would wait for their handshake until the
/// controller ends it.
const CONNECTING: usize = 1000;

/// The figures for one number of proxies.
pub(crate) struct Push {
    connect_all: Duration,
    rss_idle_kib: u64,
    rss_per_proxy_kib: f64,
    /// Changes that few proxies see.
    few: Changes,
    /// Changes that all see.
    all: Changes,
}

/// Changes of the same kind.
#[derive(Default)]
struct Changes {
    converged: Vec<Duration>,
    /// Processor time of the controller.
    cpu: Duration,
    /// Of the responses.
    bytes: usize,
    /// How many proxies saw a change, of all changes together.
    seen: usize,
}

impl Changes {
    /// The processor time for a proxy that sees a change, in µs.
    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / count(self.seen)
    }
}

#[expect(clippy::cast_precision_loss, reason = "some million pushes are exact")]
fn count(number: usize) -> f64 {
    number.max(1) as f64
}

impl Push {
    /// Each figure with its key.
    pub(crate) fn figures(&self) -> Vec<(&'static str, f64)> {
        #[expect(clippy::cast_precision_loss, reason = "a few GiB are exact")]
        let rss_idle_kib = self.rss_idle_kib as f64;
        vec![
            ("connect_all_ms", self.connect_all.as_secs_f64() * 1e3),
            ("rss_idle_kib", rss_idle_kib),
            ("rss_per_proxy_kib", self.rss_per_proxy_kib),
            ("converged_p50_ms", percentile_ms(&self.few.converged, 50)),
            ("converged_p99_ms", percentile_ms(&self.few.converged, 99)),
            ("converged_all_p50_ms", percentile_ms(&self.all.converged, 50)),
            ("converged_all_p99_ms", percentile_ms(&self.all.converged, 99)),
            ("push_cpu_us", self.few.cpu_us()),
            ("push_bytes", count(self.few.bytes) / count(self.few.seen)),
            ("push_all_cpu_us", self.all.cpu_us()),
            ("push_all_bytes", count(self.all.bytes) / count(self.all.seen)),
        ]
    }
}

/// Connects every proxy of the mesh, and changes the readiness of single pods.
pub(crate) async fn measure(mesh: Mesh, changes: usize) -> Result<Push> {
    let directory = tempfile::tempdir()?;
    let (mesh_dir, controller) = start(mesh, directory.path())?;
    let proxies: Vec<usize> = (0..mesh.proxies).collect();
    let credentials = credentials(controller.client().await?, mesh, &proxies).await?;
    let rss_idle_kib = controller.memory_kib("VmRSS")?;

    let (events, mut received) = mpsc::channel(1024);
    let mut streams = JoinSet::new();
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let began = Instant::now();
    for (p, credentials) in credentials.into_iter().enumerate() {
        let events = events.clone();
        let turns = Arc::clone(&turns);
        streams.spawn(async move {
            let turn = turns.acquire().await?;
            let proxy = Proxy::connect(p, credentials).await?;
            drop(turn);
            proxy.run(events).await
        });
    }
    let mut complete = 0;
    while complete < mesh.proxies {
        complete += usize::from(matches!(next(&mut received, &mut streams).await?, Event::Complete));
    }
    let connect_all = began.elapsed();
    let rss = controller.memory_kib("VmRSS")?;

    let mut kinds = [Changes::default(), Changes::default()];
    for (kind, figures) in kinds.iter_mut().enumerate() {
        let before = controller.thread_time()?;
        for change in 0..changes {
            // A pod of the hub is seen by all. Any other is in a service of its own turn.
            let p = if kind == 1 { 0 } else { 1 + (change * 7) % (mesh.services.min(mesh.proxies) - 1) };
            let prefix = format!("{}|", mesh.service(mesh.service_of(p))?);
            let callers = mesh.callers(mesh.service_of(p));
            let watches = |other: usize| callers.contains(&mesh.service_of(other));
            for ready in [false, true] {
                let mut waiting: Vec<bool> = (0..mesh.proxies).map(watches).collect();
                let mut left = waiting.iter().filter(|waits| **waits).count();
                figures.seen += left;
                let start = write_pod(&mesh_dir, mesh, p, ready)?;
                let mut last = start;
                while left > 0 {
                    let Event::Endpoints(Held { proxy, name, bytes, at }) =
                        next(&mut received, &mut streams).await?
                    else {
                        continue;
                    };
                    if name.starts_with(&prefix)
                        && let Some(waits) = waiting.get_mut(proxy)
                        && std::mem::take(waits)
                    {
                        left -= 1;
                        last = last.max(at);
                        figures.bytes += bytes;
                    }
                }
                figures.converged.push(last - start);
            }
        }
        // The last acknowledgements.
        sleep(Duration::from_millis(200)).await;
        figures.cpu = controller.thread_time()?.saturating_sub(before);
    }
    streams.shutdown().await;
    controller.kill().await?;
    #[expect(clippy::cast_precision_loss, reason = "a few GiB are exact")]
    let rss_per_proxy_kib = rss.saturating_sub(rss_idle_kib) as f64 / count(mesh.proxies);
    let [few, all] = kinds;
    Ok(Push { connect_all, rss_idle_kib, rss_per_proxy_kib, few, all })
}
