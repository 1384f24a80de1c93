//! The watch of one kind.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{Follower, Reached, SourceEnded, Stop, Then};
use crate::source::failure::Failure;
use crate::source::lines::Lines;
use crate::source::message::Event;
use crate::source::object::Object;
use crate::source::resources::Resource;
use crate::source::store::{Change, Version};

/// How long a watch may say nothing before it is opened again, from the version that it has come to. An API
/// server sends a bookmark every minute, unless there is no newer version at all; a server that hangs is
/// silent too.
const SILENCE: Duration = Duration::from_secs(100);

/// How long watches may say nothing before everything is listed again.
const LONG_SILENCE: Duration = Duration::from_mins(10);

/// How much earlier than it was asked to an API server may end a watch that ends in order. One that ends
/// earlier ends because the API server does, or what is between.
const EARLY: Duration = Duration::from_secs(2);

/// Namespaces that enter together and are read one by one. If there are more, one list of everything
/// costs the API server less.
const NAMESPACES: usize = 4;

impl Follower {
    /// Goes on from what another watch has come to. `None` if everything has to be listed: the API server may
    /// have become another one meanwhile, or is at an earlier version and went back. The watch itself would
    /// be silent.
    pub(super) async fn resume(
        &mut self,
        resource: &Resource,
        Reached { opened, version }: Reached,
        seconds: u64,
    ) -> Result<Option<(Lines, String)>, Stop> {
        let path = resource.path();
        let head = self.shared.reader.head_version(&path).await?;
        let is_same = self.shared.uptime.borrow().covers(opened, Instant::now());
        if !is_same || Version::new(&head).is_before(Version::new(&version)) {
            return Ok(None);
        }
        let lines = self.shared.reader.watch(&path, &version, seconds).await?;
        Ok(Some((lines, version)))
    }

    /// Reads events until the watch ends, and reads namespaces that enter the mesh. Takes note of the version
    /// that the watch has come to.
    pub(super) async fn watch(
        &mut self,
        resource: &Resource,
        lines: &mut Lines,
        version: &mut String,
        ends: Instant,
    ) -> Result<Then, Stop> {
        let mut entered = true;
        loop {
            if std::mem::take(&mut entered) {
                let unread = self.unread();
                if unread.len() > NAMESPACES {
                    return Ok(Then::List);
                }
                // Between two events: what the watch says meanwhile waits.
                for (namespace, entry) in unread {
                    self.list_namespace(resource, &namespace, entry, version).await?;
                }
            }
            let line = tokio::select! {
                biased;
                changed = self.shared.scope.changed(), if self.kind.spec().extent.follows_namespaces() => {
                    changed.map_err(|_| SourceEnded)?;
                    entered = true;
                    continue;
                }
                line = timeout(SILENCE, lines.next()) => line,
            };
            let line = match line {
                Ok(Some(line)) => line.map_err(Failure::Unreachable)?,
                Ok(None) if Instant::now() + EARLY >= ends => return Ok(Then::Watch),
                Ok(None) => return Err(Failure::CutShort.into()),
                Err(_) => {
                    debug!(kind = %self.kind, "a watch is silent; it is opened again");
                    let long = self.heard.elapsed() >= LONG_SILENCE;
                    if long {
                        self.heard = Instant::now();
                    }
                    // It is no failure: opening it again shows whether the API server answers.
                    return Ok(if long { Then::List } else { Then::Watch });
                }
            };
            self.heard();
            match self.event(&line)? {
                Event::Unnamed => {}
                Event::Applied(object) => {
                    let change = self.arrived(resource, &object).map(Change::Applied);
                    self.pass(version, &object, change).await?;
                }
                Event::Deleted(object) => {
                    let change =
                        self.named(&object).map(|(reference, version)| Change::Deleted(reference, version));
                    self.pass(version, &object, change).await?;
                }
                Event::Bookmark { version: to, .. } => {
                    self.send(Change::Passed(Version::new(&to))).await?;
                    reach(version, &to);
                }
                Event::Error(status) => return Err(Failure::Refused { status, retry_after: None }.into()),
            }
        }
    }

    /// Hands an event on, and takes note of its version.
    async fn pass(
        &self,
        version: &mut String,
        object: &Object,
        change: Option<Change>,
    ) -> Result<(), SourceEnded> {
        if !object.version().is_empty() {
            reach(version, object.version());
        }
        // An object of another mesh is dropped, and its version counts.
        self.send(change.unwrap_or(Change::Passed(Version::new(object.version())))).await
    }

    /// The namespaces in reach in which this kind was not read since they entered.
    fn unread(&mut self) -> Vec<(String, u64)> {
        if !self.kind.spec().extent.follows_namespaces() {
            return Vec::new();
        }
        let Some(scope) = self.shared.scope.borrow_and_update().clone() else { return Vec::new() };
        let scope = self.in_reach(scope);
        if self.following.iter().any(|(namespace, entry)| scope.get(namespace) != Some(entry)) {
            Arc::make_mut(&mut self.following).retain(|namespace, entry| scope.get(namespace) == Some(entry));
        }
        let unread = scope.iter().filter(|(namespace, _)| !self.following.contains_key(*namespace));
        unread.map(|(namespace, entry)| (namespace.clone(), *entry)).collect()
    }
}

/// Takes note of a version. An earlier one is a repetition.
fn reach(version: &mut String, to: &str) {
    if !Version::new(to).is_before(Version::new(version)) {
        to.clone_into(version);
    }
}
