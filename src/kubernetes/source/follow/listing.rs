//! Lists of one kind: as a stream or in pages, of the cluster or of a namespace.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use super::{Follower, SourceEnded, Stop};
use crate::source::failure::Failure;
use crate::source::lines::{Line, Lines};
use crate::source::message::{self, Event};
use crate::source::object::Object;
use crate::source::reader::{PAUSE_LIMIT, exact};
use crate::source::resources::Resource;
use crate::source::store::{Change, Ended, Scope, Version};

/// How long a list may be streamed: where the API server does not know such lists, what changes may never
/// pause. A list that is so long comes in pages as well.
const STREAM_LIMIT: Duration = Duration::from_mins(1);

impl Follower {
    /// Lists everything. Returns the watch that follows, and its version; `None` if the list has to be asked
    /// for in another way.
    pub(super) async fn list(
        &mut self,
        resource: &Resource,
        seconds: u64,
    ) -> Result<Option<(Lines, String)>, Stop> {
        if self.streaming && self.shared.streams.load(Ordering::Relaxed) {
            return match self.stream(resource, seconds).await {
                Err(Stop::Failed(failure)) if failure.fails_streaming() => {
                    debug!(kind = %self.kind, %failure, "lists are read in pages, since they cannot be streamed");
                    self.streaming = false;
                    self.shared.streams.fetch_and(!failure.refuses_streaming(), Ordering::Relaxed);
                    Ok(None)
                }
                streamed => streamed,
            };
        }
        let path = resource.path();
        self.following = self.scope().await?;
        self.send(Change::ListBegun(None)).await?;
        let (version, complete) = self.pages(resource, &path, "").await?;
        let ended = Ended { version: Version::new(&version), complete };
        self.send(Change::ListEnded(ended, Arc::clone(&self.following))).await?;
        let lines = self.shared.reader.watch(&path, &version, seconds).await?;
        Ok(Some((lines, version)))
    }

    /// Lists by a watch that begins with all objects.
    ///
    /// The request does not wait for the namespaces, so that what the API server asks every kind to
    /// wait for (429, while it prepares) passes for all kinds at once. Its body does: what has not been
    /// read of it stays at the API server, in bounded windows.
    async fn stream(&mut self, resource: &Resource, seconds: u64) -> Result<Option<(Lines, String)>, Stop> {
        if !self.eager {
            self.scope().await?;
            if !self.shared.streams.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        let mut lines = self.shared.reader.streaming_list(&resource.path(), seconds).await?;
        let Ok(scope) = timeout(PAUSE_LIMIT, self.scope()).await else {
            // A list that is not read is closed by the API server at last; the next one waits before it
            // is asked for.
            self.eager = false;
            return Ok(None);
        };
        self.following = scope?;
        if !self.shared.streams.load(Ordering::Relaxed) {
            // Another kind has waited in vain for the end of a stream.
            return Ok(None);
        }
        self.send(Change::ListBegun(None)).await?;
        let (mut complete, began) = (true, Instant::now());
        loop {
            let until = (Instant::now() + PAUSE_LIMIT).min(began + STREAM_LIMIT);
            let line = match timeout_at(until, lines.next()).await {
                Ok(Some(line)) => line.map_err(Failure::Unreachable)?,
                Ok(None) => return Err(Failure::CutShort.into()),
                Err(_) => return Err(Failure::Endless.into()),
            };
            self.heard();
            match self.event(&line)? {
                Event::Unnamed => complete = false,
                Event::Applied(object) => self.listed(resource, &object).await?,
                // A server whose cache was behind sends what happened since, too (KEP-3157).
                Event::Deleted(object) => {
                    if let Some((reference, _)) = self.named(&object) {
                        self.send(Change::Unlisted(reference)).await?;
                    }
                }
                // The first bookmark of a streamed list is its end (KEP-3157).
                Event::Bookmark { initial_end: false, .. } => return Err(Failure::Endless.into()),
                Event::Bookmark { version, initial_end: true } => {
                    let ended = Ended { version: Version::new(&version), complete };
                    self.send(Change::ListEnded(ended, Arc::clone(&self.following))).await?;
                    return Ok(Some((lines, version)));
                }
                Event::Error(status) => return Err(Failure::Refused { status, retry_after: None }.into()),
            }
        }
    }

    /// Reads a namespace that entered the mesh, as it was at the version up to which the watch has come, so
    /// that all of the kind is of one version.
    pub(super) async fn list_namespace(
        &mut self,
        resource: &Resource,
        namespace: &str,
        entry: u64,
        version: &str,
    ) -> Result<(), Stop> {
        // Before the list, so that its objects count.
        Arc::make_mut(&mut self.following).insert(namespace.to_owned(), entry);
        self.send(Change::ListBegun(Some(namespace.to_owned()))).await?;
        let pages = self.pages(resource, &resource.path_in(namespace), &exact(version)).await;
        if pages.is_err() {
            Arc::make_mut(&mut self.following).remove(namespace);
        }
        let (of, complete) = pages?;
        let ended = Ended { version: Version::new(&of), complete };
        self.send(Change::NamespaceEnded(ended, namespace.to_owned(), entry)).await?;
        Ok(())
    }

    /// Reads a list in pages. Returns its version, and whether every object had a name.
    async fn pages(&mut self, resource: &Resource, path: &str, query: &str) -> Result<(String, bool), Stop> {
        let (mut next, mut version, mut complete) = (None::<String>, None, true);
        loop {
            // The pages after the first are of its version by their token.
            let query = if next.is_some() { "" } else { query };
            let limit = self.pages.get();
            let page = match self.shared.reader.page(path, next.as_deref(), limit, query).await {
                Err(Failure::TooLarge { .. }) if self.pages.too_large() => continue,
                page => page?,
            };
            self.pages.fitted();
            self.heard();
            complete &= page.unnamed == 0;
            for object in &page.items {
                self.listed(resource, object).await?;
            }
            let version = version.get_or_insert(page.version);
            next = page.next;
            if next.is_none() {
                return Ok((version.clone(), complete));
            }
        }
    }

    async fn listed(&self, resource: &Resource, object: &Object) -> Result<(), SourceEnded> {
        match self.arrived(resource, object) {
            Some(arrived) => self.send(Change::Listed(arrived)).await,
            None => Ok(()),
        }
    }

    /// The event on a line. A line that is too long is of an object that cannot be read.
    pub(super) fn event(&self, line: &Line) -> Result<Event, Failure> {
        match line {
            Line::Text(text) => message::event(text).map_err(|error| Failure::Malformed(error.to_string())),
            Line::TooLong => {
                warn!(kind = %self.kind, "an object is too long to be read; it stays as it was");
                Ok(Event::Unnamed)
            }
        }
    }

    /// The namespaces that are read, once they are known; for a kind that is not read by namespace, none.
    async fn scope(&mut self) -> Result<Arc<Scope>, SourceEnded> {
        if !self.kind.spec().extent.follows_namespaces() {
            return Ok(Arc::default());
        }
        let known = self.shared.scope.wait_for(Option::is_some).await.map_err(|_| SourceEnded)?.clone();
        Ok(self.in_reach(known.unwrap_or_default()))
    }
}
