//! One stream: its view, its nonces, and the state of each type.
//!
//! Owns the step function that both variants share; [`TypeState`] is what differs between them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::limits::{check_bytes, check_count, check_names, cut};
use super::order::{self, PATIENCE, Progress};
use super::request::{NameList, Request};
use super::status::{RejectedResource, TypeStatus};
use super::type_state::{Begun, ClusterProgress, Context, SendPolicy, TypeState};
use super::{Event, ProtocolError, Response, Scope, Step, Verdict};
use crate::resource::ResourceType;
use crate::revision::{Stated, Versions};
use crate::served_state::{Changed, View};

/// How many type URLs that SMC does not serve are remembered, to report each once. Envoy has about a
/// dozen types.
const MAX_UNKNOWN_TYPES: usize = 8;

/// How much of a type URL is kept, in bytes.
const MAX_URL_BYTES: usize = 256;

/// How many names one step looks at, about: half a millisecond's work. What is left waits for the next
/// step, so that no proxy holds a thread.
pub(super) const STEP: usize = 1024;

/// A request of which not all names have been taken in.
struct Intake {
    kind: ResourceType,
    request: Request,
    first: bool,
    /// The lists that are left, and where in the first of them.
    lists: &'static [NameList],
    position: usize,
}

/// How far the source is known to have come, beyond what the view says.
enum Reached {
    Known(Versions),
    /// It does not come as far as what the client holds. The view is served all the same.
    GivenUp,
}

pub(super) struct StreamState<T> {
    scope: Scope,
    /// The latest view. Kept, because an answer may come much later and lead to the next response.
    view: Option<View>,
    /// The nonce of the latest response of any type; 0 before the first.
    nonce: u64,
    /// The client has answered a response on this stream.
    has_answered: bool,
    /// The types of which the client stated, in its first request, that it holds resources.
    resumed: [bool; ResourceType::ALL.len()],
    /// The highest versions in what the client stated to hold: replicas that had come so far sent it.
    newest_held: Versions,
    reached: Reached,
    /// The number of answers to CDS that a listener or route has waited for.
    waited: u8,
    /// A listener or route waits for clusters now.
    held_back: bool,
    unknown_types: Vec<String>,
    intake: Option<Intake>,
    /// The client caused what is being done: it has sent a request since the last step that left nothing.
    asked: bool,
    /// In the order of [`ResourceType::ALL`].
    types: [T; ResourceType::ALL.len()],
}

