//! One type on a State-of-the-World stream.
//!
//! Owns which resources the client was last sent. The rules, and where they come from:
//!
//! - A response to a wildcard subscription (CDS, LDS) holds all there is, and what it leaves out is
//!   thereby removed. One to named subscriptions holds all of those that exist; leaving out removes nothing.
//! - `version_info` is the hash of the set. A client that resumes CDS or LDS with the version of the current
//!   set is sent nothing; for the other types it is always sent the set, since its names may have changed
//!   while it was away, and a cluster may be waiting for endpoints. On the aggregated stream those answers
//!   also reset its reconnect back-off; a CDS or LDS stream of its own has none, and State of the World knows
//!   no empty answer that would not delete everything (kuma#2171), so there the set goes out again.
//! - Names added are answered, also if the version stays what it is. So is a request that repeats itself:
//!   Envoy restates its interest when a cluster warms anew and waits for endpoints.
//! - Requests with a stale nonce are ignored: the answer to the newer response will state all names again.
//! - The set was refused as a whole, so it is kept back as a whole until something in it changes.
//! - Clusters that are gone stay in the set, as last seen, until listeners and routes have let go of them.
//!   Only a stream that saw them can do that: after a reconnect the client's set is not known. Use Delta.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;

use super::limits::{check_names, weight};
use super::rejection::{self, Rejection};
use super::status::{RejectedStatus, TypeStatus};
use super::track::{Context, Gates, MAX_RETAINED, Novelty, Outgoing, Tally, Track, Verdict};
use super::{ProtocolError, Response, Variant};
use crate::resource::{Resource, ResourceType, Version};
use crate::world::View;

/// The name that subscribes to everything.
const WILDCARD: &str = "*";

/// Resources of one type, sorted by name.
type Set = Vec<Arc<Resource>>;

#[derive(Debug)]
pub(super) struct SotwTrack {
    kind: ResourceType,
    registered: bool,
    wildcard: bool,
    /// What the client asked for by name, apart from `*`.
    names: BTreeSet<Arc<str>>,
    /// What those take.
    bytes: usize,
    /// What the client took last.
    held: Set,
    /// The version it gave that; on a resumed stream also where `held` is not known.
    acked: Option<Version>,
    rejected: Option<RejectedSet>,
    in_flight: Option<InFlight>,
    due: Due,
    last_nonce: Option<u64>,
}

#[derive(Debug)]
struct InFlight {
    nonce: u64,
    version: Version,
    set: Set,
    /// The names whose content is not what the client held.
    changed: Vec<Arc<str>>,
    /// Whether some of those are new to the client.
    novel: bool,
}

#[derive(Debug)]
struct RejectedSet {
    rejection: Rejection,
    changed: Vec<Arc<str>>,
}

/// Whether the client is owed a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    No,
    /// If the set differs from what the client took.
    IfDifferent,
    Yes,
}

impl Due {
    fn raise(&mut self, to: Self) {
        *self = (*self).max(to);
    }
}

/// What a request did to the subscription.
#[derive(PartialEq)]
enum Interest {
    Same,
    Grown,
    Shrunk,
}

