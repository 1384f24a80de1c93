//! The one task that owns the compiler: takes what sources and the certificate authority say, publishes worlds.
//!
//! Owns the order of things: inputs are applied in batches, a world is published only after the sources have
//! synced, and questions about the catalog are answered between two batches, so that an answer is never
//! half of one state and half of another. What proxies wait for comes first: a change is published before anything
//! looks at the whole mesh because of it. Refuses to decide what a change means.

use std::sync::Arc;
use std::time::Duration;

use smc_mesh::ids::ServiceAccountId;
use smc_mesh::pki::{ServiceCertificate, TrustBundle, WantedCertificates};
use smc_mesh::problem::Problem;
use smc_mesh::translate::{Compiler, Input};
use smc_mesh::world::World;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::sources::Batch;
use crate::telemetry::Metrics;

/// Batches or certificates applied in one go. While one recomputation runs others queue up; taking them
/// together costs one publication instead of many. Bounded so that a flood cannot hold back the news for ever.
const MAX_TOGETHER: usize = 256;

/// Questions that wait. They come from the administration's few callers; more than this must wait there.
const MAX_QUESTIONS: usize = 16;

/// How long after a change the problems of the mesh are gathered. It looks at every object, and changes come in
/// bursts; a person who looks at a metric or a log does not miss a second.
const PROBLEMS_AFTER: Duration = Duration::from_secs(1);

/// A question about the state of the mesh, with its way back built in.
type Question = Box<dyn FnOnce(&Mesh) + Send>;

/// What questions are asked of.
pub(crate) struct Mesh {
    /// The compiler, with the catalog.
    pub(crate) compiler: Compiler,
    /// What the sources could not read.
    source_problems: Vec<Problem>,
}

impl Mesh {
    /// What is wrong with the declared mesh, sorted.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.source_problems.clone();
        problems.extend(self.compiler.problems());
        problems.sort();
        problems.dedup();
        problems
    }
}

/// The publisher has ended, because the replica is shutting down.
#[derive(Debug, Error)]
#[error("the replica is shutting down")]
pub(crate) struct Gone;

/// Asks the publisher. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ask(mpsc::Sender<Question>);

impl Ask {
    /// Runs `question` between two batches. It must be quick: no world is published meanwhile.
    pub(crate) async fn about<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Mesh) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        let ask = Box::new(move |mesh: &Mesh| {
            // Whoever asked may have gone away meanwhile.
            let _ = answer.send(question(mesh));
        });
        self.0.send(ask).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }
}

/// Where inputs come from.
pub(crate) struct Inputs {
    /// What the sources saw.
    pub(crate) batches: mpsc::Receiver<Batch>,
    /// Service certificates, new or renewed; `None` of an identity that has gone.
    pub(crate) certificates: mpsc::Receiver<(ServiceAccountId, Option<ServiceCertificate>)>,
    /// The roots that are trusted.
    pub(crate) bundle: watch::Receiver<TrustBundle>,
}

/// See the module.
pub(crate) struct Publisher {
    mesh: Mesh,
    inputs: Inputs,
    questions: mpsc::Receiver<Question>,
    worlds: watch::Sender<Option<Arc<World>>>,
    wanted: watch::Sender<WantedCertificates>,
    synced: bool,
    /// When the problems are to be gathered, once a change may have brought or solved some.
    problems_due: Option<Instant>,
    /// What was logged last.
    reported: Vec<Problem>,
    metrics: Metrics,
}

impl Publisher {
    /// A publisher that has published nothing. `worlds` takes the worlds, `wanted` the identities that need
    /// a certificate, and for how long.
    pub(crate) fn new(
        compiler: Compiler,
        inputs: Inputs,
        worlds: watch::Sender<Option<Arc<World>>>,
        wanted: watch::Sender<WantedCertificates>,
        metrics: Metrics,
    ) -> (Self, Ask) {
        let (ask, questions) = mpsc::channel(MAX_QUESTIONS);
        let mesh = Mesh { compiler, source_problems: Vec::new() };
        let publisher = Self {
            mesh,
            inputs,
            questions,
            worlds,
            wanted,
            synced: false,
            problems_due: None,
            reported: Vec::new(),
            metrics,
        };
        (publisher, Ask(ask))
    }

