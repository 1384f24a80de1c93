//! One type on a Delta stream.
//!
//! Owns what the client holds, by name and version, and what differs from the view. The rules, and where
//! they come from:
//!
//! - A stream begins with what the client holds (`initial_resource_versions`): equal versions are skipped,
//!   what the view no longer has is removed. Versions are hashes of content, so it does not matter which
//!   replica sent them.
//! - CDS and LDS are wildcard subscriptions if the first request names nothing (the legacy form), names
//!   `*`, or says what is held: a reconnecting Envoy may list names as well and still means all
//!   (consul#12174).
//! - A name subscribed to on a running stream is answered whatever we believe the client holds, since it
//!   may have dropped the resource and asked again before it told us (`discovery.proto`). One that does
//!   not exist is answered with a removal, for else Envoy waits for it (envoy#9934).
//! - After a cluster its EDS resource goes out again. Envoy holds a changed cluster back until endpoints
//!   arrive, but its delta subscription, which has that name already, asks for nothing (envoy#13009). A
//!   client that resumes shows that it still waits by stating endpoints before clusters ([`super::order`]);
//!   for which, it does not say, so all that it names go out again.
//! - A refused response is sent again in halves, down to the single resource that is refused for good. At
//!   most twice as many responses as it had resources, each after the answer to the one before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use super::held::{Entries, Entry, Held, Stale};
use super::limits::{check_names, weight};
use super::rejection::{self, Rejection};
use super::status::{RejectedStatus, TypeStatus};
use super::track::{Context, Gates, MAX_RETAINED, Novelty, Outgoing, Tally, Track, Verdict};
use super::{ProtocolError, Response, Variant};
use crate::resource::{Resource, ResourceType, Version};
use crate::world::View;

/// The name that subscribes to everything.
const WILDCARD: &str = "*";

#[derive(Debug)]
pub(super) struct DeltaTrack {
    kind: ResourceType,
    registered: bool,
    wildcard: bool,
    /// What the client asked for or holds.
    entries: Entries,
    /// Names not yet compared with the latest view.
    stale: Stale,
    /// Names that the view has and the client must be sent.
    pending: BTreeSet<Arc<str>>,
    /// Names that the view does not have and the client must be told so.
    doomed: BTreeSet<Arc<str>>,
    /// Names that the client waits for: to be answered even if it seems to hold them.
    awaited: BTreeSet<Arc<str>>,
    /// Groups of names out of a refused response, to be sent again apart.
    suspects: VecDeque<Vec<Arc<str>>>,
    /// What the client refused when it was sent alone.
    rejected: BTreeMap<Arc<str>, Rejection>,
    in_flight: Option<InFlight>,
    /// Whether a response is due even if it is empty.
    must_answer: bool,
    last_nonce: Option<u64>,
}

#[derive(Debug)]
struct InFlight {
    nonce: u64,
    /// Sorted by name.
    sent: Vec<(Arc<str>, Version)>,
    /// Sorted.
    removed: Vec<Arc<str>>,
    /// What the names of those take.
    removed_bytes: usize,
    /// Whether it brings names that the client did not have.
    novel: bool,
}

impl DeltaTrack {
    fn held(&self, name: &str) -> Held {
        self.entries.get(name).map_or(Held::Nothing, |entry| entry.held)
    }

    fn wanted(&self, name: &str) -> bool {
        self.wildcard || self.entries.get(name).is_some_and(|entry| entry.subscribed)
    }

    /// Whether something waits to be compared or sent.
    fn has_more(&self) -> bool {
        let nothing = self.stale.is_empty() && self.pending.is_empty() && self.doomed.is_empty();
        !nothing || !self.suspects.is_empty()
    }

    fn subscribe(&mut self, name: &str, context: &Context<'_>) {
        if name == WILDCARD {
            self.must_answer |= !self.wildcard;
            self.wildcard = true;
            self.stale = Stale::Everything;
            return;
        }
        let name = self.intern(name, context);
        match self.entries.get_mut(&name) {
            Some(entry) => entry.subscribed = true,
            None => self.entries.insert(Arc::clone(&name), Entry { subscribed: true, held: Held::Nothing }),
        }
        self.awaited.insert(Arc::clone(&name));
        self.stale.add(name);
    }

