//! A Kubernetes API server as a source.
//!
//! Owns the tasks that follow its kinds, the order of batches, and the last known mesh on disk. What an
//! object means is decided in `store`, what a failure means in `failure`; both are pure.
//!
//! ```text
//! look (what is served) ─places→ follow, one for each kind ─changes→ store ─→ Batch
//! probe (which version) ──────────────│──────────────────────────→ │ ├→ last_known (on disk)
//!                                     └── scope (namespaces), epoch ┘ └→ custom objects, for their status
//! ```
//!
//! Every kind is watched in the whole cluster, and what is of no namespace of the mesh is dropped as it
//! arrives. A watch for each namespace would cost the API server a watch for each kind, namespace and
//! replica, and every service mesh that began so has changed to watches of the cluster. A namespace that
//! enters the mesh is listed.

mod clock_offset;
mod discovery;
mod failure;
mod field_filter;
mod follow;
mod kept;
mod last_known;
mod lines;
mod marks;
mod message;
mod metrics;
mod object;
mod paging;
mod probe;
mod reader;
mod resources;
pub(crate) mod sidecar_pods;
mod store;
mod uptime;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_decode::Rules;
use smc_decode::manifest::Declaration;
use smc_host::env::Env;
use smc_host::timer::until;
use smc_server::metrics::Metrics;
use smc_server::source::{Batch, Source, SourceError};
use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;
use smc_types::time::Timestamp;
use thiserror::Error;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::discovery::Discovery;
use self::follow::{Follower, Shared};
use self::last_known::{LastKnown, MeshCopy, RENEW_EVERY, Unusable, pause_after};
use self::metrics::SourceMetrics;
use self::probe::{Heads, Position, Probe};
use self::reader::Reader;
use self::store::{Change, Scope, Store, WentBack};
use self::uptime::Uptime;
use crate::api::ApiServer;
use crate::custom_objects::CustomObjects;

/// How long a start waits for the API server to say something before the last known mesh is served.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a start waits while the API server goes on saying something: a first look at 10,000 pods takes
/// some seconds.
const MAX_PATIENCE: Duration = Duration::from_secs(30);

/// Changes that wait to be merged. A kind that is listed waits for room; the next objects wait in its
/// connection.
const CHANGES: usize = 512;

/// The pause until a namespace is read again of which objects were left out: it costs the API server a list
/// of the namespace for each kind.
const READ_AGAIN: Duration = Duration::from_secs(15);

/// Reads the mesh from an API server and follows its changes.
pub struct KubernetesSource {
    api: Arc<dyn ApiServer>,
    rules: Rules,
    mesh_namespace: MeshNamespace,
    last_known: PathBuf,
    env: Env,
    metrics: SourceMetrics,
    files: Files,
    custom: watch::Sender<CustomObjects>,
}

/// When namespaces are read again of which objects were left out.
#[derive(Debug, Default)]
struct ReadAgain {
    next: Option<Instant>,
    last: Option<Instant>,
}

impl ReadAgain {
    fn plan(&mut self, is_wanted: bool) {
        self.next = is_wanted.then(|| self.last.map_or_else(Instant::now, |last| last + READ_AGAIN));
    }
}

/// Where the last known mesh is read and written.
#[derive(Debug, Clone, Copy)]
enum Files {
    /// On threads that may block.
    Threads,
    /// In tasks of the source.
    Tasks,
}

impl Files {
    fn start<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work),
            Self::Tasks => tokio::spawn(async { work() }),
        }
    }
}

impl KubernetesSource {
    /// A source of the mesh `mesh`, whose control plane is in `mesh_namespace`. It keeps the last known
    /// mesh in the file `last_known`, whose directory exists; only this source may use the file.
    pub fn new(
        api: Arc<dyn ApiServer>,
        mesh: MeshName,
        mesh_namespace: MeshNamespace,
        last_known: impl Into<PathBuf>,
        env: Env,
    ) -> Self {
        let (rules, last_known) = (Rules::api_server(mesh), last_known.into());
        let (metrics, files) = (SourceMetrics::default(), Files::Threads);
        let custom = watch::Sender::default();
        Self { api, rules, mesh_namespace, last_known, env, metrics, files, custom }
    }

