//! The edit of one file of many, as the few proxies see it that it concerns, and what it costs the
//! controller; and what the controller costs while nothing happens.
//!
//! Every file of the mesh is there, and only the callers of one service are connected: what is measured is
//! the way of the edit, and not the number of proxies.

use std::time::Duration;

use smc_benches::bootstraps::credentials;
use smc_benches::mesh::Mesh;
use smc_benches::proxies::{Event, Held, Proxy, next};
use smc_benches::{Result, percentile_ms};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{start, write_pod};

/// How long the controller is left alone for the figure of an idle one. It looks at the whole directory every
/// half minute, so that two such looks are in it.
const IDLE: Duration = Duration::from_mins(1);

/// The pause between two edits: an edit is to meet a controller at rest.
const PAUSE: Duration = Duration::from_millis(50);

/// The figures.
pub(crate) struct Edits {
    /// Proxies that are connected, each of which an edit concerns.
    pub(crate) watchers: usize,
    /// From the renaming of the file to the last proxy that holds the new endpoints.
    pub(crate) latencies: Vec<Duration>,
    /// What an edit costs the controller, with all that follows from it.
    pub(crate) cpu_per_edit: Duration,
    /// What the controller costs while nothing happens, in percent of one core.
    pub(crate) idle_percent: f64,
}

impl Edits {
    /// A percentile of the latencies, in milliseconds.
    pub(crate) fn latency_ms(&self, percent: usize) -> f64 {
        percentile_ms(&self.latencies, percent)
    }
}

/// Edits the pods behind service 0, one file at a time.
pub(crate) async fn measure(mesh: Mesh, edits: usize) -> Result<Edits> {
    let directory = tempfile::tempdir()?;
    let (mesh_dir, controller) = start(mesh, directory.path())?;
    let service = 0;
    let callers = mesh.callers(service);
    let watchers: Vec<usize> = (0..mesh.proxies).filter(|&p| callers.contains(&mesh.service_of(p))).collect();
    let (events, mut received) = mpsc::channel(1024);
    let mut streams = JoinSet::new();
    let credentials = credentials(controller.client().await?, mesh, &watchers).await?;
    for (&p, credentials) in watchers.iter().zip(credentials) {
        let events = events.clone();
        streams.spawn(async move { Proxy::connect(p, credentials).await?.run(events).await });
    }
    let mut complete = 0;
    while complete < watchers.len() {
        complete += usize::from(matches!(next(&mut received, &mut streams).await?, Event::Complete));
    }
    controller.at_rest().await?;
    let idle = controller.cpu()?;
    sleep(IDLE).await;
    let idle = controller.cpu()?.saturating_sub(idle);

    let prefix = format!("{}|", mesh.service(service)?);
    let pods: Vec<usize> = (0..mesh.proxies).filter(|&p| mesh.service_of(p) == service).collect();
    let (mut latencies, before) = (Vec::new(), controller.cpu()?);
    let mut ready = vec![true; pods.len()];
    for edit in 0..edits {
        // Each pod in turn, first not ready, then ready again.
        let index = edit % pods.len();
        let (Some(&p), Some(ready)) = (pods.get(index), ready.get_mut(index)) else { continue };
        *ready = !*ready;
        while received.try_recv().is_ok() {}
        let mut last = write_pod(&mesh_dir, mesh, p, *ready)?;
        let start = last;
        let mut waiting: std::collections::BTreeSet<usize> = watchers.iter().copied().collect();
        while !waiting.is_empty() {
            if let Event::Endpoints(Held { proxy, name, at, .. }) = next(&mut received, &mut streams).await?
                && name.starts_with(&prefix)
                && waiting.remove(&proxy)
            {
                last = last.max(at);
            }
        }
        latencies.push(last - start);
        sleep(PAUSE).await;
    }
    let cpu = controller.cpu()?.saturating_sub(before);
    streams.shutdown().await;
    controller.kill().await?;
    let count = u32::try_from(edits.max(1))?;
    let idle_percent = 100.0 * idle.as_secs_f64() / IDLE.as_secs_f64();
    Ok(Edits { watchers: watchers.len(), latencies, cpu_per_edit: cpu / count, idle_percent })
}
