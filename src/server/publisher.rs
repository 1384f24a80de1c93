//! The task that owns the compiler: it applies inputs from sources and the certificate issuer, and
//! publishes served states.
//!
//! Owns the order: inputs are applied in batches, a state is published only after the sources have synced,
//! and queries run between two batches, so that an answer never mixes two states. Proxies come first: a
//! change is published before the whole mesh is searched for problems because of it. While the streams are
//! busy with the latest state, changes gather ([`smc_mesh::coalescing`]).

use std::sync::Arc;
use std::time::Duration;

use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_authority::rules::{DeclaredRoots, IngressGateway, WantedCertificates};
use smc_host::tasks::Tasks;
use smc_host::timer::until;
use smc_mesh::translate::{Compiler, Input};
use smc_model::replica_settings::ReplicaSettings;
use smc_types::ids::{NamespacedName, ServiceAccountId};
use smc_types::problem::Problem;
use smc_xds::served_state::ServedState;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::followers::Followers;
use crate::metrics::Metrics;
use crate::problems::Problems;
use crate::source::Batch;

/// Queued batches of a source. A source folds later changes into its next batch, so a longer queue gains
/// nothing.
const BATCH_QUEUE: usize = 4;

/// Queued certificates. The publisher applies many at once.
const CERTIFICATE_QUEUE: usize = 256;

/// Batches or certificates applied at once. Those that queue up during a computation share the next
/// publication. The bound keeps a flood from delaying publication for ever.
const MAX_TOGETHER: usize = 256;

/// Queued queries. They come from the few callers of the administration; further callers wait.
const MAX_QUERIES: usize = 16;

/// The delay from a change to the collection of problems. Changes come in bursts; a second is short enough
/// for metrics and logs.
const PROBLEMS_DELAY: Duration = Duration::from_secs(1);

/// A query of the mesh's state, which sends its own answer.
type Query = Box<dyn FnOnce(&Mesh) + Send>;

/// A new or renewed service certificate, or `None` for an identity that is gone.
type IssuedCertificate = (ServiceAccountId, Option<ServiceCertificate>);

/// The state that queries read.
pub struct Mesh {
    /// The compiler, with the catalog.
    pub compiler: Compiler,
    /// The problems of the mesh.
    problems: Problems,
}

impl Mesh {
    /// All problems of the mesh, sorted. Brings the compiler's part up to date.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.problems.set_compiler(self.compiler.problems());
        self.problems.all()
    }
}

/// The publisher has ended, because the replica is shutting down.
#[derive(Debug, Error)]
#[error("the replica is shutting down")]
pub struct PublisherStopped;

/// Sends queries to the publisher. Cheap to clone.
#[derive(Clone)]
pub struct MeshHandle(mpsc::Sender<Query>);

impl MeshHandle {
    /// Runs `query` between two batches. It must be quick: no state is published meanwhile.
    pub async fn about<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Mesh) -> T + Send + 'static,
    ) -> Result<T, PublisherStopped> {
        let (sender, answer) = oneshot::channel();
        let query = Box::new(move |mesh: &Mesh| {
            // The caller may have gone away.
            let _ = sender.send(query(mesh));
        });
        self.0.send(query).await.map_err(|_| PublisherStopped)?;
        answer.await.map_err(|_| PublisherStopped)
    }
}

/// The receiving ends of the publisher's inputs.
struct Inputs {
    batches: mpsc::Receiver<Batch>,
    certificates: mpsc::Receiver<IssuedCertificate>,
    bundle: watch::Receiver<TrustBundle>,
}

/// The sending ends of the publisher's inputs. The publisher ends when one of them is dropped.
pub(crate) struct InputSenders {
    /// For the source.
    pub(crate) batches: mpsc::Sender<Batch>,
    /// For the renewer.
    pub(crate) certificates: mpsc::Sender<IssuedCertificate>,
    /// For the roots that are trusted.
    pub(crate) bundle: watch::Sender<TrustBundle>,
}