impl SotwTrack {
    fn wanted(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// Takes the names of a request; each request states all of them.
    fn subscribe(&mut self, request: &DiscoveryRequest, context: &Context<'_>) -> Interest {
        let requested = &request.resource_names;
        let named = || requested.iter().filter(|name| *name != WILDCARD);
        // Nothing named means everything, unless something was named before (legacy wildcard).
        let legacy = requested.is_empty() && self.kind.is_wildcard() && self.names.is_empty();
        let wildcard =
            requested.iter().any(|name| name == WILDCARD) || (legacy && (self.wildcard || !self.registered));
        let same_names =
            named().count() == self.names.len() && named().all(|name| self.names.contains(name.as_str()));
        if same_names && wildcard == self.wildcard {
            return Interest::Same;
        }
        let intern = |name: &String| {
            let resource = context.view.and_then(|view| view.get(self.kind, name));
            resource.map_or_else(|| name.as_str().into(), |resource| Arc::clone(&resource.name))
        };
        let names: BTreeSet<Arc<str>> = named().map(intern).collect();
        let grown = (wildcard && !self.wildcard) || names.iter().any(|name| !self.wanted(name));
        self.wildcard = wildcard;
        self.bytes = names.iter().map(|name| weight(name)).sum();
        self.names = names;
        if grown { Interest::Grown } else { Interest::Shrunk }
    }

    /// Forgets what the client no longer asks for, also if it was on its way when the client said so.
    fn drop_unwanted(&mut self) {
        let before = self.held.len();
        self.held.retain(|resource| self.names.contains(&resource.name));
        if self.held.len() < before {
            self.acked = self.acked.map(|_| version_of(&self.held));
        }
        self.rejected.take_if(|set| !set.changed.iter().any(|name| self.names.contains(name)));
    }

    fn on_answer(&mut self, request: &DiscoveryRequest, answered: InFlight) -> Verdict {
        let InFlight { nonce, version, mut set, changed, .. } = answered;
        if let Some(error) = &request.error_detail {
            let message = rejection::message(error);
            let names = changed.clone();
            let rejection = Rejection { version, message: Arc::clone(&message) };
            // Envoy may have taken the good ones of the set, so going back to the old set is a change too.
            self.acked = None;
            self.rejected = Some(RejectedSet { rejection, changed });
            return Verdict::Rejected { nonce, names, message, conclusive: true };
        }
        let resources = set.len();
        let before = &self.held;
        let removed =
            if self.wildcard { before.iter().filter(|r| find(&set, &r.name).is_none()).count() } else { 0 };
        set.shrink_to_fit();
        self.held = set;
        self.acked = Some(version);
        self.rejected = None;
        Verdict::Acked { nonce, resources, removed }
    }

    /// What the client should hold by the view.
    fn current(&self, view: &View) -> Set {
        if self.wildcard {
            return view.all(self.kind).map(Arc::clone).collect();
        }
        self.names.iter().filter_map(|name| view.get(self.kind, name)).map(Arc::clone).collect()
    }

    /// Adds to `set` what the client holds and may still refer to. Tells whether there was any.
    fn retain_removed(&self, set: &mut Set, gates: Gates) -> bool {
        if !self.wildcard || gates.remove {
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

impl Track for SotwTrack {
    type Request = DiscoveryRequest;

    // What is left out of a set is removed.
    const EMPTY_IS_HARMLESS: bool = false;

    fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            registered: false,
            wildcard: false,
            names: BTreeSet::new(),
            bytes: 0,
            held: Set::new(),
            acked: None,
            rejected: None,
            in_flight: None,
            due: Due::No,
            last_nonce: None,
        }
    }

    fn type_url(request: &Self::Request) -> &str {
        &request.type_url
    }

    fn resumes(request: &Self::Request) -> bool {
        !request.version_info.is_empty()
    }

    fn check(kind: ResourceType, request: &Self::Request) -> Result<(), ProtocolError> {
        check_names(kind, request.resource_names.iter())
    }

    fn register(&mut self, request: &Self::Request, context: &Context<'_>) {
        self.subscribe(request, context);
        self.registered = true;
        self.acked = request.version_info.parse().ok();
        let owed = !self.wildcard || context.alone || request.version_info.is_empty();
        self.due = if owed { Due::Yes } else { Due::IfDifferent };
    }

    fn on_request(&mut self, request: &Self::Request, context: &Context<'_>) -> Option<Verdict> {
        let nonce = request.response_nonce.parse().ok();
        let mut verdict = None;
        // A request without a nonce answers nothing, but says what the client wants now.
        if !request.response_nonce.is_empty() {
            if nonce.is_none() || nonce != self.last_nonce {
                return None;
            }
            verdict = self.in_flight.take().map(|answered| self.on_answer(request, answered));
        }
        let interest = self.subscribe(request, context);
        if !self.wildcard && (verdict.is_some() || interest != Interest::Same) {
            self.drop_unwanted();
        }
        match interest {
            Interest::Grown => self.due = Due::Yes,
            Interest::Same if verdict.is_none() && !self.wildcard => self.due = Due::Yes,
            Interest::Same | Interest::Shrunk => {}
        }
        verdict
    }

    fn held(&self) -> Tally {
        Tally { names: self.names.len(), bytes: self.bytes }
    }

    fn touch(&mut self, name: &Arc<str>) {
        if self.wanted(name) {
            self.due.raise(Due::IfDifferent);
        }
    }

    fn touch_all(&mut self) {
        self.due.raise(Due::IfDifferent);
    }

    fn warm(&mut self, name: &Arc<str>) {
        if self.wanted(name) {
            self.due = Due::Yes;
        }
    }

    fn next(&mut self, view: &View, gates: Gates, nonce: u64) -> Option<Outgoing> {
        if self.in_flight.is_some() || self.due == Due::No {
            return None;
        }
        let mut set = self.current(view);
        let retaining = self.retain_removed(&mut set, gates);
        let version = version_of(&set);
        let refused = self.rejected.as_ref().is_some_and(|set| set.rejection.version == version);
        let held = |resource: &Resource| find(&self.held, &resource.name);
        let differs = |r: &Resource| held(r).is_none_or(|held| held.version != r.version);
        // Leaving out removes nothing where names were asked for, so it is not worth a message.
        let shrunk = !self.wildcard && self.acked.is_some() && !set.iter().any(|r| differs(r));
        let same = (self.acked == Some(version) || shrunk) && self.due == Due::IfDifferent;
        // What is retained for now is left out later.
        let later = if retaining { Due::IfDifferent } else { Due::No };
        if refused || same {
            if same {
                // On a resumed stream this is how we learn what the client holds.
                self.held = set;
                self.rejected = None;
            }
            self.due = later;
            return None;
        }
        if !gates.send {
            return None;
        }
        self.due = later;
        self.last_nonce = Some(nonce);
        let changed: Set = set.iter().filter(|resource| differs(resource)).map(Arc::clone).collect();
        let novel = changed.iter().any(|resource| held(resource).is_none());
        let warming = changed.iter().filter_map(|resource| resource.warms_on.clone()).collect();
        let changed = changed.iter().map(|resource| Arc::clone(&resource.name)).collect();
        let response = Response {
            variant: Variant::Sotw,
            kind: self.kind,
            version: version.to_string(),
            nonce: nonce.to_string(),
            resources: set.clone(),
            removed: Vec::new(),
        };
        self.in_flight = Some(InFlight { nonce, version, set, changed, novel });
        Some(Outgoing { response, warming })
    }

    fn registered(&self) -> bool {
        self.registered
    }

    fn quiet(&self) -> bool {
        self.in_flight.is_none() && self.due == Due::No
    }

    fn stuck(&self) -> bool {
        // Also where it took nothing before: it may have taken the good ones of the refused set.
        self.rejected.is_some()
    }

    fn novelty(&self, view: &View) -> Novelty {
        let Some(in_flight) = &self.in_flight else { return Novelty::Known };
        let unsent = |resource: &Arc<Resource>| find(&in_flight.set, &resource.name).is_none();
        if self.due != Due::No
            && view.all(self.kind).any(|resource| self.wanted(&resource.name) && unsent(resource))
        {
            Novelty::Unsent
        } else if in_flight.novel {
            Novelty::Unanswered
        } else {
            Novelty::Known
        }
    }

    fn status(&self) -> TypeStatus {
        let versions = |set: &Set| -> BTreeMap<String, String> {
            set.iter().map(|r| (r.name.to_string(), r.version.to_string())).collect()
        };
        let acked = versions(&self.held);
        let rejected = self.rejected.iter().flat_map(|set| {
            set.changed.iter().map(|name| {
                let version = set.rejection.version.to_string();
                (name.to_string(), RejectedStatus { version, message: set.rejection.message.to_string() })
            })
        });
        TypeStatus {
            wildcard: self.wildcard,
            subscribed: self.names.iter().map(ToString::to_string).collect(),
            sent: self.in_flight.as_ref().map_or_else(|| acked.clone(), |sent| versions(&sent.set)),
            rejected: rejected.collect(),
            acked,
            nonce: self.last_nonce,
            in_flight: self.in_flight.is_some(),
            pending: self.due != Due::No,
        }
    }
}

fn find<'a>(set: &'a Set, name: &str) -> Option<&'a Arc<Resource>> {
    set.binary_search_by(|resource| (*resource.name).cmp(name)).ok().map(|at| &set[at])
}

fn version_of(set: &Set) -> Version {
    Version::of_set(set.iter().map(|resource| (&*resource.name, resource.version)))
}
