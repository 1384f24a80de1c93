//! One stream: its view, its nonces, and the tracks of its types.
//!
//! Owns the step function that both variants share. Refuses to know what differs between them
//! ([`Track`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::limits::{check_bytes, check_count, cut};
use super::order::{self, PATIENCE, Progress};
use super::status::TypeStatus;
use super::track::{Context, Gates, Novelty, Track, Verdict};
use super::{Event, ProtocolError, Response, Scope, Step};
use crate::resource::ResourceType;
use crate::world::{Touched, View};

/// How many type URLs that we don't serve are remembered, to report each once. Envoy knows about a dozen
/// types; the rest is noise.
const MAX_UNKNOWN_TYPES: usize = 8;

/// How much of a type URL is kept, in bytes.
const MAX_URL_BYTES: usize = 256;

pub(super) struct Conversation<T> {
    scope: Scope,
    /// The latest view. Kept, so that an answer long after still finds what to send next.
    view: Option<View>,
    /// The nonce of the latest response of any type; 0 before the first.
    nonce: u64,
    /// Whether the client has answered anything.
    settled: bool,
    /// The types of which it said, on asking first, that it holds some.
    resumed: [bool; ResourceType::ALL.len()],
    /// How many answers to CDS a listener or route has waited for.
    waited: u8,
    /// Whether a listener or route waits for clusters now.
    held_back: bool,
    unknown_types: Vec<String>,
    tracks: [T; ResourceType::ALL.len()],
}