/// What the publisher publishes, and the handle for queries.
pub(crate) struct Published {
    /// The latest state; `None` until the sources have synced.
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    /// The streams, which wait for states that concern them.
    pub(crate) followers: Followers,
    /// The identities that need a certificate, and its lifetime.
    pub(crate) wanted: watch::Receiver<WantedCertificates>,
    /// Whether a gateway needs a certificate; `None` until the sources have synced.
    pub(crate) gateway: watch::Receiver<Option<DeclaredGateway>>,
    /// The roots that are declared.
    pub(crate) roots: watch::Receiver<DeclaredRoots>,
    /// The problems of the mesh.
    pub(crate) problems: Problems,
    /// For queries.
    pub(crate) mesh: MeshHandle,
}

/// What the mesh declares of a gateway's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredGateway {
    /// The MeshConfig in force.
    pub(crate) by: Option<NamespacedName>,
    /// The certificate.
    pub(crate) certificate: IngressGateway,
}

/// The task.
pub(crate) struct Publisher {
    mesh: Mesh,
    inputs: Inputs,
    queries: mpsc::Receiver<Query>,
    served: watch::Sender<Option<Arc<ServedState>>>,
    followers: Followers,
    /// When the latest state was published, until the next one is due.
    published: Option<Instant>,
    wanted: watch::Sender<WantedCertificates>,
    gateway: watch::Sender<Option<DeclaredGateway>>,
    roots: watch::Sender<DeclaredRoots>,
    settings: watch::Sender<ReplicaSettings>,
    synced: bool,
    /// When the problems are to be collected, after a change.
    problems_due: Option<Instant>,
    /// Whether the mesh changed since its problems were collected.
    mesh_changed: bool,
    /// The problems logged last.
    reported: Vec<Problem>,
    metrics: Metrics,
}

impl Publisher {
    /// Starts the task. `bundle` are the roots trusted now, and `settings` gets what replicas obey.
    pub(crate) fn start(
        compiler: Compiler,
        bundle: TrustBundle,
        settings: watch::Sender<ReplicaSettings>,
        metrics: Metrics,
        tasks: &mut Tasks,
    ) -> (InputSenders, Published) {
        let (publisher, senders, published) = Self::new(compiler, bundle, settings, metrics);
        tasks.spawn("publisher", |stopping| publisher.run(stopping));
        (senders, published)
    }

    fn new(
        compiler: Compiler,
        bundle: TrustBundle,
        settings: watch::Sender<ReplicaSettings>,
        metrics: Metrics,
    ) -> (Self, InputSenders, Published) {
        let (batch_sender, batches) = mpsc::channel(BATCH_QUEUE);
        let (certificate_sender, certificates) = mpsc::channel(CERTIFICATE_QUEUE);
        let (bundle_sender, bundle) = watch::channel(bundle);
        let (query_sender, queries) = mpsc::channel(MAX_QUERIES);
        let (served_sender, served) = watch::channel(None);
        let (wanted_sender, wanted) = watch::channel(WantedCertificates::default());
        let (gateway_sender, gateway) = watch::channel(None);
        let (roots_sender, roots) = watch::channel(DeclaredRoots::Unknown);
        let problems = Problems::default();
        let followers = Followers::default();
        let publisher = Self {
            mesh: Mesh { compiler, problems: problems.clone() },
            inputs: Inputs { batches, certificates, bundle },
            queries,
            served: served_sender,
            followers: followers.clone(),
            published: None,
            wanted: wanted_sender,
            gateway: gateway_sender,
            roots: roots_sender,
            settings,
            synced: false,
            problems_due: None,
            mesh_changed: false,
            reported: Vec::new(),
            metrics,
        };
        let senders =
            InputSenders { batches: batch_sender, certificates: certificate_sender, bundle: bundle_sender };
        (
            publisher,
            senders,
            Published { served, followers, wanted, gateway, roots, problems, mesh: MeshHandle(query_sender) },
        )
    }