    /// Reads and writes its file in its tasks, which block meanwhile, and not on other threads. For a
    /// simulation, which does not know when a thread has ended.
    #[must_use]
    pub fn with_files_in_its_tasks(self) -> Self {
        Self { files: Files::Tasks, ..self }
    }

    /// The custom objects that the source holds, as they are at any time. A reader holds up nothing, however
    /// slow it is.
    pub fn custom_objects(&self) -> watch::Receiver<CustomObjects> {
        self.custom.subscribe()
    }
}

/// A task that reads the API server ended or panicked, which is a bug, or the runtime is shutting down.
#[derive(Debug, Error)]
#[error("reading the Kubernetes API was interrupted")]
struct Interrupted(#[source] Option<JoinError>);

impl Source for KubernetesSource {
    fn report_to(&mut self, metrics: &Metrics) {
        self.metrics = SourceMetrics(Some(metrics.clone()));
    }

    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let mut running = Running::start(*self);
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => Ok(()),
                ended = running.run(&batches) => ended,
            };
            // A write that has begun ends before the source does: the next one over this directory reads it.
            if let Some(saving) = running.saving.take() {
                // A failure leaves the copy before it, and there is no later batch to report it in.
                let _ = saving.await;
            }
            ended
        })
    }
}

/// The running source. Dropping it ends its tasks.
struct Running {
    store: Store,
    changes: mpsc::Receiver<(Kind, u64, Change)>,
    scope: watch::Sender<Option<Arc<Scope>>>,
    epoch: watch::Sender<u64>,
    position: watch::Sender<Position>,
    custom: watch::Sender<CustomObjects>,
    /// Whether the API server answers.
    reachable: watch::Receiver<bool>,
    /// The problem of clocks that differ.
    clocks: watch::Receiver<Option<Problem>>,
    tasks: JoinSet<()>,
    metrics: SourceMetrics,
    last_known: LastKnown,
    files: Files,
    /// Reads the last known mesh.
    loading: Option<JoinHandle<Result<Option<MeshCopy<Declaration>>, Unusable>>>,
    /// The last known mesh, until it is needed or too old.
    loaded: Option<MeshCopy<Declaration>>,
    /// Why the last known mesh cannot be used.
    unusable: Option<Problem>,
    /// Why it cannot be kept.
    unwritten: Option<Problem>,
    /// Writes the last known mesh.
    saving: Option<JoinHandle<io::Result<usize>>>,
    /// Whether it differs from what was written.
    unsaved: bool,
    /// When it may be written.
    save_at: Instant,
    /// When it is written although nothing changed.
    renew_at: Option<Instant>,
    reading: ReadAgain,
    /// When the API server confirmed all of it the last time.
    as_of: Timestamp,
    env: Env,
    patience: Patience,
    was_synced: bool,
}

/// How long a start waits for the API server.
struct Patience {
    started: Instant,
    /// When the last known mesh is served; `None` once it was, or needs not be.
    ends: Option<Instant>,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self { started: now, ends: Some(now + PATIENCE) }
    }

    /// The API server said something.
    fn extend(&mut self, now: Instant) {
        if let Some(ends) = &mut self.ends {
            *ends = (now + PATIENCE).min(self.started + MAX_PATIENCE);
        }
    }
}

