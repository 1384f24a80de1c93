//! One kind of the API server, listed and watched for ever.
//!
//! Owns the order of requests: list, watch, read a namespace that entered the mesh, and again after a
//! failure. What a failure means is decided in `failure`, what an object means in `store`.
//!
//! A watch goes on from the version that another one has come to only if the API server has answered without
//! a gap since that one was opened, and is not at an earlier version. Otherwise the API server may be another
//! one, over an etcd that was restored in between, so everything is listed.

mod listing;
mod watching;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use smc_decode::kinds;
use smc_host::env::Env;
use smc_types::kind::Kind;
use smc_types::object_ref::ObjectRef;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::failure::{self, Failure, REPORTED_AFTER};
use super::field_filter::{self, FieldFilter};
use super::marks;
use super::metrics::SourceMetrics;
use super::object::Object;
use super::paging::PageLimit;
use super::reader::Reader;
use super::resources::{Place, Resource};
use super::store::{Arrived, Change, Scope, Version};
use super::uptime::Uptime;

/// Followers that wait for an API server come back within this time when it answers again.
const RETURN_WITHIN: Duration = Duration::from_millis(300);

/// The longest wait of a follower that did not reach the API server, while the API server answers others.
const MAX_WAIT_IF_REACHABLE: Duration = Duration::from_secs(1);

/// A session that lasted so long is no failed attempt, whatever ended it.
const LASTING: Duration = Duration::from_secs(10);

/// How long a watch is asked for, in seconds, and how much longer it may be: kinds and replicas that began
/// together do not come back together.
const WATCH_SECONDS: u64 = 240;
const WATCH_SPREAD: u64 = 120;

/// What every kind's follower shares.
#[derive(Clone)]
pub(super) struct Shared {
    /// Asks the API server.
    pub(super) reader: Reader,
    /// Where each kind is.
    pub(super) places: watch::Receiver<BTreeMap<Kind, Place>>,
    /// Asks for another look at where kinds are.
    pub(super) look_again: Arc<Notify>,
    /// The control plane's own namespace.
    pub(super) mesh_namespace: Arc<str>,
    /// The namespaces of the mesh, once they are known to their end.
    pub(super) scope: watch::Receiver<Option<Arc<Scope>>>,
    /// The number of the order to list everything.
    pub(super) epoch: watch::Receiver<u64>,
    /// Whether the API server answers, as far as is known.
    pub(super) reachable: watch::Receiver<bool>,
    /// Since when it has answered without a gap.
    pub(super) uptime: watch::Receiver<Uptime>,
    /// Whether it can stream lists at all, as far as is known.
    pub(super) streams: Arc<AtomicBool>,
    /// Takes what is learnt, with the epoch at which the reading began.
    pub(super) changes: mpsc::Sender<(Kind, u64, Change)>,
    /// Draws the jitter of waits.
    pub(super) env: Env,
    /// Counts.
    pub(super) metrics: SourceMetrics,
}

/// Follows one kind.
pub(super) struct Follower {
    kind: Kind,
    keep: &'static FieldFilter,
    shared: Shared,
    /// How the next session begins.
    next: Next,
    /// The order to list that the present session follows.
    epoch: u64,
    /// The namespaces that this kind is read in.
    following: Arc<Scope>,
    /// Whether the API server streams lists of this kind, as far as is known.
    streaming: bool,
    /// Whether a list is asked for before the namespaces are known.
    eager: bool,
    pages: PageLimit,
    lists: u64,
    watches: u64,
    /// When the API server said something last.
    heard: Instant,
    failing_since: Option<Instant>,
    reported: Option<failure::Trouble>,
}

/// The source has ended.
struct SourceEnded;

/// Why a session ended before its end.
enum Stop {
    Failed(Failure),
    SourceEnded,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<SourceEnded> for Stop {
    fn from(_: SourceEnded) -> Self {
        Self::SourceEnded
    }
}

/// How a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// With a list.
    List,
    /// With a watch that goes on from another one.
    Watch(Reached),
}

/// What follows a watch that has ended in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// A watch that goes on.
    Watch,
    List,
}