    /// Runs until `shutdown`, or until the sender of an input is dropped.
    async fn run(mut self, shutdown: CancellationToken) {
        let mut batches = Vec::new();
        let mut certificates = Vec::new();
        let followers = self.followers.clone();
        loop {
            let published = self.published;
            let due = async {
                if let Some(published) = published {
                    followers.due(published).await;
                }
            };
            let waits = published.is_some();
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(query) = self.queries.recv() => {
                    query(&self.mesh);
                    continue;
                }
                () = until(self.problems_due) => {
                    self.report_problems();
                    continue;
                }
                () = self.mesh.problems.changed() => {
                    self.problems_due.get_or_insert(Instant::now() + PROBLEMS_DELAY);
                    continue;
                }
                () = due, if waits => {
                    self.published = None;
                    continue;
                }
                changed = self.inputs.bundle.changed(), if !waits => if changed.is_err() { return },
                count = self.inputs.batches.recv_many(&mut batches, MAX_TOGETHER), if !waits => if count == 0 { return },
                count = self.inputs.certificates.recv_many(&mut certificates, MAX_TOGETHER), if !waits => {
                    if count == 0 { return }
                }
            }
            self.apply(&mut batches, &mut certificates);
        }
    }

    /// Applies the inputs, publishes the resulting state, and then does the rest.
    fn apply(&mut self, batches: &mut Vec<Batch>, certificates: &mut Vec<IssuedCertificate>) {
        let began = Instant::now();
        let from_sources = !batches.is_empty();
        // The bundle first, so that no proxy is sent a certificate before the root that its peers verify it
        // with.
        let mut inputs = vec![Input::Bundle(self.inputs.bundle.borrow_and_update().clone())];
        for batch in batches.drain(..) {
            inputs.extend(batch.events.into_iter().map(Input::Source));
            self.mesh.problems.set_sources(batch.problems);
            self.synced |= batch.synced;
            inputs.extend(batch.revision.map(|revision| Input::Revision(Arc::new(revision))));
        }
        inputs.extend(certificates.drain(..).map(|(account, issued)| match issued {
            Some(certificate) => Input::Certificate(account, certificate),
            None => Input::NoCertificate(account),
        }));
        let changed = self.mesh.compiler.apply(inputs);
        if from_sources {
            // Before the state: with the first one the replica takes proxies.
            let obeyed = self.mesh.compiler.catalog().mesh_config().replica;
            self.settings.send_if_modified(|settings| std::mem::replace(settings, obeyed) != obeyed);
        }
        self.publish(changed, from_sources);
        self.metrics.recomputed(began.elapsed());
        if from_sources {
            self.want_certificates();
            // Later changes do not postpone it: a mesh that never rests would never be reported on.
            self.problems_due.get_or_insert(began + PROBLEMS_DELAY);
            self.mesh_changed = true;
        }
    }

    fn publish(&mut self, changed: bool, from_sources: bool) {
        if !self.synced {
            return;
        }
        let first = self.served.borrow().is_none();
        if first || changed {
            let state = self.mesh.compiler.served_state();
            debug!(generation = state.generation, proxies = state.proxies.len(), "state published");
            if first {
                info!(proxies = state.proxies.len(), "sources synced");
            }
            self.followers.publish(&self.served, &state);
            self.published = Some(Instant::now());
        } else if from_sources {
            // Only streams that wait for the revision have to know, and they look by themselves.
            let state = self.mesh.compiler.served_state();
            self.served.send_if_modified(|served| {
                *served = Some(state);
                false
            });
        }
    }

    /// Publishes the certificates that the mesh needs, where they have changed.
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
        let revision = self.mesh.compiler.served_state().revision.clone();
        let is_copy = revision.is_some_and(|revision| revision.copy.is_some());
        // By a mesh of yesterday no gateway loses its certificate, and no root changes.
        if self.synced && !is_copy {
            let own = catalog.own_mesh_config();
            let certificate = own.map(|(_, config)| config.ingress_gateway.clone()).unwrap_or_default();
            let declared = Some(DeclaredGateway { by: own.map(|(name, _)| name.clone()), certificate });
            self.gateway.send_if_modified(|gateway| {
                let differ = *gateway != declared;
                *gateway = declared;
                differ
            });
            let declared = catalog.declared_roots();
            self.roots.send_if_modified(|roots| {
                let differ = *roots != declared;
                *roots = declared;
                differ
            });
        }
    }

    /// Counts the problems, and logs a change of them.
    fn report_problems(&mut self) {
        self.problems_due = None;
        let changed = std::mem::take(&mut self.mesh_changed);
        self.mesh.compiler.recheck();
        let problems = if changed { self.mesh.problems() } else { self.mesh.problems.all() };
        self.metrics.problems(&problems);
        if problems == self.reported {
            return;
        }
        if problems.is_empty() {
            info!("the mesh has no problems any more");
        } else {
            warn!(count = problems.len(), "the mesh has problems; see `smc mesh problems`");
        }
        self.reported = problems;
    }
}

