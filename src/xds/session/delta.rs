//! One type on a Delta stream.
//!
//! Owns what the client holds, by name and version, and how that differs from the view. The rules and their
//! sources:
//!
//! - A stream begins with what the client holds (`initial_resource_versions`): equal versions are
//!   skipped, names that the view no longer has are removed. Versions are hashes of content, so any
//!   replica may have sent them.
//! - CDS and LDS are wildcard subscriptions if the first request names nothing (the legacy form), names
//!   `*`, or states held resources: a reconnecting Envoy may list names as well and still means all
//!   (consul#12174).
//! - A name subscribed to on a running stream is answered even if the client seems to hold it: it may
//!   have dropped the resource and subscribed again before the server knew (`discovery.proto`). A name
//!   that does not exist is answered with a removal, because Envoy waits for an answer (envoy#9934).
//! - After a cluster its EDS resource is sent again. Envoy holds a changed cluster back until endpoints
//!   arrive, but its Delta subscription already has that name, so it does not request it (envoy#13009).
//!   A resuming client shows that it still waits by subscribing to EDS before CDS ([`super::order`]);
//!   it does not say for which clusters, so all endpoints that it names are sent again.
//! - A rejected response is sent again in halves, down to the single resource that is at fault: at most
//!   twice as many responses as it had resources, each after the answer to the previous one.

mod answers;
mod comparison;
mod entries;
mod held;
mod stale;
mod subscriptions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::entries::{Entries, Entry};
use self::held::Held;
use self::stale::Stale;
use super::limits::weight;
use super::rejection::Rejection;
use super::request::{NameList, Request};
use super::status::TypeStatus;
use super::type_state::{Begun, ClusterProgress, Context, Outgoing, SendPolicy, TypeState, Usage};
use super::work::Work;
use super::{Response, Variant};
use crate::resource::{Resource, ResourceType, Version};
use crate::revision::Revision;
use crate::served_state::View;

/// The name that subscribes to everything.
const WILDCARD: &str = "*";

#[derive(Debug)]
pub(super) struct DeltaState {
    kind: ResourceType,
    registered: bool,
    wildcard: bool,
    /// The names that the client subscribed to or holds.
    entries: Entries,
    /// Names not yet compared with the latest view.
    stale: Stale,
    /// Names that the view has and the client needs.
    to_send: BTreeSet<Arc<str>>,
    /// Names that the view does not have, to be removed at the client.
    to_remove: BTreeSet<Arc<str>>,
    /// Names that the client waits for: to be answered even if it seems to hold them.
    must_answer: BTreeSet<Arc<str>>,
    /// Groups of names from a rejected response, each to be sent again on its own.
    bisecting: VecDeque<Vec<Arc<str>>>,
    /// The conclusive rejections.
    rejected: BTreeMap<Arc<str>, Rejection>,
    in_flight: Option<InFlight>,
    /// A response is due even if it is empty.
    response_due: bool,
    last_nonce: Option<u64>,
    work: Work,
}

#[derive(Debug)]
struct InFlight {
    nonce: u64,
    /// Sorted by name.
    sent: Vec<(Arc<str>, Version)>,
    /// Sorted.
    removed: Vec<Arc<str>>,
    /// The memory that the names in `removed` take.
    removed_bytes: usize,
    /// Some names in `sent` are new to the client.
    has_new_names: bool,
}

impl DeltaState {
    fn held(&self, name: &str) -> Held {
        self.entries.get(name).map_or(Held::Nothing, |entry| entry.held)
    }

    fn wanted(&self, name: &str) -> bool {
        self.wildcard || self.entries.get(name).is_some_and(|entry| entry.subscribed)
    }
}

#[cfg(test)]
impl DeltaState {
    /// Every name that is stored anywhere.
    pub(super) fn kept(&self) -> BTreeSet<Arc<str>> {
        let mut kept: BTreeSet<_> = self.entries.iter().map(|(name, _)| Arc::clone(name)).collect();
        kept.extend(self.stale.names().iter().cloned());
        kept.extend([&self.to_send, &self.to_remove, &self.must_answer].into_iter().flatten().cloned());
        kept.extend(self.bisecting.iter().flatten().chain(self.rejected.keys()).cloned());
        if let Some(in_flight) = &self.in_flight {
            kept.extend(in_flight.removed.iter().chain(in_flight.sent.iter().map(|(name, _)| name)).cloned());
        }
        kept
    }
}