/// What a watch has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reached {
    /// When it was opened.
    opened: Instant,
    /// Everything up to this version is known.
    version: String,
}

impl Follower {
    /// Follows this kind.
    pub(super) fn new(kind: Kind, shared: Shared) -> Self {
        Self {
            kind,
            keep: field_filter::of(kind),
            shared,
            next: Next::List,
            epoch: 0,
            following: Arc::default(),
            streaming: true,
            eager: true,
            pages: PageLimit::new(),
            lists: 0,
            watches: 0,
            heard: Instant::now(),
            failing_since: None,
            reported: None,
        }
    }

    /// Follows until the receiver of changes is dropped.
    pub(super) async fn run(mut self) {
        while let Some(resource) = self.resource().await {
            let mut places = self.shared.places.clone();
            let place = Place::Served(resource.clone());
            let kind = self.kind;
            tokio::select! {
                moved = places.wait_for(|places| places.get(&kind) != Some(&place)) => {
                    if moved.is_err() { return }
                }
                () = self.follow(&resource) => return,
            }
        }
    }

    /// The kind's resource, once there is one. `None` if the source has ended.
    async fn resource(&mut self) -> Option<Resource> {
        loop {
            let place = self.shared.places.borrow_and_update().get(&self.kind).cloned();
            match place {
                Some(Place::Served(resource)) => return Some(resource),
                Some(Place::Missing(others)) => {
                    // A trouble of the kind ends with it: what was reported is to be reported again.
                    (self.reported, self.failing_since) = (None, None);
                    self.send(Change::Missing(others)).await.ok()?;
                }
                None => {}
            }
            self.shared.places.changed().await.ok()?;
        }
    }

    /// Follows a resource until the source ends.
    async fn follow(&mut self, resource: &Resource) {
        self.next = Next::List;
        let (mut attempt, mut unreachable) = (0, false);
        loop {
            let epoch = *self.shared.epoch.borrow_and_update();
            if std::mem::replace(&mut self.epoch, epoch) != epoch {
                self.next = Next::List;
            }
            let began = Instant::now();
            let mut orders = self.shared.epoch.clone();
            let ended = tokio::select! {
                biased;
                // What is being read is of a history that the API server has left.
                ordered = orders.wait_for(|order| *order != epoch) => {
                    if ordered.is_err() {
                        return;
                    }
                    attempt = 0;
                    continue;
                }
                ended = self.session(resource) => ended,
            };
            let fails = matches!(&ended, Err(Stop::Failed(failure)) if failure.is_unreachable());
            let turned = std::mem::replace(&mut unreachable, fails) != fails;
            // What an API server refuses when it is back is a beginning, however long it was away.
            if turned || began.elapsed() >= LASTING {
                attempt = 0;
            }
            let random = self.shared.env.random_u64().unwrap_or_default();
            match ended {
                Ok(()) => self.wait(failure::reopen(attempt, random), random, false).await,
                Err(Stop::SourceEnded) => return,
                Err(Stop::Failed(failure)) => {
                    debug!(kind = %self.kind, %failure, attempt, "reading from the API server was interrupted");
                    if !failure.keeps_version() {
                        self.next = Next::List;
                    }
                    if failure.is_missing() {
                        self.shared.look_again.notify_one();
                    }
                    if self.report(&failure).await.is_err() {
                        return;
                    }
                    self.wait(failure.wait(attempt, random), random, unreachable).await;
                }
            }
            attempt = attempt.saturating_add(1);
        }
    }

    /// Waits. After an attempt that did not reach the API server, not much longer than until it answers.
    async fn wait(&mut self, wait: Duration, random: u64, unreachable: bool) {
        if wait.is_zero() {
            return;
        }
        let share = f64::from(u32::try_from(random % 1000).unwrap_or_default()) / 1000.0;
        let reachable = *self.shared.reachable.borrow_and_update();
        if unreachable && reachable {
            return sleep(wait.min(MAX_WAIT_IF_REACHABLE)).await;
        }
        // It ends only if the source does.
        let answers = async { self.shared.reachable.wait_for(|reachable| *reachable).await.is_ok() };
        tokio::select! {
            () = sleep(wait) => return,
            _ = answers, if unreachable => {}
        }
        sleep(RETURN_WITHIN.mul_f64(share)).await;
    }

