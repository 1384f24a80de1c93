//! One xDS stream as a pure state machine: what the client subscribed to and holds, what it is sent next.
//!
//! Owns both variants of the protocol, State of the World ([`sotw`]) and Delta ([`delta`]), on the aggregated
//! stream and on the separate ones, and the order of types ([`order`]). Does no I/O: requests and views come
//! in, a [`Step`] goes out.
//!
//! ```text
//! request ──► ┌───────────────────────────────┐
//!             │ StreamState: view, nonces,    │──► Step { responses, events }
//! view ─────► │ order ─► 5 TypeStates         │
//!             └───────────────────────────────┘
//! ```
//!
//! Invariants of every stream:
//!
//! - At most one response per type is unanswered. Changes meanwhile are not queued: the next response is made
//!   from the latest view when the answer arrives. A slow client costs no memory.
//! - What the client holds is known by version (a content hash), so a resumed Delta stream carries only the
//!   differences.
//! - What a replica that lags behind has is not sent to a client that holds something newer.
//! - Nothing is sent before there is a view, so a server that has not synced deletes nothing.
//! - A name that the view does not have is never sent. A subscription to such a name is answered with a
//!   removal (Delta), because Envoy waits for an answer.
//! - A rejected version is not sent again, and does not hold back other resources.
//!
//! Memory per stream: 1.5 KiB; in Delta 34 bytes in a B-tree (about 50 with its slack) for each name
//! held or subscribed to; in State of the World 8 bytes per resource and about 25 per name subscribed
//! to. Names are shared with the resources, so 1,000 names cost about 50 KiB. A name without a resource
//! is the session's own copy. [`MAX_HELD_BYTES`] bounds what all names take.

mod delta;
mod limits;
mod order;
mod rejection;
mod request;
mod response;
mod sotw;
mod status;
mod stream_state;
mod type_state;
mod verdict;
mod work;

use serde::{Deserialize, Serialize};

pub use self::limits::{
    MAX_HELD_BYTES, MAX_NAME_BYTES, MAX_NAMES, MAX_REQUEST_BYTES, MAX_UNHANDLED_BYTES, NAME_OVERHEAD,
    ProtocolError,
};
pub use self::request::{Node, Request, RequestError};
pub use self::response::Response;
pub use self::status::{RejectedResource, RejectedStatus, SessionStatus, TypeStatus};
pub use self::verdict::Verdict;

use self::delta::DeltaState;
use self::sotw::SotwState;
use self::stream_state::StreamState;
use crate::resource::ResourceType;
use crate::revision::Versions;
use crate::served_state::{Changed, View};

/// A variant of the protocol. The gRPC method decides which one a stream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// State of the World: each response of CDS and LDS holds all resources.
    Sotw,
    /// Incremental: each response holds what changed.
    Delta,
}

/// The types that a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All types (ADS).
    Aggregated,
    /// This type only (CDS, EDS, LDS, RDS or SDS on its own). The order of separate streams is not
    /// defined, so make-before-break holds on the aggregated stream alone, as the xDS specification
    /// warns.
    Only(ResourceType),
}

/// The result of one input to a session.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// The responses to send, in this order.
    pub responses: Vec<Response>,
    /// For metrics, logs and the status of the objects behind the resources.
    pub events: Vec<Event>,
    /// There is more to do: [`Session::proceed`] is to be called before the next request. One step takes
    /// about a millisecond at most, apart from the encoding of what is sent.
    pub more: bool,
    /// The names that were looked at because of the client: what the step is charged by.
    pub work: usize,
}

/// An observation that is worth a count or a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The client subscribed to a type for the first time on this stream.
    Subscribed {
        /// The type.
        kind: ResourceType,
    },
    /// The client answered a response.
    Answered {
        /// The type.
        kind: ResourceType,
        /// ACK or NACK.
        verdict: Verdict,
    },
    /// The client subscribed to a type that SMC does not serve. It gets no answer, as the specification
    /// wants. Reported once per URL and stream, for the first eight URLs.
    UnknownType {
        /// The type URL, cut to 256 bytes.
        url: String,
    },
}

/// The server's side of one xDS stream. It begins and ends with the stream.
#[derive(Debug)]
pub struct Session(Inner);

#[derive(Debug)]
enum Inner {
    Sotw(Box<StreamState<SotwState>>),
    Delta(Box<StreamState<DeltaState>>),
}

impl Session {
    /// A session for a new stream.
    pub fn new(variant: Variant, scope: Scope) -> Self {
        Self(match variant {
            Variant::Sotw => Inner::Sotw(Box::new(StreamState::new(scope))),
            Variant::Delta => Inner::Delta(Box::new(StreamState::new(scope))),
        })
    }

    /// Handles a request. An error ends the stream.
    ///
    /// `view` is used only while the session has none. Later views come through [`Session::on_view`], which
    /// also says what changed.
    pub fn on_request(&mut self, request: Request, view: Option<&View>) -> Result<Step, ProtocolError> {
        if request.variant() != self.variant() {
            return Err(ProtocolError::WrongVariant { expected: self.variant() });
        }
        match &mut self.0 {
            Inner::Sotw(stream) => stream.on_request(request, view),
            Inner::Delta(stream) => stream.on_request(request, view),
        }
    }

