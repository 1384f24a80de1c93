//! The one task that owns the compiler: takes what sources and the certificate authority say, publishes worlds.
//!
//! Owns the order of things: inputs are applied in batches, a world is published only after the sources have
//! synced, and questions about the catalog are answered between two batches, so that an answer is never
//! half of one state and half of another. Refuses to decide what a change means.

use std::sync::Arc;

use smc_mesh::ids::ServiceAccountId;
use smc_mesh::pki::{ServiceCertificate, WantedCertificates};
use smc_mesh::problem::Problem;
use smc_mesh::translate::{Compiler, Input};
use smc_mesh::world::World;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::sources::Batch;
use crate::telemetry::Metrics;

/// Batches or certificates applied in one go. While one recomputation runs others queue up; taking them
/// together costs one publication instead of many. Bounded so that a flood cannot hold back the news for ever.
const MAX_TOGETHER: usize = 256;

/// Questions that wait. They come from the administration's few callers; more than this must wait there.
const MAX_QUESTIONS: usize = 16;

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
}

/// See the module.
pub(crate) struct Publisher {
    mesh: Mesh,
    inputs: Inputs,
    questions: mpsc::Receiver<Question>,
    worlds: watch::Sender<Option<Arc<World>>>,
    wanted: watch::Sender<WantedCertificates>,
    synced: bool,
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
        (Self { mesh, inputs, questions, worlds, wanted, synced: false, metrics }, Ask(ask))
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
                count = self.inputs.batches.recv_many(&mut batches, MAX_TOGETHER) => if count == 0 { return },
                count = self.inputs.certificates.recv_many(&mut certificates, MAX_TOGETHER) => {
                    if count == 0 { return }
                }
            }
            let began = Instant::now();
            let from_sources = !batches.is_empty();
            let mut inputs = Vec::new();
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
            if from_sources {
                self.want_certificates();
                self.report_problems();
            }
            self.publish(changed);
            self.metrics.recomputed(began.elapsed());
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

    /// Tells the certificate authority which identities are in the mesh, and what MeshConfig says of lifetimes.
    fn want_certificates(&self) {
        let catalog = self.mesh.compiler.catalog();
        let now_wanted = WantedCertificates {
            accounts: catalog.accounts().cloned().collect(),
            lifetime: catalog.mesh_config().service_cert_validity,
        };
        self.wanted.send_if_modified(|wanted| {
            let differ = *wanted != now_wanted;
            *wanted = now_wanted;
            differ
        });
    }

    fn report_problems(&self) {
        let problems = self.mesh.problems();
        self.metrics.problems(&problems);
        if !problems.is_empty() {
            warn!(count = problems.len(), "the declared mesh has problems; see `smc mesh problems`");
        }
    }
}