    fn unsubscribe(&mut self, name: &str) {
        if name == WILDCARD {
            self.wildcard = false;
            self.entries.retain_subscribed();
            self.awaited.retain(|name| self.entries.contains(name));
            self.pending.retain(|name| self.entries.contains(name));
            self.doomed.retain(|name| self.entries.contains(name));
            self.rejected.retain(|name, _| self.entries.contains(name));
            self.stale = Stale::Everything;
            return;
        }
        let Some((name, mut entry)) = self.entries.remove(name) else { return };
        if self.wildcard {
            // Envoy cannot tell whether it still holds the resource by virtue of the wildcard; say it.
            entry.subscribed = false;
            self.entries.insert(Arc::clone(&name), entry);
            self.awaited.insert(Arc::clone(&name));
            self.stale.add(name);
        } else {
            // Forgotten in every place at once, not when it is next compared: a client that leaves a response
            // unanswered puts that off, and could meanwhile fill memory with names that count nowhere.
            self.awaited.remove(&name);
            self.pending.remove(&name);
            self.doomed.remove(&name);
            self.rejected.remove(&name);
            self.stale.remove(&name);
        }
    }

    /// The name as the view shares it, or a copy.
    fn intern(&self, name: &str, context: &Context<'_>) -> Arc<str> {
        let resource = context.view.and_then(|view| view.get(self.kind, name));
        resource.map_or_else(|| name.into(), |resource| Arc::clone(&resource.name))
    }

    fn on_answer(&mut self, request: &DeltaDiscoveryRequest) -> Option<Verdict> {
        // A nonce that is not that of the unanswered response is stale, or from another stream.
        let nonce: u64 = request.response_nonce.parse().ok()?;
        let answered = self.in_flight.take_if(|in_flight| in_flight.nonce == nonce)?;
        Some(match &request.error_detail {
            None => self.on_ack(answered),
            Some(error) => self.on_nack(answered, rejection::message(error)),
        })
    }

    fn on_ack(&mut self, answered: InFlight) -> Verdict {
        let verdict = Verdict::Acked {
            nonce: answered.nonce,
            resources: answered.sent.len(),
            removed: answered.removed.len(),
        };
        for (name, version) in answered.sent {
            self.rejected.remove(&name);
            self.set_held(name, Held::At(version));
        }
        self.forget(&answered.removed);
        verdict
    }

    fn on_nack(&mut self, answered: InFlight, message: Arc<str>) -> Verdict {
        let InFlight { nonce, mut sent, removed, .. } = answered;
        let names: Vec<_> = sent.iter().map(|(name, _)| Arc::clone(name)).collect();
        let conclusive = sent.len() <= 1 && (sent.is_empty() || removed.is_empty());
        if conclusive {
            // Alone, it is the culprit; what the client held of it stays in force. A removal that is
            // refused is not worth repeating.
            for (name, version) in sent {
                if self.wanted(&name) {
                    self.set_held(Arc::clone(&name), self.held(&name).refused(version));
                    let message = rejection::kept(&message, self.rejected.len());
                    self.rejected.insert(name, Rejection { version, message });
                }
            }
            self.forget(&removed);
        } else {
            for (name, version) in &sent {
                self.set_held(Arc::clone(name), self.held(name).in_doubt(*version));
            }
            let second = sent.split_off(sent.len().div_ceil(2));
            for half in [second, sent] {
                if !half.is_empty() {
                    self.suspects.push_front(half.into_iter().map(|(name, _)| name).collect());
                }
            }
            for name in removed.into_iter().filter(|name| self.entries.contains(name)) {
                self.stale.add(name);
            }
        }
        Verdict::Rejected { nonce, names, message, conclusive }
    }