    /// Runs until `shutdown`, or until a source or the certificate authority has gone away.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut batches = Vec::new();
        let mut certificates = Vec::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(question) = self.questions.recv() => {
                    question(&self.mesh);
                    continue;
                }
                () = until(self.problems_due) => {
                    self.report_problems();
                    continue;
                }
                changed = self.inputs.bundle.changed() => if changed.is_err() { return },
                count = self.inputs.batches.recv_many(&mut batches, MAX_TOGETHER) => if count == 0 { return },
                count = self.inputs.certificates.recv_many(&mut certificates, MAX_TOGETHER) => {
                    if count == 0 { return }
                }
            }
            self.take(&mut batches, &mut certificates);
        }
    }

    /// Applies what came in, publishes what follows from it, and then sees to the rest.
    fn take(
        &mut self,
        batches: &mut Vec<Batch>,
        certificates: &mut Vec<(ServiceAccountId, Option<ServiceCertificate>)>,
    ) {
        let began = Instant::now();
        let from_sources = !batches.is_empty();
        // First, so that nobody is sent a certificate before the root that others are to believe it by.
        let mut inputs = vec![Input::Bundle(self.inputs.bundle.borrow_and_update().clone())];
        for batch in batches.drain(..) {
            inputs.extend(batch.events.into_iter().map(Input::Source));
            self.mesh.source_problems = batch.problems;
            self.synced |= batch.synced;
        }
        inputs.extend(certificates.drain(..).map(|(account, issued)| match issued {
            Some(certificate) => Input::Certificate(account, certificate),
            None => Input::NoCertificate(account),
        }));
        let changed = self.mesh.compiler.apply(inputs);
        self.publish(changed);
        self.metrics.recomputed(began.elapsed());
        if from_sources {
            self.want_certificates();
            // Not put off by what comes later, or a mesh that never rests would never be reported on.
            self.problems_due.get_or_insert(began + PROBLEMS_AFTER);
        }
    }

    fn publish(&self, changed: bool) {
        if !self.synced {
            return;
        }
        let first = self.worlds.borrow().is_none();
        if first || changed {
            let world = self.mesh.compiler.world();
            debug!(generation = world.generation, proxies = world.proxies.len(), "world published");
            if first {
                info!(proxies = world.proxies.len(), "sources synced");
            }
            self.worlds.send_replace(Some(world));
        }
    }

    /// Tells the certificate authority which identities are in the mesh, and what MeshConfig says of lifetimes, if
    /// either has changed.
    fn want_certificates(&self) {
        let catalog = self.mesh.compiler.catalog();
        let lifetime = catalog.mesh_config().service_cert_validity;
        self.wanted.send_if_modified(|wanted| {
            let differ = wanted.lifetime != lifetime || !catalog.accounts().eq(&wanted.accounts);
            if differ {
                *wanted = WantedCertificates { accounts: catalog.accounts().cloned().collect(), lifetime };
            }
            differ
        });
    }

    /// Counts the problems, and logs that there are some when they are others than before.
    fn report_problems(&mut self) {
        self.problems_due = None;
        let problems = self.mesh.problems();
        self.metrics.problems(&problems);
        if problems == self.reported {
            return;
        }
        if problems.is_empty() {
            info!("the declared mesh has no problems any more");
        } else {
            warn!(count = problems.len(), "the declared mesh has problems; see `smc mesh problems`");
        }
        self.reported = problems;
    }
}