impl<T: Track> Conversation<T> {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            view: None,
            nonce: 0,
            settled: false,
            resumed: [false; ResourceType::ALL.len()],
            waited: 0,
            held_back: false,
            unknown_types: Vec::new(),
            tracks: ResourceType::ALL.map(T::new),
        }
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    pub(super) fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// What the names take that the client asked for and holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.tracks.iter().map(|track| track.held().bytes).sum()
    }

    pub(super) fn acknowledged(&self) -> bool {
        self.tracks.iter().all(|track| !track.registered() || track.quiet())
    }

    pub(super) fn has_taken(&self, kind: ResourceType, view: &View) -> bool {
        let track = self.track(kind);
        let seen = self.view.as_ref().is_some_and(|seen| seen.is_same_snapshot(view));
        seen && (!track.registered() || (track.quiet() && !track.stuck()))
    }

    pub(super) fn status(&self) -> BTreeMap<ResourceType, TypeStatus> {
        let pairs = ResourceType::ALL.into_iter().zip(&self.tracks);
        pairs.filter(|(_, track)| track.registered()).map(|(kind, track)| (kind, track.status())).collect()
    }

    pub(super) fn on_view(&mut self, view: &View, touched: &Touched) -> Step {
        let same_class = self.view.as_ref().is_some_and(|old| old.class == view.class);
        match touched {
            Touched::Names(names) if same_class => {
                for (kind, name) in names {
                    self.track_mut(*kind).touch(name);
                }
            }
            _ => self.tracks.iter_mut().for_each(T::touch_all),
        }
        self.view = Some(view.clone());
        Step { responses: self.pump(), events: Vec::new() }
    }

    pub(super) fn on_request(
        &mut self,
        request: &T::Request,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        let mut events = Vec::new();
        let Some(kind) = self.kind_of(T::type_url(request), &mut events)? else {
            return Ok(Step { responses: Vec::new(), events });
        };
        if self.view.is_none()
            && let Some(view) = view
        {
            self.view = Some(view.clone());
            self.tracks.iter_mut().for_each(T::touch_all);
        }
        let context = Context {
            view: self.view.as_ref(),
            answered: self.nonce > 0,
            alone: matches!(self.scope, Scope::Only(_)),
            warming: self.scope == Scope::Aggregated
                && kind == ResourceType::Endpoint
                && !self.track(ResourceType::Cluster).registered(),
        };
        T::check(kind, request)?;
        let track = &mut self.tracks[index(kind)];
        let verdict = if track.registered() {
            track.on_request(request, &context)
        } else {
            self.resumed[index(kind)] = T::resumes(request);
            track.register(request, &context);
            events.push(Event::Subscribed { kind });
            None
        };
        check_count(kind, track.held().names)?;
        check_bytes(self.held_bytes())?;
        if let Some(verdict) = verdict {
            self.settled = true;
            if kind == ResourceType::Cluster && self.held_back && matches!(verdict, Verdict::Acked { .. }) {
                self.waited = self.waited.saturating_add(1).min(PATIENCE);
            }
            events.push(event(kind, verdict));
        }
        Ok(Step { responses: self.pump(), events })
    }

    /// Which type a request is for; `None` for one that SMC does not serve.
    fn kind_of(&mut self, url: &str, events: &mut Vec<Event>) -> Result<Option<ResourceType>, ProtocolError> {
        let known = ResourceType::from_url(url);
        if let Scope::Only(expected) = self.scope {
            // Outside ADS the type is implied and may be left out.
            if url.is_empty() || known == Some(expected) {
                return Ok(Some(expected));
            }
            return Err(ProtocolError::WrongType { url: cut(url, MAX_URL_BYTES).to_owned(), expected });
        }
        let url = cut(url, MAX_URL_BYTES);
        let remembered = self.unknown_types.iter().any(|seen| seen == url);
        if known.is_none() && !remembered && self.unknown_types.len() < MAX_UNKNOWN_TYPES {
            self.unknown_types.push(url.to_owned());
            events.push(Event::UnknownType { url: url.to_owned() });
        }
        Ok(known)
    }

    /// All that can be sent now, in order.
    ///
    /// Two rounds, because whether a cluster may be removed depends on listeners and routes, which come
    /// later in the order, having nothing left to say.
    fn pump(&mut self) -> Vec<Response> {
        let mut responses = Vec::new();
        let Some(view) = self.view.take() else { return responses };
        for _ in 0..2 {
            self.held_back = false;
            for kind in ResourceType::ALL {
                if self.track(kind).registered()
                    && let Some(response) = self.advance(kind, &view)
                {
                    responses.push(response);
                }
            }
        }
        self.view = Some(view);
        responses
    }

    /// What can be sent of one type now.
    fn advance(&mut self, kind: ResourceType, view: &View) -> Option<Response> {
        let gates = self.gates(kind, view);
        let nonce = self.nonce + 1;
        let outgoing = self.track_mut(kind).next(view, gates, nonce);
        let switches = matches!(kind, ResourceType::Listener | ResourceType::Route);
        let Some(outgoing) = outgoing else {
            self.held_back |= switches && !gates.send && !self.track(kind).quiet();
            return None;
        };
        self.nonce = nonce;
        if switches {
            self.waited = 0;
        }
        for name in &outgoing.warming {
            self.track_mut(ResourceType::Endpoint).warm(name);
        }
        Some(outgoing.response)
    }

    fn gates(&self, kind: ResourceType, view: &View) -> Gates {
        if matches!(self.scope, Scope::Only(_)) {
            return Gates { send: true, remove: true, probe: false };
        }
        let untold = self.clusters_are_untold();
        let clusters = || {
            let clusters = self.track(ResourceType::Cluster);
            if clusters.registered() {
                clusters.novelty(view)
            } else if untold {
                Novelty::Unsent
            } else {
                Novelty::Known
            }
        };
        Gates {
            send: order::may_send(kind, clusters, self.waited),
            remove: order::may_remove(kind, self.settled, |kind| self.progress(kind)),
            probe: untold && self.resumed[index(kind)],
        }
    }

    /// Whether the client has clusters, or may have, of which it has not told on this stream (see [`order`]).
    fn clusters_are_untold(&self) -> bool {
        // An answer of a client shows that it has stated all it will, but not every variant can ask for one.
        let stated = self.settled || !T::EMPTY_IS_HARMLESS;
        !self.track(ResourceType::Cluster).registered()
            && self.resumed.contains(&true)
            && (self.track(ResourceType::Endpoint).registered() || !stated)
    }

    fn progress(&self, kind: ResourceType) -> Progress {
        let track = self.track(kind);
        let untold = kind == ResourceType::Cluster && self.clusters_are_untold();
        Progress {
            registered: track.registered() || untold,
            quiet: track.quiet() && !untold,
            stuck: track.stuck(),
        }
    }

    pub(super) fn track(&self, kind: ResourceType) -> &T {
        &self.tracks[index(kind)]
    }

    fn track_mut(&mut self, kind: ResourceType) -> &mut T {
        &mut self.tracks[index(kind)]
    }
}

/// The place of a type in [`ResourceType::ALL`], which lists the variants as they are declared.
fn index(kind: ResourceType) -> usize {
    kind as usize
}

fn event(kind: ResourceType, verdict: Verdict) -> Event {
    match verdict {
        Verdict::Acked { nonce, resources, removed } => Event::Acked { kind, nonce, resources, removed },
        Verdict::Rejected { nonce, names, message, conclusive } => {
            Event::Rejected { kind, nonce, names, message, conclusive }
        }
    }
}

impl<T> fmt::Debug for Conversation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("scope", &self.scope)
            .field("class", &self.view.as_ref().map(|view| Arc::clone(&view.class)))
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}
