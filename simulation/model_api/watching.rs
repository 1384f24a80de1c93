//! One watch: the events of a kind, in their order, as the watch cache reads them.
//!
//! Owns what is sent and when, and how it goes wrong.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::faults::{Command, Fault, Refusal};
use super::history::{Change, Held, Key};
use super::http::{Refused, cut};
use super::resources::Resource;
use super::routes::Place;
use super::server::{Server, State};

/// How often a watch gets a bookmark.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// Where a watch begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    /// With all objects as of a version that is at least this or the latest, and a bookmark.
    Stream(Option<u64>),
    /// With all objects as they are known.
    Anything,
    /// After a version.
    Version(u64),
}

/// How a watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    InOrder,
    Broken,
}

pub(super) struct Watch {
    server: Server,
    resource: &'static Resource,
    place: Option<Place>,
    signal: watch::Receiver<u64>,
    /// The version up to which it has sent everything, once `pieces` are sent.
    after: u64,
    /// The version that ends the list which it begins with.
    list_ends: Option<u64>,
    pieces: VecDeque<Bytes>,
    bookmarks: bool,
    bookmark_at: Instant,
    ends_at: Instant,
    /// How it ends after `pieces`.
    end: Option<End>,
    /// What it has seen of commands and of returns.
    commands: usize,
    returns: usize,
    /// It says nothing until then, and ends then if so; for ever without a time.
    silent: Option<(Option<Instant>, bool)>,
}

impl Watch {
    pub(super) fn open(
        server: &Server,
        resource: &'static Resource,
        place: Option<Place>,
        from: From,
        span: Duration,
        bookmarks: bool,
    ) -> Result<Self, Refused> {
        let (now, kind) = (Instant::now(), resource.kind);
        let signal = server.signal(kind);
        let mut state = server.state();
        let read = state.read(kind, now);
        let spread = Duration::from_millis(server.random().below(5000));
        let mut watch = Self {
            server: server.clone(),
            resource,
            place,
            signal,
            after: read,
            list_ends: None,
            pieces: VecDeque::new(),
            bookmarks: bookmarks && server.setup().bookmarks,
            bookmark_at: now + BOOKMARKS + spread,
            ends_at: now + span,
            end: None,
            commands: state.commands.get(&kind).map_or(0, Vec::len),
            returns: state.returns.len(),
            silent: None,
        };
        match from {
            From::Version(version) => {
                watch.after = version;
                let compacted = state.history.compacted();
                if version < compacted {
                    state.tally.excuse(kind);
                    let refused = Refused::expired(version, compacted);
                    if !server.setup().expires_in_stream {
                        return Err(refused);
                    }
                    watch.push(event("ERROR", &refused.object()));
                    watch.end = Some(End::InOrder);
                }
            }
            From::Stream(_) | From::Anything => {
                if let From::Stream(version) = from {
                    watch.list_ends = Some(version.unwrap_or(state.history.version()));
                }
                let objects = state.history.objects_at(kind, read).clone();
                for (key, held) in &objects {
                    watch.push_event("ADDED", *key, *held);
                }
            }
        }
        drop(state);
        Ok(watch)
    }

    /// What it sends.
    pub(super) fn body(self) -> BoxStream<'static, Result<Bytes, io::Error>> {
        let pieces = stream::unfold(Some(self), async |watch| {
            let mut watch = watch?;
            match watch.next().await {
                Ok(piece) => piece.map(|piece| (Ok(piece), Some(watch))),
                Err(broken) => Some((Err(broken), None)),
            }
        });
        pieces.boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, io::Error> {
        loop {
            if let Some(ends) = self.hangs() {
                sleep_until(ends).await;
                continue;
            }
            if let Some(piece) = self.pieces.pop_front() {
                self.pause().await;
                return Ok(Some(piece));
            }
            match self.end {
                Some(End::InOrder) => return Ok(None),
                Some(End::Broken) => return Err(io::ErrorKind::ConnectionReset.into()),
                None => {}
            }
            self.signal.borrow_and_update();
            let next = self.gather();
            if self.pieces.is_empty() && self.end.is_none() {
                tokio::select! {
                    // The sender is a part of the server.
                    _ = self.signal.changed() => {}
                    () = sleep_until(next) => {}
                }
            }
        }
    }

    fn hangs(&self) -> Option<Instant> {
        self.server.state().faults.ends(Fault::Hang, Instant::now())
    }

    /// Now and then, what comes next is late.
    async fn pause(&self) {
        let (random, setup) = (self.server.random(), self.server.setup());
        if setup.pause > 0 && random.percent(setup.cut) {
            sleep(Duration::from_millis(random.below(setup.pause + 1))).await;
        }
    }

