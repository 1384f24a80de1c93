//! One type on a State-of-the-World stream.
//!
//! Owns the set of resources that the client was last sent. The rules and their sources:
//!
//! - A response to a wildcard subscription (CDS, LDS) holds all resources; what it omits is removed. A
//!   response to a subscription by name holds those of the names that exist; an omission removes
//!   nothing.
//! - `version_info` is the hash of the set. A client that resumes CDS or LDS with the version of the
//!   current set is sent nothing. For the other types it is always sent the set: its names may have
//!   changed while it was away, and a cluster may be waiting for endpoints. On the aggregated stream
//!   those answers also reset the client's reconnect back-off. A separate CDS or LDS stream has no such
//!   answers, and an empty response in State of the World would delete everything (kuma#2171), so there
//!   the set is sent again.
//! - A request that adds names is answered even if the version does not change. So is a request that
//!   repeats the previous one: Envoy restates its subscription when a cluster warms again and waits for
//!   endpoints.
//! - A request with a stale nonce is ignored: the answer to the newer response states all names again.
//! - A rejected set is held back as a whole until a resource in it changes.
//! - Clusters that are gone stay in the set, as last seen, until no listener or route refers to them.
//!   After a reconnect the set at the client is not known, so this works within one stream only. Delta
//!   has no such limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::limits::weight;
use super::rejection::{self, Rejection};
use super::request::{NameList, Request};
use super::status::TypeStatus;
use super::type_state::{
    Begun, ClusterProgress, Context, MAX_RETAINED, Outgoing, SendPolicy, TypeState, Usage,
};
use super::work::Work;
use super::{Response, Variant, Verdict};
use crate::resource::{Resource, ResourceType, Version};
use crate::served_state::View;

/// The name that subscribes to everything.
const WILDCARD: &str = "*";

/// Resources of one type, sorted by name.
type Set = Vec<Arc<Resource>>;

#[derive(Debug)]
pub(super) struct SotwState {
    kind: ResourceType,
    registered: bool,
    wildcard: bool,
    /// A request on this stream has named something. No names mean a wildcard only before that.
    named: bool,
    /// The subscription of a request that is being taken in.
    coming: Option<Coming>,
    /// The names that the client subscribed to, without `*`.
    names: BTreeSet<Arc<str>>,
    /// The memory that `names` takes.
    bytes: usize,
    /// The set that the client ACKed last.
    held: Set,
    /// The version of that set; on a resumed stream known before `held` is.
    acked: Option<Version>,
    rejected: Option<RejectedSet>,
    in_flight: Option<InFlight>,
    due: Due,
    last_nonce: Option<u64>,
    work: Work,
}

/// The subscription that a request states.
#[derive(Debug)]
struct Coming {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
    bytes: usize,
    /// Some of the names are new.
    grown: bool,
    /// The request answers a response.
    answers: bool,
}

#[derive(Debug)]
struct InFlight {
    nonce: u64,
    version: Version,
    set: Set,
    /// The names whose content differs from what the client held.
    changed: Vec<Arc<str>>,
    /// Some of those names are new to the client.
    has_new_names: bool,
}

#[derive(Debug)]
struct RejectedSet {
    rejection: Rejection,
    changed: Vec<Arc<str>>,
}

/// Whether a response is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    No,
    /// Due if the set differs from the ACKed one.
    IfDifferent,
    Yes,
}

impl Due {
    fn raise(&mut self, to: Self) {
        *self = (*self).max(to);
    }
}

/// The effect of a request on the subscription.
#[derive(PartialEq)]
enum Interest {
    Same,
    Grown,
    Shrunk,
}