impl TypeState for DeltaState {
    const EMPTY_IS_HARMLESS: bool = true;

    fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            registered: false,
            wildcard: false,
            entries: Entries::default(),
            stale: Stale::default(),
            to_send: BTreeSet::new(),
            to_remove: BTreeSet::new(),
            must_answer: BTreeSet::new(),
            bisecting: VecDeque::new(),
            rejected: BTreeMap::new(),
            in_flight: None,
            response_due: false,
            last_nonce: None,
            work: Work::default(),
        }
    }

    fn resumes(request: &Request) -> bool {
        request.total(NameList::Held).count > 0
    }

    fn begin(&mut self, request: &Request) -> Begun {
        if self.registered {
            let lists = &[NameList::Unsubscribed, NameList::Subscribed];
            return Begun { verdict: self.on_answer(request), lists };
        }
        let subscribed = request.total(NameList::Subscribed);
        let names_nothing = subscribed.count + request.total(NameList::Unsubscribed).count == 0;
        self.registered = true;
        self.wildcard =
            subscribed.wildcard || (self.kind.is_wildcard() && (names_nothing || Self::resumes(request)));
        Begun { verdict: None, lists: &[NameList::Held, NameList::Subscribed] }
    }

    fn take_in(&mut self, list: NameList, name: &str, held: Option<Version>, context: &Context<'_>) {
        self.work.add(1);
        match list {
            NameList::Held => {
                let held = held.map_or(Held::UnknownVersion, Held::At);
                self.entries.insert(self.intern(name, context), Entry { subscribed: false, held });
            }
            NameList::Subscribed if context.first => self.subscribe_first(name, context),
            // Subscriptions count even with a stale nonce: the client states each only once.
            NameList::Subscribed => self.subscribe(name, context),
            NameList::Unsubscribed => self.unsubscribe(name),
        }
    }

    fn finish(&mut self, request: &Request, context: &Context<'_>) {
        if !context.first {
            return;
        }
        if !self.wildcard {
            self.entries.retain_subscribed();
        }
        self.stale.add_all();
        // Envoy resets its reconnect back-off only when it receives a message, and a starting Envoy
        // waits for the first answer to a wildcard subscription even if it is empty.
        let resumes = Self::resumes(request);
        self.response_due = !context.answered || (self.wildcard && !resumes);
    }

    fn settle(&mut self, view: &View, limit: usize) -> usize {
        self.compare_stale(view, limit)
    }

    fn take_work(&mut self) -> usize {
        self.work.take()
    }

    fn usage(&self) -> Usage {
        let removed = self.in_flight.as_ref().map_or(0, |in_flight| in_flight.removed_bytes);
        Usage { names: self.entries.len(), bytes: self.entries.bytes() + removed }
    }

    fn mark_changed(&mut self, name: &Arc<str>) {
        if self.wildcard || self.entries.contains(name) || self.must_answer.contains(name) {
            self.stale.add(Arc::clone(name));
        }
    }

    fn mark_all_changed(&mut self) {
        self.stale.add_all();
    }

    fn resend(&mut self, name: &Arc<str>) {
        self.must_answer.insert(Arc::clone(name));
        self.stale.add(Arc::clone(name));
    }

    fn next(&mut self, view: &View, policy: SendPolicy, nonce: u64) -> Option<Outgoing> {
        if self.in_flight.is_some() {
            return None;
        }
        let bisected = if policy.send && !policy.hold { self.next_bisected(view) } else { Vec::new() };
        let (resources, removed) = if policy.hold {
            (self.next_harmless(view), Vec::new())
        } else if bisected.is_empty() {
            self.compare_stale(view, usize::MAX);
            let to_send = if policy.send { std::mem::take(&mut self.to_send) } else { BTreeSet::new() };
            let resources = to_send.iter().filter_map(|name| view.get(self.kind, name)).map(Arc::clone);
            (resources.collect(), self.next_removals(policy))
        } else {
            (bisected, Vec::new())
        };
        let empty = resources.is_empty() && removed.is_empty();
        let may_be_empty = self.to_send.is_empty() || policy.probe;
        if empty && !(self.response_due && may_be_empty) {
            return None;
        }
        self.response_due = false;
        self.last_nonce = Some(nonce);
        self.work.add(resources.len() + removed.len());
        for name in resources.iter().map(|resource| &resource.name).chain(&removed) {
            self.must_answer.remove(name);
        }
        self.in_flight = Some(InFlight {
            nonce,
            sent: resources.iter().map(|r| (Arc::clone(&r.name), r.version)).collect(),
            removed: removed.clone(),
            removed_bytes: removed.iter().map(|name| weight(name)).sum(),
            has_new_names: resources.iter().any(|r| !self.held(&r.name).is_held()),
        });
        let warming = resources.iter().filter_map(|r| r.warms_on.clone()).collect();
        let response = Response {
            variant: Variant::Delta,
            kind: self.kind,
            version: String::new(),
            suffix: view.revision().map(Revision::suffix).unwrap_or_default(),
            nonce: nonce.to_string(),
            resources,
            removed,
        };
        Some(Outgoing { response, warming })
    }

    fn registered(&self) -> bool {
        self.registered
    }

    fn idle(&self) -> bool {
        self.in_flight.is_none() && !self.has_more()
    }

    fn has_more(&self) -> bool {
        let nothing = self.stale.is_empty() && self.to_send.is_empty() && self.to_remove.is_empty();
        !nothing || !self.bisecting.is_empty()
    }

    fn kept_old(&self) -> bool {
        self.rejected.keys().any(|name| self.held(name) != Held::Nothing)
    }

    fn progress(&self, view: &View) -> ClusterProgress {
        if !self.bisecting.is_empty() {
            return ClusterProgress::Unsent;
        }
        // True if the unanswered response adds this name, false if it removes it, none otherwise.
        let adds = |name: &str| {
            let in_flight = self.in_flight.as_ref()?;
            if in_flight.sent.binary_search_by(|(sent, _)| (**sent).cmp(name)).is_ok() {
                return Some(true);
            }
            in_flight.removed.binary_search_by(|removed| (**removed).cmp(name)).ok().map(|_| false)
        };
        let unsent = |name: &str| {
            let rejected =
                |r: &Arc<Resource>| self.rejected.get(name).is_some_and(|x| x.version == r.version);
            let exists = view.get(self.kind, name).is_some_and(|resource| !rejected(resource));
            exists && self.wanted(name) && !adds(name).unwrap_or_else(|| self.held(name).is_held())
        };
        let unsent = |name: &Arc<str>| {
            self.work.add(1);
            unsent(name)
        };
        let any_unsent = self.stale.names().iter().any(unsent)
            || (self.stale.sweeps() && view.all(self.kind).any(|resource| unsent(&resource.name)));
        if any_unsent || self.to_send.iter().any(unsent) {
            ClusterProgress::Unsent
        } else if self.in_flight.as_ref().is_some_and(|in_flight| in_flight.has_new_names) {
            ClusterProgress::Unanswered
        } else {
            ClusterProgress::Known
        }
    }

    fn rejected(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.rejected.iter().map(|(name, rejection)| (name, &rejection.message))
    }

    fn status(&self) -> TypeStatus {
        let mut acked = BTreeMap::new();
        for (name, entry) in self.entries.iter() {
            let version = match entry.held {
                Held::Nothing => continue,
                Held::MaybeApplied(_) | Held::UnknownVersion => "unknown".to_owned(),
                Held::At(version) => version.to_string(),
            };
            acked.insert(name.to_string(), version);
        }
        let mut sent = acked.clone();
        if let Some(in_flight) = &self.in_flight {
            for name in &in_flight.removed {
                sent.remove(&**name);
            }
            sent.extend(in_flight.sent.iter().map(|(name, version)| (name.to_string(), version.to_string())));
        }
        let rejected = self.rejected.iter().map(|(name, rejection)| (name.to_string(), rejection.status()));
        let subscribed = self.entries.iter().filter(|(_, entry)| entry.subscribed);
        TypeStatus {
            wildcard: self.wildcard,
            subscribed: subscribed.map(|(name, _)| name.to_string()).collect(),
            sent,
            acked,
            rejected: rejected.collect(),
            nonce: self.last_nonce,
            in_flight: self.in_flight.is_some(),
            pending: self.has_more(),
        }
    }
}