    /// Takes up what is to be sent now. Returns when there may be more.
    fn gather(&mut self) -> Instant {
        let (now, kind, server) = (Instant::now(), self.resource.kind, self.server.clone());
        let mut state = server.state();
        for back in &state.returns[self.returns..] {
            if back.telling {
                self.after = self.after.min(back.version);
            }
        }
        self.returns = state.returns.len();
        self.obey(&mut state, now);
        if state.faults.holds(Fault::Gone(kind), now) {
            self.leave(&mut state);
        }
        if self.end.is_some() {
            return now;
        }
        let mut next = self.ends_at;
        if let Some((until, ends)) = self.silent {
            match until {
                Some(until) if until <= now => {
                    self.silent = None;
                    self.end = ends.then_some(End::InOrder);
                    return now;
                }
                // A server that ends a watch in its time is not so silent.
                _ => return until.unwrap_or(now + Duration::from_hours(1)),
            }
        }
        let read = state.read(kind, now);
        self.take_changes(&mut state, read);
        if self.list_ends.is_some_and(|version| read >= version) {
            self.list_ends = None;
            if Place::is_all_of(self.place, kind) {
                state.note_listed(kind, now);
            }
            state.note_sent(self.after);
            self.push(bookmark(self.resource, self.after, true));
        }
        if self.bookmarks && now >= self.bookmark_at && self.list_ends.is_none() {
            self.bookmark_at = now + BOOKMARKS;
            let changed = state.history.changed(kind, read);
            let version = if server.setup().progress { self.after } else { changed };
            if version > 0 && version <= self.after {
                state.note_sent(version);
                self.push(bookmark(self.resource, version, false));
            }
        }
        if now >= self.ends_at {
            self.end = Some(End::InOrder);
        }
        if self.bookmarks {
            next = next.min(self.bookmark_at);
        }
        let changes_at = match self.list_ends {
            Some(version) => state.reads_at(kind, version, now),
            None => state.changes_at(kind, self.after, now),
        };
        changes_at.map_or(next, |at| next.min(at)).max(now + TICK)
    }

    fn take_changes(&mut self, state: &mut State, read: u64) {
        let changes: Vec<_> = state.history.changes(self.resource.kind, self.after, read).collect();
        for (version, change) in changes {
            state.note_sent(version);
            self.push_change(version, change);
        }
        self.after = self.after.max(read);
    }

    fn push_change(&mut self, version: u64, change: Change) {
        let (name, held) = match (change.before, change.after) {
            (None, Some(held)) => ("ADDED", held),
            (Some(_), Some(held)) => ("MODIFIED", held),
            (Some(held), None) => ("DELETED", Held { version, ..held }),
            (None, None) => return,
        };
        self.push_event(name, change.key, held);
    }

    /// The kind's definition is gone, and its objects before it; the watch may end without saying so.
    fn leave(&mut self, state: &mut State) {
        if self.server.random().percent(50) {
            self.take_changes(state, state.history.version());
        }
        self.end = Some(End::InOrder);
    }

    /// Takes note of what happened to the watches of this kind.
    fn obey(&mut self, state: &mut State, now: Instant) {
        let kind = self.resource.kind;
        let all = state.commands.get(&kind).map_or(&[][..], Vec::as_slice);
        let new: Vec<(Instant, Command)> = all.get(self.commands..).unwrap_or_default().to_vec();
        self.commands = all.len();
        for (since, command) in new {
            match command {
                Command::Close => self.end = Some(End::InOrder),
                Command::Cut { abruptly } => {
                    let read = state.read(kind, now);
                    self.take_changes(state, read);
                    state.note_sent(self.after);
                    self.push(bookmark(self.resource, self.after, false));
                    let whole: Vec<u8> = self.pieces.drain(..).flatten().collect();
                    let end = self.server.random().index(whole.len());
                    self.pieces.push_back(Bytes::from(whole).slice(..end));
                    self.end = Some(if abruptly { End::Broken } else { End::InOrder });
                }
                Command::Error(status) => {
                    let refused = Refused::drawn(Refusal { status, retry_after: None });
                    self.push(event("ERROR", &refused.object()));
                    self.end = Some(End::InOrder);
                }
                // Within the list that it begins with, old events would be new ones.
                Command::Repeat(_) if self.list_ends.is_some() => {}
                Command::Repeat(count) => {
                    let sent: Vec<_> = state.history.changes(kind, 0, self.after).collect();
                    for (version, change) in &sent[sent.len().saturating_sub(count.into())..] {
                        self.push_change(*version, *change);
                    }
                }
                Command::Silence { span, ends } => {
                    self.silent = Some((span.map(|span| since + span), ends));
                }
            }
        }
    }

    fn push_event(&mut self, name: &str, key: Key, held: Held) {
        if Place::has(self.place, key) {
            let object = self.server.json(self.resource, key, held, true);
            self.push(event(name, &object));
        }
    }

    fn push(&mut self, line: String) {
        let random = self.server.random();
        let line = Bytes::from(line);
        if random.percent(self.server.setup().cut) {
            self.pieces.extend(cut(random, &line));
        } else {
            self.pieces.push_back(line);
        }
    }
}

/// The shortest wait: time that does not move would be asked again and again.
const TICK: Duration = Duration::from_millis(1);

fn event(name: &str, object: &str) -> String {
    format!("{{\"type\":\"{name}\",\"object\":{object}}}\n")
}

fn bookmark(resource: &Resource, version: u64, ends_list: bool) -> String {
    let annotations = if ends_list { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let Resource { kind, api_version, .. } = resource;
    let meta = format!(r#"{{"resourceVersion":"{version}","creationTimestamp":null{annotations}}}"#);
    event("BOOKMARK", &format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta}}}"#))
}