    /// Reports a failure that lasts.
    async fn report(&mut self, failure: &Failure) -> Result<(), SourceEnded> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let Some(trouble) = failure.trouble() else { return Ok(()) };
        if self.reported.as_ref() == Some(&trouble)
            || !(failure.is_final() || since.elapsed() >= REPORTED_AFTER)
        {
            return Ok(());
        }
        warn!(kind = %self.kind, %failure, "objects cannot be read from the API server; tried again for ever");
        self.reported = Some(trouble.clone());
        self.send(Change::Trouble(Some(trouble))).await
    }

    /// Takes note that reading works.
    async fn works(&mut self) -> Result<(), SourceEnded> {
        self.failing_since = None;
        if self.reported.take().is_none() {
            return Ok(());
        }
        tracing::info!(kind = %self.kind, "objects can be read from the API server again");
        self.send(Change::Trouble(None)).await
    }

    /// Lists, or goes on from a version, and watches until the watch ends in order.
    async fn session(&mut self, resource: &Resource) -> Result<(), Stop> {
        let seconds = WATCH_SECONDS + self.shared.env.random_u64().unwrap_or_default() % WATCH_SPREAD;
        self.watches += 1;
        if self.watches > 1 {
            self.shared.metrics.watched_again(self.kind);
        }
        let (opened, mut lines, version) = loop {
            let opened = Instant::now();
            let begun = match self.next.clone() {
                Next::Watch(reached) => self.resume(resource, reached, seconds).await?,
                Next::List => {
                    self.lists += 1;
                    if self.lists > 1 {
                        self.shared.metrics.listed_again(self.kind);
                    }
                    self.list(resource, seconds).await?
                }
            };
            if let Some((lines, version)) = begun {
                break (opened, lines, version);
            }
            // There is another way, which is tried at once.
            self.next = Next::List;
        };
        self.works().await?;
        let mut reached = Reached { opened, version };
        let ends = opened + Duration::from_secs(seconds);
        let ended = self.watch(resource, &mut lines, &mut reached.version, ends).await;
        let lists = matches!(ended, Ok(Then::List));
        self.next = if lists { Next::List } else { Next::Watch(reached) };
        ended.map(|_| ())
    }

    /// The namespaces to read this kind in, where these are of the mesh. The number of the control plane's
    /// own never changes where it is read whether or not it is of the mesh.
    fn in_reach(&self, scope: Arc<Scope>) -> Arc<Scope> {
        let mut reach = scope;
        if self.kind.spec().extent.has_own() {
            Arc::make_mut(&mut reach).insert(self.shared.mesh_namespace.to_string(), 0);
        }
        reach
    }

    /// The name and version of an object; `None` if it is of no namespace that this kind is read in, or has a
    /// name that no API server accepts.
    fn named(&self, object: &Object) -> Option<(ObjectRef, Version)> {
        if self.kind.spec().extent.follows_namespaces() && !self.following.contains_key(object.namespace()) {
            return None;
        }
        let reference = kinds::named(self.kind, object.namespace(), object.name()).ok()?;
        Some((reference, Version::new(object.version())))
    }

    /// An object as the store takes it. It is decoded by itself, and only if it is of the mesh.
    fn arrived(&self, resource: &Resource, object: &Object) -> Option<Arrived> {
        let (reference, version) = self.named(object)?;
        let content = object.read(self.keep, &resource.api_version, self.kind);
        let marks = marks::are_of(self.kind, &resource.api_version).then(|| object.marks()).flatten();
        Some(Arrived { reference, version, content, marks: marks.map(Box::new) })
    }

    fn heard(&mut self) {
        self.heard = Instant::now();
        self.shared.metrics.heard(self.shared.env.now());
    }

    async fn send(&self, change: Change) -> Result<(), SourceEnded> {
        self.shared.changes.send((self.kind, self.epoch, change)).await.map_err(|_| SourceEnded)
    }
}

#[cfg(test)]
mod tests;