impl Running {
    fn start(source: KubernetesSource) -> Self {
        let KubernetesSource { api, rules, mesh_namespace, last_known, env, metrics, files, custom } = source;
        let store = Store::new(rules.clone(), mesh_namespace.clone(), Kind::ALL.iter().copied());
        let last_known = LastKnown::new(last_known, mesh_namespace.as_str(), rules);
        let (places_sender, places) = watch::channel(BTreeMap::new());
        let (reachable_sender, reachable) = watch::channel(true);
        let (clocks_sender, clocks) = watch::channel(None);
        let ((scope_sender, scope), (epoch_sender, epoch)) = (watch::channel(None), watch::channel(0));
        let (sender, changes) = mpsc::channel(CHANGES);
        let (reader, look_again) = (Reader(api), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        let looker = Discovery {
            reader: reader.clone(),
            mesh_namespace: mesh_namespace.clone(),
            places: places_sender,
            clocks: clocks_sender,
            again: Arc::clone(&look_again),
            reachable: reachable.clone(),
            env: env.clone(),
        };
        tasks.spawn(looker.run());
        let (position_sender, position) = watch::channel(Position::default());
        let (uptime_sender, uptime) = watch::channel(Uptime::default());
        let probe = Probe {
            reader: reader.clone(),
            places: places.clone(),
            position,
            changes: sender.clone(),
            reachable: reachable_sender,
            uptime: uptime_sender,
            env: env.clone(),
            heads: Heads::default(),
        };
        tasks.spawn(probe.run());
        let shared = Shared {
            reader,
            places,
            look_again,
            mesh_namespace: mesh_namespace.as_str().into(),
            scope,
            epoch,
            reachable: reachable.clone(),
            uptime,
            streams: Arc::new(AtomicBool::new(true)),
            changes: sender,
            env: env.clone(),
            metrics: metrics.clone(),
        };
        for kind in Kind::ALL.iter().copied() {
            tasks.spawn(Follower::new(kind, shared.clone()).run());
        }
        let (load, as_of) = (last_known.clone(), env.now());
        let loading = Some(files.start(move || load.load(as_of)));
        let now = Instant::now();
        Self {
            store,
            changes,
            scope: scope_sender,
            epoch: epoch_sender,
            position: position_sender,
            custom,
            reachable,
            clocks,
            tasks,
            metrics,
            last_known,
            files,
            loading,
            loaded: None,
            unusable: None,
            unwritten: None,
            saving: None,
            unsaved: false,
            save_at: now,
            renew_at: None,
            reading: ReadAgain::default(),
            as_of,
            env,
            patience: Patience::new(now),
            was_synced: false,
        }
    }

    /// Sends batches until their receiver is gone. Cancel-safe: a batch is sent whole or not at all.
    async fn run(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), SourceError> {
        let mut waiting = Vec::new();
        loop {
            let save_at = (self.unsaved && self.saving.is_none()).then_some(self.save_at);
            tokio::select! {
                count = self.changes.recv_many(&mut waiting, CHANGES) => {
                    if count > 0 {
                        self.patience.extend(Instant::now());
                    }
                    self.apply(&mut waiting);
                }
                room = batches.reserve(), if self.store.has_news() => {
                    let Ok(room) = room else { return Ok(()) };
                    if let Some(batch) = self.batch() {
                        room.send(batch);
                    }
                }
                changed = self.reachable.changed() => {
                    if changed.is_ok() {
                        self.store.set_silent(!*self.reachable.borrow_and_update());
                        self.report();
                    }
                }
                changed = self.clocks.changed() => {
                    if changed.is_ok() {
                        self.report_clocks();
                    }
                }
                loaded = finished(&mut self.loading) => self.take_loaded(loaded?),
                () = until(self.patience.ends) => self.restore(),
                () = until(self.reading.next) => self.read_more(),
                () = until(save_at) => self.save(),
                () = until(self.renew_at) => {
                    self.renew_at = Some(Instant::now() + RENEW_EVERY);
                    self.unsaved |= self.was_synced && !self.store.is_stale();
                }
                saved = finished(&mut self.saving) => self.take_saved(saved?),
                Some(ended) = self.tasks.join_next() => return Err(SourceError::new(Interrupted(ended.err()))),
                () = batches.closed() => return Ok(()),
            }
        }
    }

    fn apply(&mut self, changes: &mut Vec<(Kind, u64, Change)>) {
        for (kind, epoch, change) in changes.drain(..) {
            self.store.apply(kind, epoch, change);
        }
        if let Some(WentBack { from, to }) = self.store.take_went_back() {
            self.metrics.went_back();
            warn!(from, to, "the API server went back to an older state; everything is listed again");
        }
        self.publish_scope();
        self.publish_custom();
        self.reading.plan(self.store.wants_more());
        let epoch = self.store.epoch();
        self.epoch.send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
        self.position.send_replace(Position { epoch, furthest: self.store.furthest() });
        self.report();
    }

    /// Has a namespace read again of which objects were left out.
    fn read_more(&mut self) {
        let namespaces = self.store.read_again();
        debug!(?namespaces, "there is room for more objects, and namespaces are read again");
        self.reading.last = Some(Instant::now());
        self.reading.plan(self.store.wants_more());
        self.publish_scope();
    }

    fn publish_scope(&self) {
        let scope = self.store.scope();
        self.scope.send_if_modified(|known| {
            let differ = match (&*known, scope) {
                (Some(known), Some(scope)) => !Arc::ptr_eq(known, scope) && known != scope,
                (known, scope) => known.is_some() != scope.is_some(),
            };
            if differ {
                *known = scope.cloned();
            }
            differ
        });
    }

    /// Makes the custom objects known, and waits for no reader: one that is slow sees the latest.
    fn publish_custom(&self) {
        let custom = self.store.custom();
        self.custom.send_if_modified(|known| {
            let differ = !known.ptr_eq(custom);
            if differ {
                known.clone_from(custom);
            }
            differ
        });
    }

    /// Reports how good the state is.
    fn report(&mut self) {
        let synced = self.store.is_synced();
        self.metrics.state(synced, self.store.is_stale());
        if synced && !self.was_synced {
            info!("the mesh was read from the API server");
            self.was_synced = true;
            self.patience.ends = None;
            self.loaded = None;
            self.unusable = None;
            self.unsaved = true;
        }
    }

    fn report_clocks(&mut self) {
        if let Some(problem) = &*self.clocks.borrow_and_update() {
            warn!(%problem, "the clocks of this replica and of the API server differ");
        } else {
            info!("the clocks of this replica and of the API server agree");
        }
        self.store.set_changed();
    }

    fn batch(&mut self) -> Option<Batch> {
        let clocks = self.clocks.borrow().clone();
        let more: Vec<Problem> = self.unusable.iter().chain(&self.unwritten).cloned().chain(clocks).collect();
        let batch = self.store.batch(&more)?;
        self.unsaved |= self.was_synced && !batch.events.is_empty();
        Some(batch)
    }

    fn take_loaded(&mut self, loaded: Result<Option<MeshCopy<Declaration>>, Unusable>) {
        match loaded {
            Ok(loaded) => self.loaded = loaded.filter(|_| !self.was_synced),
            Err(error) => {
                let problem = self.last_known.unusable(&error);
                warn!(%problem, "the last known mesh cannot be used");
                self.unusable = Some(problem).filter(|_| !self.was_synced);
            }
        }
    }

    /// Serves the last known mesh, if there is one.
    fn restore(&mut self) {
        if self.loading.is_some() {
            // It is being read; as soon as it is, it is served.
            self.patience.ends = Some(Instant::now() + QUICKLY);
            return;
        }
        self.patience.ends = None;
        if let Some(mesh) = self.loaded.take() {
            warn!(
                objects = mesh.objects.len(),
                "the API server was not read in time; the last known mesh is served"
            );
            self.store.restore(mesh);
            self.publish_scope();
            self.report();
        } else {
            warn!("the API server was not read in time, and no mesh is known; nothing is served until it is");
        }
    }

    fn save(&mut self) {
        self.unsaved = false;
        if !self.store.is_stale() {
            self.as_of = self.env.now();
        }
        let (last_known, mesh, as_of) = (self.last_known.clone(), self.store.kept(), self.as_of);
        self.saving = Some(self.files.start(move || last_known.save(&mesh, as_of)));
    }

    fn take_saved(&mut self, saved: io::Result<usize>) {
        let unwritten = match saved {
            Ok(bytes) => {
                self.save_at = Instant::now() + pause_after(bytes);
                self.renew_at = Some(Instant::now() + RENEW_EVERY);
                None
            }
            Err(error) => {
                self.save_at = Instant::now() + RETRY_SAVING;
                self.unsaved = true;
                Some(self.last_known.unwritten(&error))
            }
        };
        if unwritten != self.unwritten {
            self.unwritten = unwritten;
            self.store.set_changed();
        }
    }
}

/// How often to look whether the last known mesh has been read.
const QUICKLY: Duration = Duration::from_millis(50);

/// How long to wait before a copy that could not be written is tried again.
const RETRY_SAVING: Duration = Duration::from_secs(30);

/// Waits for work on a thread that may block; for ever, if there is none. Cancel-safe.
async fn finished<T>(work: &mut Option<JoinHandle<T>>) -> Result<T, SourceError> {
    match work {
        Some(running) => {
            let finished = running.await;
            *work = None;
            finished.map_err(|error: JoinError| SourceError::new(Interrupted(Some(error))))
        }
        None => std::future::pending().await,
    }
}
