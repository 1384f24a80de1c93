//! One kind of the API server, listed and watched for ever.
//!
//! Owns the order of requests: list, watch, list a namespace that entered the mesh, and again after a
//! failure. What a failure means is decided in `failure`, what an object means in `store`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smc_host::env::Env;
use smc_host::timer::until;
use smc_types::object_ref::Kind;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::failure::{self, Failure, REPORTED_AFTER};
use super::keep::{self, Keep};
use super::lines::{Line, Lines};
use super::message::{self, Event};
use super::metrics::SourceMetrics;
use super::object::Object;
use super::paging::PageLimit;
use super::reader::{PAUSE_LIMIT, Reader};
use super::resources::{Extent, Place, Resource, extent};
use super::store::{Change, Content, Ended, Scope, Version};

/// How long a watch may say nothing before it is opened again, from the version that it has come to. An API
/// server sends a bookmark every minute, unless there is no newer version at all; a connection that was lost
/// without a word, or a server that hangs, is silent too.
const SILENCE: Duration = Duration::from_secs(100);

/// How long watches may say nothing before everything is listed again.
const LONG_SILENCE: Duration = Duration::from_mins(10);

/// A watch that was just opened has said what there was when it has been quiet for so long, or has been open
/// for so long where the kind is never quiet.
const QUIET: Duration = Duration::from_millis(100);
const MOST_UNTIL_QUIET: Duration = Duration::from_secs(2);

/// Followers that wait for an API server come back within this time when another one has reached it.
const RETURN_WITHIN: Duration = Duration::from_secs(1);

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
    /// The namespaces of the mesh, once they are known.
    pub(super) scope: watch::Receiver<Option<Arc<Scope>>>,
    /// The API server can be reached again.
    pub(super) reached: Arc<Notify>,
    /// Takes what is learnt.
    pub(super) changes: mpsc::Sender<(Kind, Change)>,
    /// Draws the jitter of waits.
    pub(super) env: Env,
    /// Counts.
    pub(super) metrics: SourceMetrics,
}

/// Follows one kind.
pub(super) struct Follower {
    kind: Kind,
    keep: &'static Keep,
    shared: Shared,
    /// The namespaces that were listed since they entered.
    listed: Scope,
    /// Whether the API server can stream lists, as far as is known.
    streaming: bool,
    lists: u64,
    watches: u64,
    /// Whether the API server has said anything in this session.
    progressed: bool,
    /// When the API server said something last.
    heard: Instant,
    failing_since: Option<Instant>,
    reported: Option<failure::Trouble>,
    /// Whether changes arrive as they happen, as far as is known.
    followed: bool,
}

/// The source has ended.
struct SourceEnded;

/// Why a session ended.
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