    /// Goes on with what a step has left ([`Step::more`]). An error ends the stream.
    pub fn proceed(&mut self) -> Result<Step, ProtocolError> {
        match &mut self.0 {
            Inner::Sotw(stream) => stream.proceed(),
            Inner::Delta(stream) => stream.proceed(),
        }
    }

    /// Handles a newer view. `changed` must cover every difference from the session's current view; a
    /// superset is only slower. Views must come in order, otherwise a proxy would go back to an older
    /// configuration.
    pub fn on_view(&mut self, view: &View, changed: &Changed) -> Step {
        match &mut self.0 {
            Inner::Sotw(stream) => stream.on_view(view, changed),
            Inner::Delta(stream) => stream.on_view(view, changed),
        }
    }

    /// Returns true if the client holds newer content than the view has, and something is not sent because of
    /// it: this replica lags behind another one, with some kind of object ([`crate::revision`]). A newer view
    /// ends that, and so do [`Session::on_reached`] and [`Session::give_up`].
    pub fn holds_back(&self) -> bool {
        match &self.0 {
            Inner::Sotw(stream) => stream.holds_back(),
            Inner::Delta(stream) => stream.holds_back(),
        }
    }

    /// Takes note that all changes up to these versions are known and the view is as before.
    pub fn on_reached(&mut self, known: &Versions) -> Step {
        match &mut self.0 {
            Inner::Sotw(stream) => stream.on_reached(known),
            Inner::Delta(stream) => stream.on_reached(known),
        }
    }

    /// Ends the wait for a replica that does not catch up, for as long as the stream lasts.
    pub fn give_up(&mut self) -> Step {
        match &mut self.0 {
            Inner::Sotw(stream) => stream.give_up(),
            Inner::Delta(stream) => stream.give_up(),
        }
    }

    /// Returns true if the session has a view.
    pub fn has_view(&self) -> bool {
        match &self.0 {
            Inner::Sotw(stream) => stream.has_view(),
            Inner::Delta(stream) => stream.has_view(),
        }
    }

    /// The bytes that the names held and subscribed to take: at most [`MAX_HELD_BYTES`] after a request, and
    /// twice that while all of them are being removed. O(types).
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Inner::Sotw(stream) => stream.held_bytes(),
            Inner::Delta(stream) => stream.held_bytes(),
        }
    }

    /// Every name of a type that a Delta session stores anywhere.
    #[cfg(test)]
    fn kept(&self, kind: ResourceType) -> std::collections::BTreeSet<std::sync::Arc<str>> {
        match &self.0 {
            Inner::Sotw(_) => std::collections::BTreeSet::new(),
            Inner::Delta(stream) => stream.of_type(kind).kept(),
        }
    }

    /// Returns true if every response is answered and nothing waits to be sent.
    pub fn acknowledged(&self) -> bool {
        match &self.0 {
            Inner::Sotw(stream) => stream.acknowledged(),
            Inner::Delta(stream) => stream.acknowledged(),
        }
    }

    /// Returns true if the client has ACKed all it subscribed to of `kind` as `view` has it, and keeps
    /// no older version in force. True also if it never subscribed to `kind` on this stream. Not for
    /// endpoints, which the comparison of snapshots leaves out.
    pub fn has_acked(&self, kind: ResourceType, view: &View) -> bool {
        match &self.0 {
            Inner::Sotw(stream) => stream.has_acked(kind, view),
            Inner::Delta(stream) => stream.has_acked(kind, view),
        }
    }

    /// Returns true if the client has answered all that it subscribed to as `view` has it, of every type: it
    /// has ACKed it, or rejected a part of it.
    pub fn has_answered(&self, view: &View) -> bool {
        match &self.0 {
            Inner::Sotw(stream) => stream.has_answered(view),
            Inner::Delta(stream) => stream.has_answered(view),
        }
    }

    /// The variant.
    pub fn variant(&self) -> Variant {
        match &self.0 {
            Inner::Sotw(_) => Variant::Sotw,
            Inner::Delta(_) => Variant::Delta,
        }
    }

    /// The scope.
    pub fn scope(&self) -> Scope {
        match &self.0 {
            Inner::Sotw(stream) => stream.scope(),
            Inner::Delta(stream) => stream.scope(),
        }
    }

    /// The first `limit` resources that the client rejected and still lacks. Costs no more than their
    /// number, and is called at every step of a stream.
    pub fn rejected(&self, limit: usize) -> Vec<RejectedResource> {
        match &self.0 {
            Inner::Sotw(stream) => stream.rejected(limit),
            Inner::Delta(stream) => stream.rejected(limit),
        }
    }

    /// What the client subscribed to, was sent, ACKed and rejected. Walks all names: for display, not
    /// for loops.
    pub fn status(&self) -> SessionStatus {
        let types = match &self.0 {
            Inner::Sotw(stream) => stream.status(),
            Inner::Delta(stream) => stream.status(),
        };
        SessionStatus { variant: self.variant(), scope: self.scope(), types }
    }
}

#[cfg(test)]
mod tests;