    fn set_held(&mut self, name: Arc<str>, held: Held) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.held = held;
        } else if self.wildcard {
            self.entries.insert(name, Entry { subscribed: false, held });
        }
    }

    /// Notes that the client holds these no longer.
    fn forget(&mut self, names: &[Arc<str>]) {
        for name in names {
            match self.entries.get_mut(name) {
                Some(entry) if entry.subscribed => entry.held = Held::Nothing,
                _ => {
                    self.entries.remove(name);
                }
            }
        }
    }

    /// Compares with the view what has not been compared yet. Waits for an outstanding answer, which says
    /// what the client holds.
    fn settle(&mut self, view: &View) {
        if self.in_flight.is_some() || !self.suspects.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.stale, Stale::Names(BTreeSet::new())) {
            Stale::Names(names) => names.iter().for_each(|name| self.compare(view, name)),
            Stale::Everything => {
                let names = self.entries.iter().map(|(name, _)| name);
                let own: Vec<_> = names.chain(&self.doomed).chain(&self.awaited).map(Arc::clone).collect();
                for name in &own {
                    self.compare(view, name);
                }
                if self.wildcard {
                    view.all(self.kind).for_each(|resource| self.compare(view, &resource.name));
                }
                let mut pending = std::mem::take(&mut self.pending);
                pending.retain(|name| self.wanted(name));
                self.pending = pending;
            }
        }
    }

    fn compare(&mut self, view: &View, name: &Arc<str>) {
        let resource = view.get(self.kind, name);
        let wanted = self.wanted(name);
        if resource.is_none() || !wanted {
            self.pending.remove(name);
        }
        if resource.is_some() || !wanted {
            self.doomed.remove(name);
        }
        match resource {
            // An EDS name may be awaited before it is asked for: its cluster has just been sent.
            None if !wanted => {
                self.awaited.remove(name);
            }
            Some(_) if !wanted => {}
            None => {
                self.rejected.remove(name);
                if self.held(name) != Held::Nothing || self.awaited.contains(name) {
                    self.doomed.insert(Arc::clone(name));
                } else if !self.entries.get(name).is_some_and(|entry| entry.subscribed) {
                    self.entries.remove(name);
                }
            }
            Some(resource) if self.needs(resource) => {
                self.pending.insert(Arc::clone(&resource.name));
            }
            Some(resource) => {
                self.pending.remove(name);
                if self.held(name) == Held::At(resource.version) {
                    self.rejected.remove(name);
                }
            }
        }
    }

    /// Whether the client, which wants it, should be sent this resource.
    fn needs(&self, resource: &Resource) -> bool {
        let refused = || self.rejected.get(&resource.name).is_some_and(|r| r.version == resource.version);
        self.awaited.contains(&resource.name)
            || (self.held(&resource.name) != Held::At(resource.version) && !refused())
    }

    /// The next group of suspects that still need sending.
    fn next_suspects(&mut self, view: &View) -> Vec<Arc<Resource>> {
        while let Some(group) = self.suspects.pop_front() {
            let current =
                group.iter().filter(|name| self.wanted(name)).filter_map(|n| view.get(self.kind, n));
            let group: Vec<_> = current.filter(|resource| self.needs(resource)).map(Arc::clone).collect();
            if !group.is_empty() {
                return group;
            }
        }
        Vec::new()
    }

    /// The removals that may go out now. A client that holds nothing of the name, or waits for an answer,
    /// is told at once: nothing breaks by it.
    fn next_removals(&mut self, gates: Gates) -> Vec<Arc<str>> {
        let all = gates.remove || self.doomed.len() > MAX_RETAINED;
        let free = |name: &Arc<str>| all || self.awaited.contains(name) || self.held(name) == Held::Nothing;
        let removed: Vec<_> = self.doomed.iter().filter(|name| free(name)).cloned().collect();
        for name in &removed {
            self.doomed.remove(name);
        }
        removed
    }
}