impl Follower {
    /// Follows this kind.
    pub(super) fn new(kind: Kind, shared: Shared) -> Self {
        Self {
            kind,
            keep: keep::of(kind),
            shared,
            listed: Scope::new(),
            streaming: true,
            lists: 0,
            watches: 0,
            progressed: false,
            heard: Instant::now(),
            failing_since: None,
            reported: None,
            followed: false,
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
                Some(Place::Missing(others)) => self.send(Change::Missing(others)).await.ok()?,
                None => {}
            }
            self.shared.places.changed().await.ok()?;
        }
    }

    /// Follows a resource until the source ends.
    async fn follow(&mut self, resource: &Resource) {
        let (mut resume, mut attempt) = (None, 0);
        // Another resource may have been followed before.
        if self.set_followed(false).await.is_err() {
            return;
        }
        loop {
            self.progressed = false;
            let stop = self.session(resource, &mut resume).await;
            if self.progressed {
                attempt = 0;
            }
            let random = self.shared.env.random_u64().unwrap_or_default();
            let wait = match stop {
                Ok(()) => failure::reopen(if self.progressed { 0 } else { attempt + 1 }, random),
                Err(Stop::SourceEnded) => return,
                Err(Stop::Failed(failure)) => {
                    debug!(kind = %self.kind, %failure, attempt, "reading from the API server broke off");
                    if !failure.keeps_version() {
                        resume = None;
                    }
                    if failure.is_missing() {
                        self.shared.look_again.notify_one();
                    }
                    if self.set_followed(false).await.is_err() || self.report(&failure).await.is_err() {
                        return;
                    }
                    failure.wait(attempt, random)
                }
            };
            attempt = attempt.saturating_add(1);
            self.wait(wait, random).await;
        }
    }

    /// Waits, but not much longer than until another follower has reached the API server.
    async fn wait(&self, wait: Duration, random: u64) {
        if wait.is_zero() {
            return;
        }
        let soon =
            RETURN_WITHIN.mul_f64(f64::from(u32::try_from(random % 1000).unwrap_or_default()) / 1000.0);
        tokio::select! {
            () = sleep(wait) => {}
            () = self.shared.reached.notified(), if wait > RETURN_WITHIN => sleep(soon).await,
        }
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
        if self.failing_since.take().is_some() {
            self.shared.reached.notify_waiters();
        }
        if self.reported.take().is_none() {
            return Ok(());
        }
        tracing::info!(kind = %self.kind, "objects can be read from the API server again");
        self.send(Change::Trouble(None)).await
    }

    async fn set_followed(&mut self, followed: bool) -> Result<(), SourceEnded> {
        if std::mem::replace(&mut self.followed, followed) == followed {
            return Ok(());
        }
        self.send(Change::Followed(followed)).await
    }

    /// Lists if there is no version to go on from, then watches until the watch ends in order.
    async fn session(&mut self, resource: &Resource, resume: &mut Option<String>) -> Result<(), Stop> {
        let scope = self.scope().await?;
        let seconds = WATCH_SECONDS + self.shared.env.random_u64().unwrap_or_default() % WATCH_SPREAD;
        let path = resource.path();
        self.watches += 1;
        if self.watches > 1 {
            self.shared.metrics.watched_again(self.kind);
        }
        let mut lines = if let Some(version) = resume.as_deref() {
            self.shared.reader.watch(&path, version, seconds).await?
        } else {
            self.lists += 1;
            if self.lists > 1 {
                self.shared.metrics.listed_again(self.kind);
            }
            if self.streaming {
                match self.stream(resource, seconds, &scope, resume).await? {
                    Some(lines) => lines,
                    None => return Ok(()),
                }
            } else {
                let ended = self.list(resource, &path, resume).await?;
                self.listed = (*scope).clone();
                self.send(Change::ListEnded(ended, scope)).await?;
                let version = resume.clone().unwrap_or_default();
                self.shared.reader.watch(&path, &version, seconds).await?
            }
        };
        self.works().await?;
        self.watch(resource, &mut lines, resume).await
    }

    /// Lists by a watch that begins with all objects. Returns the rest of the watch; `None` if the list
    /// shall be read in pages instead.
    async fn stream(
        &mut self,
        resource: &Resource,
        seconds: u64,
        scope: &Arc<Scope>,
        resume: &mut Option<String>,
    ) -> Result<Option<Lines>, Stop> {
        let outcome = self.stream_list(resource, seconds, resume).await;
        match outcome {
            Ok((lines, ended)) => {
                self.listed = (**scope).clone();
                self.send(Change::ListEnded(ended, Arc::clone(scope))).await?;
                Ok(Some(lines))
            }
            Err(Stop::Failed(failure)) if failure.refuses_streaming() => {
                debug!(kind = %self.kind, %failure, "lists are read in pages, since they cannot be streamed");
                self.streaming = false;
                self.progressed = true;
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    async fn stream_list(
        &mut self,
        resource: &Resource,
        seconds: u64,
        resume: &mut Option<String>,
    ) -> Result<(Lines, Ended), Stop> {
        let mut lines = self.shared.reader.streaming_list(&resource.path(), seconds).await?;
        self.send(Change::ListBegun).await?;
        let mut complete = true;
        loop {
            let line = match timeout(PAUSE_LIMIT, lines.next()).await {
                Ok(Some(line)) => line.map_err(Failure::Unreachable)?,
                Ok(None) => return Err(Failure::Malformed("the list broke off".to_owned()).into()),
                Err(_) => return Err(Failure::Endless.into()),
            };
            self.progressed();
            match self.event(&line)? {
                None | Some(Event::Unnamed) => complete = false,
                Some(Event::Applied(object)) => self.object(resource, object, Change::Listed).await?,
                Some(Event::Deleted(object)) => self.object(resource, object, Change::Deleted).await?,
                Some(Event::Bookmark { version, initial_end: true }) => {
                    let ended = Ended { version: Version::new(&version), complete };
                    *resume = Some(version);
                    return Ok((lines, ended));
                }
                Some(Event::Bookmark { .. }) => {}
                Some(Event::Error(status)) => {
                    return Err(Failure::Refused { status, retry_after: None }.into());
                }
            }
        }
    }

    /// Lists in pages.
    async fn list(
        &mut self,
        resource: &Resource,
        path: &str,
        resume: &mut Option<String>,
    ) -> Result<Ended, Stop> {
        self.send(Change::ListBegun).await?;
        let (mut next, mut version) = (None::<String>, None);
        let (mut limit, mut complete) = (PageLimit::new(), true);
        loop {
            let page = match self.shared.reader.page(path, next.as_deref(), limit.get(), "").await {
                Err(Failure::TooLarge { .. }) if limit.too_large() => continue,
                page => page?,
            };
            limit.fitted();
            self.progressed();
            if page.unnamed > 0 {
                warn!(kind = %self.kind, count = page.unnamed, "objects without a readable name; skipped");
                complete = false;
            }
            for object in page.items {
                self.object(resource, object, Change::Listed).await?;
            }
            // The pages are of one version, that of the first.
            let version = version.get_or_insert(page.version);
            next = page.next;
            if next.is_none() {
                let ended = Ended { version: Version::new(version), complete };
                *resume = Some(version.clone());
                return Ok(ended);
            }
        }
    }

    /// Reads events until the watch ends in order, and lists namespaces that enter the mesh.
    async fn watch(
        &mut self,
        resource: &Resource,
        lines: &mut Lines,
        resume: &mut Option<String>,
    ) -> Result<(), Stop> {
        let mut scope = self.shared.scope.clone();
        let follows_scope = extent(self.kind) == Extent::Mesh;
        let opened = Instant::now();
        loop {
            while let Some((namespace, entry)) = self.unlisted() {
                // Between two events: what the watch says meanwhile waits, and is compared with the list.
                let ended = self.list(resource, &resource.path_in(&namespace), &mut None).await?;
                self.listed.insert(namespace.clone(), entry);
                self.send(Change::NamespaceEnded(ended, namespace, entry)).await?;
            }
            let quiet_at = (Instant::now() + QUIET).min(opened + MOST_UNTIL_QUIET);
            let line = tokio::select! {
                changed = scope.changed(), if follows_scope => {
                    changed.map_err(|_| SourceEnded)?;
                    continue;
                }
                line = timeout(SILENCE, lines.next()) => line,
                () = until((!self.followed).then_some(quiet_at)) => {
                    self.set_followed(true).await?;
                    continue;
                }
            };
            let line = match line {
                Ok(Some(line)) => line.map_err(Failure::Unreachable)?,
                Ok(None) => return Ok(()),
                Err(_) => {
                    debug!(kind = %self.kind, "a watch is silent; it is opened again");
                    if self.heard.elapsed() >= LONG_SILENCE {
                        self.heard = Instant::now();
                        *resume = None;
                    }
                    // It is no failure: opening it again shows whether the API server answers.
                    self.progressed = true;
                    return Ok(());
                }
            };
            self.progressed();
            match self.event(&line)? {
                None | Some(Event::Unnamed) => {}
                Some(Event::Applied(object)) => {
                    remember(resume, &object);
                    self.object(resource, object, Change::Applied).await?;
                }
                Some(Event::Deleted(object)) => {
                    remember(resume, &object);
                    self.object(resource, object, Change::Deleted).await?;
                }
                Some(Event::Bookmark { version, .. }) => *resume = Some(version),
                Some(Event::Error(status)) => {
                    return Err(Failure::Refused { status, retry_after: None }.into());
                }
            }
        }
    }

    /// A namespace of the mesh in which this kind was not listed since it entered.
    fn unlisted(&mut self) -> Option<(String, u64)> {
        if extent(self.kind) != Extent::Mesh {
            return None;
        }
        let scope = self.shared.scope.borrow().clone()?;
        self.listed.retain(|namespace, _| scope.contains_key(namespace));
        let mut unlisted =
            scope.iter().filter(|(namespace, entry)| self.listed.get(*namespace) != Some(entry));
        unlisted.next().map(|(namespace, entry)| (namespace.clone(), *entry))
    }

    /// The namespaces of the mesh, once they are known; for a kind that is not read by namespace, none.
    async fn scope(&mut self) -> Result<Arc<Scope>, SourceEnded> {
        if extent(self.kind) != Extent::Mesh {
            return Ok(Arc::default());
        }
        let mut scope = self.shared.scope.clone();
        let known = scope.wait_for(Option::is_some).await.map_err(|_| SourceEnded)?;
        Ok(known.clone().unwrap_or_default())
    }

    /// The event on a line; `None` for a line that is too long, which is an object that cannot be read.
    fn event(&self, line: &Line) -> Result<Option<Event>, Failure> {
        match line {
            Line::Text(text) => {
                let event = message::event(text).map_err(|error| Failure::Malformed(error.to_string()))?;
                if event == Event::Unnamed {
                    warn!(kind = %self.kind, "an event of an object without a readable name; skipped");
                }
                Ok(Some(event))
            }
            Line::TooLong => {
                warn!(kind = %self.kind, "an object is too long to be read; it stays as it was");
                Ok(None)
            }
        }
    }

    /// Hands an object on.
    async fn object(
        &self,
        resource: &Resource,
        object: Object,
        change: impl FnOnce(Content) -> Change,
    ) -> Result<(), SourceEnded> {
        let read = object.read(self.keep, &resource.api_version, self.kind);
        let content = read.map_err(|why| (object.read_name(&resource.api_version, self.kind), why));
        self.send(change(content)).await
    }

    fn progressed(&mut self) {
        self.progressed = true;
        self.heard = Instant::now();
        self.shared.metrics.heard(self.shared.env.now());
    }

    async fn send(&self, change: Change) -> Result<(), SourceEnded> {
        self.shared.changes.send((self.kind, change)).await.map_err(|_| SourceEnded)
    }
}

/// Takes note of the version that a watch has come to.
fn remember(resume: &mut Option<String>, object: &Object) {
    if !object.version().is_empty() {
        *resume = Some(object.version().to_owned());
    }
}