impl<T: TypeState> StreamState<T> {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            view: None,
            nonce: 0,
            has_answered: false,
            resumed: [false; ResourceType::ALL.len()],
            newest_held: Versions::default(),
            reached: Reached::Known(Versions::default()),
            waited: 0,
            held_back: false,
            unknown_types: Vec::new(),
            intake: None,
            asked: false,
            types: ResourceType::ALL.map(T::new),
        }
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    pub(super) fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// The bytes that the names held and subscribed to take.
    pub(super) fn held_bytes(&self) -> usize {
        self.types.iter().map(|state| state.usage().bytes).sum()
    }

    pub(super) fn acknowledged(&self) -> bool {
        self.intake.is_none() && self.types.iter().all(|state| !state.registered() || state.idle())
    }

    pub(super) fn has_acked(&self, kind: ResourceType, view: &View) -> bool {
        let state = self.of_type(kind);
        let is_current = self.view.as_ref().is_some_and(|current| current.is_same_snapshot(view));
        is_current && (!state.registered() || (state.idle() && !state.kept_old()))
    }

    pub(super) fn has_answered(&self, view: &View) -> bool {
        self.acknowledged() && self.view.as_ref().is_some_and(|current| current.is_same_snapshot(view))
    }

    pub(super) fn rejected(&self, limit: usize) -> Vec<RejectedResource> {
        let types = ResourceType::ALL.into_iter().zip(&self.types);
        let rejected = types.flat_map(|(kind, state)| {
            state.rejected().map(move |(name, message)| RejectedResource {
                kind,
                name: Arc::clone(name),
                message: Arc::clone(message),
            })
        });
        rejected.take(limit).collect()
    }

    pub(super) fn status(&self) -> BTreeMap<ResourceType, TypeStatus> {
        let types = ResourceType::ALL.into_iter().zip(&self.types);
        types.filter(|(_, state)| state.registered()).map(|(kind, state)| (kind, state.status())).collect()
    }

    pub(super) fn on_view(&mut self, view: &View, changed: &Changed) -> Step {
        let same_class = self.view.as_ref().is_some_and(|old| old.class == view.class);
        match changed {
            Changed::Names(names) if same_class => {
                for (kind, name) in names {
                    self.of_type_mut(*kind).mark_changed(name);
                }
            }
            _ => self.types.iter_mut().for_each(T::mark_all_changed),
        }
        self.view = Some(view.clone());
        self.settled_step()
    }

    pub(super) fn on_request(
        &mut self,
        request: Request,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        while self.intake.is_some() {
            self.take_in(usize::MAX)?;
        }
        let mut events = Vec::new();
        let Some(kind) = self.kind_of(request.type_url(), &mut events)? else {
            return Ok(Step { events, ..Step::default() });
        };
        self.asked = true;
        if self.view.is_none()
            && let Some(view) = view
        {
            self.view = Some(view.clone());
            self.types.iter_mut().for_each(T::mark_all_changed);
        }
        for list in [NameList::Held, NameList::Subscribed, NameList::Unsubscribed] {
            check_names(kind, request.total(list))?;
        }
        let state = &mut self.types[index(kind)];
        let first = !state.registered();
        if first {
            self.resumed[index(kind)] = T::resumes(&request);
            events.push(Event::Subscribed { kind });
        }
        let Begun { verdict, lists } = state.begin(&request);
        if let Some(verdict) = verdict {
            self.has_answered = true;
            if kind == ResourceType::Cluster && self.held_back && matches!(verdict, Verdict::Acked { .. }) {
                self.waited = self.waited.saturating_add(1).min(PATIENCE);
            }
            events.push(Event::Answered { kind, verdict });
        }
        self.intake = Some(Intake { kind, request, first, lists, position: 0 });
        Ok(Step { events, ..self.proceed()? })
    }

    /// Goes on with what the last step left.
    pub(super) fn proceed(&mut self) -> Result<Step, ProtocolError> {
        if self.take_in(STEP)? == STEP {
            let work = self.take_work();
            return Ok(Step { more: true, work, ..Step::default() });
        }
        Ok(self.settled_step())
    }

    /// Takes in at most `limit` names of the latest request. Returns how many; fewer than `limit` if none is
    /// left.
    fn take_in(&mut self, limit: usize) -> Result<usize, ProtocolError> {
        let Some(mut intake) = self.intake.take() else { return Ok(0) };
        let Intake { kind, first, .. } = intake;
        let context = Context {
            view: self.view.as_ref(),
            first,
            answered: self.nonce > 0,
            alone: matches!(self.scope, Scope::Only(_)),
            warming: self.scope == Scope::Aggregated
                && kind == ResourceType::Endpoint
                && !self.of_type(ResourceType::Cluster).registered(),
        };
        let state = &mut self.types[index(kind)];
        let mut stated = Stated::default();
        let mut taken = 0;
        while let Some(&list) = intake.lists.first() {
            let mut names = intake.request.names(list, intake.position);
            for (name, version) in names.by_ref().take(limit - taken) {
                let held = match list {
                    NameList::Held => stated.read(version, &mut self.newest_held).ok(),
                    NameList::Subscribed | NameList::Unsubscribed => None,
                };
                state.take_in(list, name, held, &context);
                taken += 1;
            }
            let position = names.position();
            if taken == limit {
                intake.position = position;
                self.intake = Some(intake);
                return Ok(taken);
            }
            intake.lists = &intake.lists[1..];
            intake.position = 0;
        }
        state.finish(&intake.request, &context);
        check_count(kind, state.usage().names)?;
        check_bytes(self.held_bytes())?;
        Ok(taken)
    }

    /// Compares names with the view, and makes responses if that ends in this step.
    fn settled_step(&mut self) -> Step {
        let mut step = Step { more: self.intake.is_some(), ..Step::default() };
        if step.more {
            return step;
        }
        let mut left = STEP;
        if let Some(view) = &self.view {
            for state in self.types.iter_mut().filter(|state| state.registered()) {
                left = left.saturating_sub(state.settle(view, left));
            }
        }
        if left == 0 {
            step.more = true;
        } else {
            step.responses = self.pump();
        }
        step.work = self.take_work();
        self.asked &= step.more;
        step
    }

    /// The names that were looked at because of the client. Those of a new view are another's doing.
    fn take_work(&mut self) -> usize {
        let work = self.types.iter_mut().map(T::take_work).sum();
        if self.asked { work } else { 0 }
    }

    /// Returns true if the client holds newer content than the view has, of any kind of object. Secrets
    /// do not come from a source.
    fn is_behind(&self, view: &View) -> bool {
        let (Some(revision), Reached::Known(reached)) = (view.revision(), &self.reached) else {
            return false;
        };
        let mut known = revision.known.clone();
        known.raise_all(reached);
        !known.covers(&self.newest_held)
    }

    pub(super) fn holds_back(&self) -> bool {
        let holds = |kind: ResourceType| {
            let state = self.of_type(kind);
            kind != ResourceType::Secret && state.registered() && state.has_more()
        };
        let behind = self.view.as_ref().is_some_and(|view| self.is_behind(view));
        behind && ResourceType::ALL.into_iter().any(holds)
    }

    pub(super) fn on_reached(&mut self, known: &Versions) -> Step {
        if let Reached::Known(reached) = &mut self.reached {
            reached.raise_all(known);
        }
        self.settled_step()
    }

    pub(super) fn give_up(&mut self) -> Step {
        self.reached = Reached::GivenUp;
        self.settled_step()
    }

    /// The type that a request is for; `None` if SMC does not serve it.
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

    /// All responses that may be sent now, in order.
    ///
    /// Takes two rounds: a cluster may be removed only when listeners and routes are idle, and these
    /// come later in the order.
    fn pump(&mut self) -> Vec<Response> {
        let mut responses = Vec::new();
        let Some(view) = self.view.take() else { return responses };
        for _ in 0..2 {
            self.held_back = false;
            for kind in ResourceType::ALL {
                if self.of_type(kind).registered()
                    && let Some(response) = self.advance(kind, &view)
                {
                    responses.push(response);
                }
            }
        }
        self.view = Some(view);
        responses
    }

    /// The response of one type that may be sent now.
    fn advance(&mut self, kind: ResourceType, view: &View) -> Option<Response> {
        let policy = self.policy(kind, view);
        let nonce = self.nonce + 1;
        let outgoing = self.of_type_mut(kind).next(view, policy, nonce);
        let switches = matches!(kind, ResourceType::Listener | ResourceType::Route);
        let Some(outgoing) = outgoing else {
            self.held_back |= switches && !policy.send && !self.of_type(kind).idle();
            return None;
        };
        self.nonce = nonce;
        if switches {
            self.waited = 0;
        }
        for name in &outgoing.warming {
            self.of_type_mut(ResourceType::Endpoint).resend(name);
        }
        Some(outgoing.response)
    }

    fn policy(&self, kind: ResourceType, view: &View) -> SendPolicy {
        let hold = kind != ResourceType::Secret && self.is_behind(view);
        let resumed = self.resumed[index(kind)];
        if matches!(self.scope, Scope::Only(_)) {
            return SendPolicy { send: true, remove: true, probe: hold && resumed, hold };
        }
        let unstated = self.has_unstated_clusters();
        let clusters = || {
            let clusters = self.of_type(ResourceType::Cluster);
            if clusters.registered() {
                clusters.progress(view)
            } else if unstated {
                ClusterProgress::Unsent
            } else {
                ClusterProgress::Known
            }
        };
        SendPolicy {
            send: order::may_send(kind, clusters, self.waited),
            remove: order::may_remove(kind, self.has_answered, |kind| self.progress(kind)),
            probe: (unstated || hold) && resumed,
            hold,
        }
    }

    /// Returns true if the client may hold clusters that it has not stated on this stream (see [`order`]).
    fn has_unstated_clusters(&self) -> bool {
        // An answer shows that the client has stated all it will state, but not every variant can elicit one.
        let stated = self.has_answered || !T::EMPTY_IS_HARMLESS;
        !self.of_type(ResourceType::Cluster).registered()
            && self.resumed.contains(&true)
            && (self.of_type(ResourceType::Endpoint).registered() || !stated)
    }

    fn progress(&self, kind: ResourceType) -> Progress {
        let state = self.of_type(kind);
        let unstated = kind == ResourceType::Cluster && self.has_unstated_clusters();
        Progress {
            registered: state.registered() || unstated,
            idle: state.idle() && !unstated,
            kept_old: state.kept_old(),
        }
    }

    pub(super) fn of_type(&self, kind: ResourceType) -> &T {
        &self.types[index(kind)]
    }

    fn of_type_mut(&mut self, kind: ResourceType) -> &mut T {
        &mut self.types[index(kind)]
    }
}

/// The index of a type in [`ResourceType::ALL`], which lists the variants in the order of their declaration.
fn index(kind: ResourceType) -> usize {
    kind as usize
}

impl<T> fmt::Debug for StreamState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamState")
            .field("scope", &self.scope)
            .field("class", &self.view.as_ref().map(|view| Arc::clone(&view.class)))
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}