#[cfg(test)]
impl DeltaTrack {
    /// Every name that is kept in some place.
    pub(super) fn kept(&self) -> BTreeSet<Arc<str>> {
        let mut kept: BTreeSet<_> = self.entries.iter().map(|(name, _)| Arc::clone(name)).collect();
        if let Stale::Names(names) = &self.stale {
            kept.extend(names.iter().cloned());
        }
        kept.extend([&self.pending, &self.doomed, &self.awaited].into_iter().flatten().cloned());
        kept.extend(self.suspects.iter().flatten().chain(self.rejected.keys()).cloned());
        if let Some(in_flight) = &self.in_flight {
            kept.extend(in_flight.removed.iter().chain(in_flight.sent.iter().map(|(name, _)| name)).cloned());
        }
        kept
    }
}

impl Track for DeltaTrack {
    type Request = DeltaDiscoveryRequest;

    const EMPTY_IS_HARMLESS: bool = true;

    fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            registered: false,
            wildcard: false,
            entries: Entries::default(),
            stale: Stale::Names(BTreeSet::new()),
            pending: BTreeSet::new(),
            doomed: BTreeSet::new(),
            awaited: BTreeSet::new(),
            suspects: VecDeque::new(),
            rejected: BTreeMap::new(),
            in_flight: None,
            must_answer: false,
            last_nonce: None,
        }
    }

    fn type_url(request: &Self::Request) -> &str {
        &request.type_url
    }

    fn resumes(request: &Self::Request) -> bool {
        !request.initial_resource_versions.is_empty()
    }

    fn check(kind: ResourceType, request: &Self::Request) -> Result<(), ProtocolError> {
        check_names(kind, request.resource_names_subscribe.iter())?;
        check_names(kind, request.resource_names_unsubscribe.iter())?;
        check_names(kind, request.initial_resource_versions.keys())
    }

    /// All that the client wants and holds.
    fn register(&mut self, request: &Self::Request, context: &Context<'_>) {
        let subscribed = &request.resource_names_subscribe;
        let held = &request.initial_resource_versions;
        self.registered = true;
        self.wildcard = subscribed.iter().any(|name| name == WILDCARD)
            || (self.kind.is_wildcard() && (subscribed.is_empty() || !held.is_empty()));
        for (name, version) in held {
            let held = version.parse().map_or(Held::Unsure, Held::At);
            self.entries.insert(self.intern(name, context), Entry { subscribed: false, held });
        }
        for name in subscribed.iter().filter(|name| *name != WILDCARD) {
            match self.entries.get_mut(name.as_str()) {
                Some(entry) => entry.subscribed = true,
                None => self.subscribe(name, context),
            }
            if context.warming {
                self.awaited.insert(self.intern(name, context));
            }
        }
        if !self.wildcard {
            self.entries.retain_subscribed();
        }
        self.stale = Stale::Everything;
        // Envoy resets its reconnect back-off on a message only, and a start-up waits for the first answer
        // to a wildcard subscription even if there is nothing.
        self.must_answer = !context.answered || (self.wildcard && held.is_empty());
    }

    fn on_request(&mut self, request: &Self::Request, context: &Context<'_>) -> Option<Verdict> {
        let verdict = self.on_answer(request);
        // Subscriptions count also where the nonce is stale: each is said only once.
        request.resource_names_unsubscribe.iter().for_each(|name| self.unsubscribe(name));
        request.resource_names_subscribe.iter().for_each(|name| self.subscribe(name, context));
        verdict
    }

    fn held(&self) -> Tally {
        let removed = self.in_flight.as_ref().map_or(0, |in_flight| in_flight.removed_bytes);
        Tally { names: self.entries.len(), bytes: self.entries.bytes() + removed }
    }

    fn touch(&mut self, name: &Arc<str>) {
        if self.wildcard || self.entries.contains(name) || self.awaited.contains(name) {
            self.stale.add(Arc::clone(name));
        }
    }

    fn touch_all(&mut self) {
        self.stale = Stale::Everything;
    }

    fn warm(&mut self, name: &Arc<str>) {
        self.awaited.insert(Arc::clone(name));
        self.stale.add(Arc::clone(name));
    }

    fn next(&mut self, view: &View, gates: Gates, nonce: u64) -> Option<Outgoing> {
        if self.in_flight.is_some() {
            return None;
        }
        let suspects = if gates.send { self.next_suspects(view) } else { Vec::new() };
        let (resources, removed) = if suspects.is_empty() {
            self.settle(view);
            let pending = if gates.send { std::mem::take(&mut self.pending) } else { BTreeSet::new() };
            let resources = pending.iter().filter_map(|name| view.get(self.kind, name)).map(Arc::clone);
            (resources.collect(), self.next_removals(gates))
        } else {
            (suspects, Vec::new())
        };
        let silent = resources.is_empty() && removed.is_empty();
        let may_be_empty = self.pending.is_empty() || gates.probe;
        if silent && !(self.must_answer && may_be_empty) {
            return None;
        }
        self.must_answer = false;
        self.last_nonce = Some(nonce);
        for name in resources.iter().map(|resource| &resource.name).chain(&removed) {
            self.awaited.remove(name);
        }
        self.in_flight = Some(InFlight {
            nonce,
            sent: resources.iter().map(|r| (Arc::clone(&r.name), r.version)).collect(),
            removed: removed.clone(),
            removed_bytes: removed.iter().map(|name| weight(name)).sum(),
            novel: resources.iter().any(|r| !self.held(&r.name).is_sure()),
        });
        let warming = resources.iter().filter_map(|r| r.warms_on.clone()).collect();
        let response = Response {
            variant: Variant::Delta,
            kind: self.kind,
            version: String::new(),
            nonce: nonce.to_string(),
            resources,
            removed,
        };
        Some(Outgoing { response, warming })
    }

    fn registered(&self) -> bool {
        self.registered
    }

    fn quiet(&self) -> bool {
        self.in_flight.is_none() && !self.has_more()
    }

    fn stuck(&self) -> bool {
        self.rejected.keys().any(|name| self.held(name) != Held::Nothing)
    }

    fn novelty(&self, view: &View) -> Novelty {
        if !self.suspects.is_empty() {
            return Novelty::Unsent;
        }
        // By name: whether the unanswered response brings it; none if it does not speak of it.
        let brings = |name: &str| {
            let in_flight = self.in_flight.as_ref()?;
            if in_flight.sent.binary_search_by(|(sent, _)| (**sent).cmp(name)).is_ok() {
                return Some(true);
            }
            in_flight.removed.binary_search_by(|removed| (**removed).cmp(name)).ok().map(|_| false)
        };
        let unsent = |name: &str| {
            let refused = |r: &Arc<Resource>| self.rejected.get(name).is_some_and(|x| x.version == r.version);
            let exists = view.get(self.kind, name).is_some_and(|resource| !refused(resource));
            exists && self.wanted(name) && !brings(name).unwrap_or_else(|| self.held(name).is_sure())
        };
        let any_unsent = match &self.stale {
            Stale::Names(names) => names.iter().any(|name| unsent(name)),
            Stale::Everything => view.all(self.kind).any(|resource| unsent(&resource.name)),
        };
        if any_unsent || self.pending.iter().any(|name| unsent(name)) {
            Novelty::Unsent
        } else if self.in_flight.as_ref().is_some_and(|in_flight| in_flight.novel) {
            Novelty::Unanswered
        } else {
            Novelty::Known
        }
    }

    fn status(&self) -> TypeStatus {
        let mut acked = BTreeMap::new();
        for (name, entry) in self.entries.iter() {
            let version = match entry.held {
                Held::Nothing => continue,
                Held::Perhaps(_) | Held::Unsure => "unknown".to_owned(),
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
        let rejected = self.rejected.iter().map(|(name, rejection)| {
            let message = rejection.message.to_string();
            (name.to_string(), RejectedStatus { version: rejection.version.to_string(), message })
        });
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