/// Waits until `due`, or for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use smc_mesh::catalog::SourceEvent;
    use smc_mesh::ids::TrustDomain;
    use smc_mesh::translate::Settings;

    use super::*;
    use crate::sources::manifest;

    struct Parts {
        publisher: Publisher,
        worlds: watch::Receiver<Option<Arc<World>>>,
        wanted: watch::Receiver<WantedCertificates>,
        metrics: Metrics,
    }

    fn parts() -> Parts {
        let compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
        let bundle = watch::channel(TrustBundle { pem: "roots".to_owned() }).1;
        let inputs = Inputs { batches: mpsc::channel(1).1, certificates: mpsc::channel(1).1, bundle };
        let (world_sender, worlds) = watch::channel(None);
        let (wanted_sender, wanted) = watch::channel(WantedCertificates::default());
        let metrics = Metrics::new();
        let (publisher, _) = Publisher::new(compiler, inputs, world_sender, wanted_sender, metrics.clone());
        Parts { publisher, worlds, wanted, metrics }
    }

    /// A batch of what a file declares.
    fn batch(text: &str) -> Batch {
        let manifest::Manifest { declarations, problems, .. } = manifest::read("a.yaml", text.as_bytes());
        let objects = declarations.iter().filter_map(|declaration| declaration.object.clone());
        Batch { events: objects.map(SourceEvent::Upsert).collect(), problems, synced: true }
    }

    /// A namespace of the mesh with one pod of this service account.
    fn pod_of(account: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: shop, \
             labels: {{openservicemesh.io/monitored-by: osm}}}}}}\n\
             ---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {account}, namespace: shop}}}}\n\
             ---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {account}, namespace: shop, \
             labels: {{app: a}}}}, spec: {{serviceAccountName: {account}, containers: [{{name: app}}]}}, \
             status: {{podIPs: [{{ip: 10.0.0.1}}]}}}}\n"
        )
    }

    #[test]
    fn a_world_is_published_before_the_whole_mesh_is_searched_for_problems() {
        let Parts { mut publisher, worlds, metrics, .. } = parts();
        publisher.take(&mut vec![batch("--- [\n")], &mut Vec::new());
        assert!(worlds.borrow().is_some());
        assert!(!metrics.text().contains("smc_problems{"), "{}", metrics.text());
        let due = publisher.problems_due.unwrap();
        publisher.take(&mut vec![batch("--- [\n")], &mut Vec::new());
        assert_eq!(publisher.problems_due, Some(due), "not put off");
        publisher.report_problems();
        assert!(metrics.text().contains("smc_problems{severity=\"error\"} 1"), "{}", metrics.text());
        assert_eq!(publisher.problems_due, None);
    }

    #[test]
    fn what_certificates_are_wanted_is_told_when_it_changes_and_not_otherwise() {
        let Parts { mut publisher, mut wanted, .. } = parts();
        for (text, told) in [
            (pod_of("a"), true),
            (
                pod_of("a") + "---\n{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}}\n",
                false,
            ),
            (pod_of("b"), true),
        ] {
            publisher.take(&mut vec![batch(&text)], &mut Vec::new());
            assert_eq!(wanted.has_changed().unwrap(), told, "{text}");
            wanted.mark_unchanged();
        }
        let names: Vec<_> = wanted.borrow().accounts.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["shop/a", "shop/b"]);
    }

    #[tokio::test]
    async fn problems_are_reported_although_nothing_else_happens() {
        let Parts { mut publisher, metrics, .. } = parts();
        let (batches, receiver) = mpsc::channel(1);
        let (_certificates, certificates) = mpsc::channel(1);
        let (_trusted, bundle) = watch::channel(TrustBundle { pem: "roots".to_owned() });
        publisher.inputs = Inputs { batches: receiver, certificates, bundle };
        batches.send(batch("--- [\n")).await.unwrap();
        let shutdown = CancellationToken::new();
        let reported = async {
            while !metrics.text().contains("smc_problems{severity=\"error\"} 1") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = publisher.run(shutdown) => panic!("the publisher ended"),
            reported = tokio::time::timeout(Duration::from_secs(20), reported) => reported.unwrap(),
        }
    }
}