#[cfg(test)]
mod tests {
    use smc_api::object::SourceEvent;
    use smc_mesh::translate::Settings;
    use smc_types::ids::TrustDomain;

    use super::*;
    use crate::problems::Rejection;
    use smc_decode::manifest;

    fn publisher() -> (Publisher, InputSenders, Published, Metrics) {
        let compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
        let metrics = Metrics::new();
        let bundle = TrustBundle { pem: "roots".to_owned() };
        let (publisher, senders, published) =
            Publisher::new(compiler, bundle, watch::Sender::default(), metrics.clone());
        (publisher, senders, published, metrics)
    }

    /// The batch of a file's content.
    fn batch(text: &str) -> Batch {
        let manifest::Manifest { declarations, problems, .. } = manifest::read("a.yaml", text.as_bytes());
        let objects = declarations.iter().filter_map(|declaration| declaration.object.clone());
        Batch { events: objects.map(SourceEvent::Upsert).collect(), problems, synced: true, revision: None }
    }

    /// A namespace of the mesh with one pod of this service account.
    fn pod_of(account: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: shop, \
             labels: {{openservicemesh.io/monitored-by: smc}}}}}}\n\
             ---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {account}, namespace: shop}}}}\n\
             ---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {account}, namespace: shop, \
             labels: {{app: a}}}}, spec: {{serviceAccountName: {account}, containers: [{{name: app}}]}}, \
             status: {{podIPs: [{{ip: 10.0.0.1}}]}}}}\n"
        )
    }

    #[test]
    fn a_state_is_published_before_the_mesh_is_searched_for_problems() {
        let (mut publisher, _senders, published, metrics) = publisher();
        publisher.apply(&mut vec![batch("--- [\n")], &mut Vec::new());
        assert!(published.served.borrow().is_some());
        assert!(!metrics.text().contains("smc_problems{"), "{}", metrics.text());
        let due = publisher.problems_due.unwrap();
        publisher.apply(&mut vec![batch("--- [\n")], &mut Vec::new());
        assert_eq!(publisher.problems_due, Some(due), "not put off");
        publisher.report_problems();
        assert!(metrics.text().contains("smc_problems{severity=\"error\"} 1"), "{}", metrics.text());
        assert_eq!(publisher.problems_due, None);
    }

    #[test]
    fn the_wanted_certificates_are_published_only_when_they_change() {
        let (mut publisher, _senders, Published { mut wanted, .. }, _) = publisher();
        for (text, changed) in [
            (pod_of("a"), true),
            (
                pod_of("a") + "---\n{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}}\n",
                false,
            ),
            (pod_of("b"), true),
        ] {
            publisher.apply(&mut vec![batch(&text)], &mut Vec::new());
            assert_eq!(wanted.has_changed().unwrap(), changed, "{text}");
            wanted.mark_unchanged();
        }
        let names: Vec<_> = wanted.borrow().accounts.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["shop/a", "shop/b"]);
    }

    #[tokio::test]
    async fn problems_are_reported_although_nothing_else_happens() {
        let (publisher, senders, published, metrics) = publisher();
        senders.batches.send(batch("--- [\n")).await.unwrap();
        let shutdown = CancellationToken::new();
        let reported = async {
            let counted = async |count: usize| {
                while !metrics.text().contains(&format!("smc_problems{{severity=\"error\"}} {count}")) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            counted(1).await;
            // What a proxy rejects counts, and so does that it no longer does.
            let mut stream = published.problems.stream("shop/buyer".parse().unwrap());
            stream.set(vec![Rejection {
                resource: "rds/web".to_owned(),
                reason: "too large".to_owned(),
                made_of: Arc::default(),
            }]);
            counted(2).await;
            drop(stream);
            counted(1).await;
        };
        tokio::select! {
            () = publisher.run(shutdown) => panic!("the publisher ended"),
            reported = tokio::time::timeout(Duration::from_secs(20), reported) => reported.unwrap(),
        }
    }
}