impl SotwState {
    fn wanted(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// The subscription that a request states, still without its names.
    fn coming(&mut self, request: &Request, answers: bool) -> Coming {
        let requested = request.total(NameList::Subscribed);
        self.named |= requested.count > 0;
        let legacy = self.kind.is_wildcard() && !self.named;
        let wildcard = requested.wildcard || legacy;
        let grown = wildcard && !self.wildcard;
        Coming { wildcard, names: BTreeSet::new(), bytes: 0, grown, answers }
    }

    /// Updates the subscription.
    fn subscribe(&mut self, coming: Coming) -> Interest {
        let Coming { wildcard, names, bytes, grown, .. } = coming;
        let same = !grown && wildcard == self.wildcard && names.len() == self.names.len();
        self.wildcard = wildcard;
        self.bytes = bytes;
        self.names = names;
        if grown {
            Interest::Grown
        } else if same {
            Interest::Same
        } else {
            Interest::Shrunk
        }
    }

    /// Drops what the client no longer subscribes to, even if it was just answered.
    fn drop_unwanted(&mut self) {
        let before = self.held.len();
        self.work.add(before);
        self.held.retain(|resource| self.names.contains(&resource.name));
        if self.held.len() < before {
            self.acked = self.acked.map(|_| version_of(&self.held));
        }
        self.rejected.take_if(|set| !set.changed.iter().any(|name| self.names.contains(name)));
    }

    fn on_answer(&mut self, request: &Request, answered: InFlight) -> Verdict {
        let InFlight { nonce, version, mut set, changed, .. } = answered;
        if let Some(error) = request.error() {
            let message = rejection::message(error);
            let names = changed.clone();
            let rejection = Rejection::new(version, &message, 0);
            // Envoy may have applied the valid resources of the set, so a return to the old set is a
            // change too.
            self.acked = None;
            self.rejected = Some(RejectedSet { rejection, changed });
            return Verdict::Rejected { nonce, names, message, conclusive: true };
        }
        let resources = set.len();
        self.work.add(resources);
        let before = &self.held;
        let removed =
            if self.wildcard { before.iter().filter(|r| find(&set, &r.name).is_none()).count() } else { 0 };
        set.shrink_to_fit();
        self.held = set;
        self.acked = Some(version);
        self.rejected = None;
        Verdict::Acked { nonce, resources, removed }
    }

    /// The set that the client should hold according to the view.
    fn current(&self, view: &View) -> Set {
        if self.wildcard {
            return view.all(self.kind).map(Arc::clone).collect();
        }
        self.names.iter().filter_map(|name| view.get(self.kind, name)).map(Arc::clone).collect()
    }

    /// Adds to `set` the removed resources that the client may still refer to. Returns true if there are any.
    fn retain_removed(&self, set: &mut Set, policy: SendPolicy) -> bool {
        if !self.wildcard || policy.remove {
            return false;
        }
        let gone = self.held.iter().filter(|resource| find(set, &resource.name).is_none());
        let gone: Set = gone.map(Arc::clone).collect();
        if gone.is_empty() || gone.len() > MAX_RETAINED {
            return false;
        }
        set.extend(gone);
        set.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        true
    }
}

impl TypeState for SotwState {
    // What a set omits is removed.
    const EMPTY_IS_HARMLESS: bool = false;

    fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            registered: false,
            wildcard: false,
            named: false,
            coming: None,
            names: BTreeSet::new(),
            bytes: 0,
            held: Set::new(),
            acked: None,
            rejected: None,
            in_flight: None,
            due: Due::No,
            last_nonce: None,
            work: Work::default(),
        }
    }

    fn resumes(request: &Request) -> bool {
        !request.version_info().is_empty()
    }

    fn begin(&mut self, request: &Request) -> Begun {
        let mut verdict = None;
        // A request without a nonce answers no response, but still states the subscription.
        if self.registered && !request.response_nonce().is_empty() {
            let nonce = request.response_nonce().parse().ok();
            if nonce.is_none() || nonce != self.last_nonce {
                return Begun { verdict: None, lists: &[] };
            }
            verdict = self.in_flight.take().map(|answered| self.on_answer(request, answered));
        }
        self.registered = true;
        self.coming = Some(self.coming(request, verdict.is_some()));
        Begun { verdict, lists: &[NameList::Subscribed] }
    }

    fn take_in(&mut self, _: NameList, name: &str, _: Option<Version>, context: &Context<'_>) {
        self.work.add(1);
        let Some(coming) = &mut self.coming else { return };
        if name == WILDCARD {
            return;
        }
        // A name that is new is answered although a wildcard has covered it.
        let known = self.names.get(name);
        coming.grown |= known.is_none();
        let new = || {
            let resource = context.view.and_then(|view| view.get(self.kind, name));
            resource.map_or_else(|| name.into(), |resource| Arc::clone(&resource.name))
        };
        let name = known.map_or_else(new, Arc::clone);
        let bytes = weight(&name);
        if coming.names.insert(name) {
            coming.bytes += bytes;
        }
    }

    fn finish(&mut self, request: &Request, context: &Context<'_>) {
        let Some(coming) = self.coming.take() else { return };
        let answers = coming.answers;
        let interest = self.subscribe(coming);
        if context.first {
            self.acked = request.version_info().parse().ok();
            let always = !self.wildcard || context.alone || !Self::resumes(request);
            self.due = if always { Due::Yes } else { Due::IfDifferent };
            return;
        }
        if !self.wildcard && (answers || interest != Interest::Same) {
            self.drop_unwanted();
        }
        match interest {
            Interest::Grown => self.due = Due::Yes,
            Interest::Same if !answers && !self.names.is_empty() && !self.wildcard => self.due = Due::Yes,
            // Of a set that the client rejected, it may lack what it still wants, and the rest of it is
            // another set.
            Interest::Shrunk if answers && self.acked.is_none() => self.due.raise(Due::IfDifferent),
            Interest::Same | Interest::Shrunk => {}
        }
    }

    /// A set is made in one go.
    fn settle(&mut self, _: &View, _: usize) -> usize {
        0
    }

    fn take_work(&mut self) -> usize {
        self.work.take()
    }

    fn usage(&self) -> Usage {
        Usage { names: self.names.len(), bytes: self.bytes }
    }

    fn mark_changed(&mut self, name: &Arc<str>) {
        if self.wanted(name) {
            self.due.raise(Due::IfDifferent);
        }
    }

    fn mark_all_changed(&mut self) {
        self.due.raise(Due::IfDifferent);
    }

    fn resend(&mut self, name: &Arc<str>) {
        if self.wanted(name) {
            self.due = Due::Yes;
        }
    }

    fn next(&mut self, view: &View, policy: SendPolicy, nonce: u64) -> Option<Outgoing> {
        if self.in_flight.is_some() || self.due == Due::No {
            return None;
        }
        let mut set = self.current(view);
        // Each is looked up, compared and, if it exists, hashed.
        self.work.add(3 * set.len().max(self.names.len()));
        let retaining = self.retain_removed(&mut set, policy);
        let version = version_of(&set);
        let rejected = self.rejected.as_ref().is_some_and(|set| set.rejection.version == version);
        let held = |resource: &Resource| find(&self.held, &resource.name);
        let differs = |r: &Resource| held(r).is_none_or(|held| held.version != r.version);
        // For a subscription by name an omission removes nothing, so it is not worth a message.
        let shrunk = !self.wildcard && self.acked.is_some() && !set.iter().any(|r| differs(r));
        let same = (self.acked == Some(version) || shrunk) && self.due == Due::IfDifferent;
        // What is retained now is omitted later.
        let later = if retaining { Due::IfDifferent } else { Due::No };
        if rejected || same {
            if same {
                // On a resumed stream this is where `held` becomes known.
                self.held = set;
                self.rejected = None;
            }
            self.due = later;
            return None;
        }
        if !policy.send {
            return None;
        }
        self.due = later;
        self.last_nonce = Some(nonce);
        let changed: Set = set.iter().filter(|resource| differs(resource)).map(Arc::clone).collect();
        let has_new_names = changed.iter().any(|resource| held(resource).is_none());
        let warming = changed.iter().filter_map(|resource| resource.warms_on.clone()).collect();
        let changed = changed.iter().map(|resource| Arc::clone(&resource.name)).collect();
        let response = Response {
            suffix: String::new(),
            variant: Variant::Sotw,
            kind: self.kind,
            version: version.to_string(),
            nonce: nonce.to_string(),
            resources: set.clone(),
            removed: Vec::new(),
        };
        self.in_flight = Some(InFlight { nonce, version, set, changed, has_new_names });
        Some(Outgoing { response, warming })
    }

    fn registered(&self) -> bool {
        self.registered
    }

    fn idle(&self) -> bool {
        self.in_flight.is_none() && self.due == Due::No
    }

    fn has_more(&self) -> bool {
        self.due != Due::No
    }

    fn kept_old(&self) -> bool {
        // Even if it held nothing before: it may have applied the valid resources of the rejected set.
        self.rejected.is_some()
    }

    fn progress(&self, view: &View) -> ClusterProgress {
        let Some(in_flight) = &self.in_flight else { return ClusterProgress::Known };
        self.work.add(if self.due == Due::No { 0 } else { in_flight.set.len() });
        let unsent = |resource: &Arc<Resource>| find(&in_flight.set, &resource.name).is_none();
        if self.due != Due::No
            && view.all(self.kind).any(|resource| self.wanted(&resource.name) && unsent(resource))
        {
            ClusterProgress::Unsent
        } else if in_flight.has_new_names {
            ClusterProgress::Unanswered
        } else {
            ClusterProgress::Known
        }
    }

    fn rejected(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.rejected.iter().flat_map(|set| set.changed.iter().map(|name| (name, &set.rejection.message)))
    }

    fn status(&self) -> TypeStatus {
        let versions = |set: &Set| -> BTreeMap<String, String> {
            set.iter().map(|r| (r.name.to_string(), r.version.to_string())).collect()
        };
        let acked = versions(&self.held);
        let rejected = self
            .rejected
            .iter()
            .flat_map(|set| set.changed.iter().map(|name| (name.to_string(), set.rejection.status())));
        TypeStatus {
            wildcard: self.wildcard,
            subscribed: self.names.iter().map(ToString::to_string).collect(),
            sent: self.in_flight.as_ref().map_or_else(|| acked.clone(), |sent| versions(&sent.set)),
            rejected: rejected.collect(),
            acked,
            nonce: self.last_nonce,
            in_flight: self.in_flight.is_some(),
            pending: self.has_more(),
        }
    }
}

fn find<'a>(set: &'a Set, name: &str) -> Option<&'a Arc<Resource>> {
    set.binary_search_by(|resource| (*resource.name).cmp(name)).ok().map(|at| &set[at])
}

fn version_of(set: &Set) -> Version {
    Version::of_set(set.iter().map(|resource| (&*resource.name, resource.version)))
}
