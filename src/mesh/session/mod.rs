//! One xDS stream as a pure state machine: what the client asked for and holds, what it is sent next.
//!
//! Owns the protocol in both variants, State-of-the-World ([`sotw`]) and Delta ([`delta`]), on the
//! aggregated stream and on the separate ones, and the order in which types follow one another
//! ([`order`]). Refuses to know what a resource means, to decide who gets which ([`crate::world::View`]
//! has decided), and to do I/O: requests and views come in, a [`Step`] goes out.
//!
//! ```text
//! request ──► ┌──────────────────────────────┐
//!             │ conversation: view, nonces,  │──► Step { responses, events }
//! view ─────► │ order ─► 5 tracks, one a type│
//!             └──────────────────────────────┘
//! ```
//!
//! What holds on every stream:
//!
//! - One response per type is unanswered at most. What changes meanwhile is not queued: the next response
//!   is made from the latest view when the answer is there. A slow client costs no memory.
//! - What the client holds is known by version (a content hash), so a resumed Delta stream carries only
//!   what differs: nothing at all, if nothing does.
//! - Nothing is answered before there is a view, so a server that has not synced deletes nothing.
//! - A name the view does not have is never sent; a name asked for that does not exist is answered with a
//!   removal (Delta), for else Envoy waits for it.
//! - What the client rejected is not sent again until its content changes, and does not hold back the rest.
//!
//! Memory per stream: 1.5 KiB, and for each name that the client holds or asked for 34 bytes in a B-tree
//! (about 50 with its slack) in Delta; in State of the World 8 bytes a resource, and about 25 for each name
//! asked for. The names themselves are shared with the resources, so 1,000 names cost about 50 KiB. Names that no
//! resource has are the session's own; what all names take is bounded by [`MAX_HELD_BYTES`].

mod conversation;
mod delta;
mod held;
mod limits;
mod order;
mod rejection;
mod response;
mod sotw;
mod status;
mod track;

use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use serde::{Deserialize, Serialize};

pub use self::limits::{
    MAX_HELD_BYTES, MAX_NAME_BYTES, MAX_NAMES, NAME_OVERHEAD, ProtocolError, max_request_bytes,
};
pub use self::response::Response;
pub use self::status::{RejectedStatus, SessionStatus, TypeStatus};

use self::conversation::Conversation;
use self::delta::DeltaTrack;
use self::sotw::SotwTrack;
use crate::resource::ResourceType;
use crate::world::{Touched, View};

/// Which variant of the protocol a stream speaks. The gRPC method decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// State of the World: each response of CDS and LDS holds all there is.
    Sotw,
    /// Incremental: each response holds what changed.
    Delta,
}

/// Which types a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All of them (ADS).
    Aggregated,
    /// This one only (CDS, EDS, LDS, RDS or SDS on its own). Such streams cannot be ordered among each
    /// other, so make-before-break holds on the aggregated stream alone, as the xDS specification warns.
    Only(ResourceType),
}

/// What a session wants done: responses to send in this order, and what is worth counting or logging.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// Send these, in this order.
    pub responses: Vec<Response>,
    /// For metrics, logs and the status of the objects behind the resources.
    pub events: Vec<Event>,
}

/// Something the session noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The client asked for a type for the first time on this stream.
    Subscribed {
        /// The type.
        kind: ResourceType,
    },
    /// The client took a response.
    Acked {
        /// The type.
        kind: ResourceType,
        /// The response.
        nonce: u64,
        /// How many resources it carried.
        resources: usize,
        /// How many removals it carried.
        removed: usize,
    },
    /// The client refused a response (NACK). What it held stays in force there.
    Rejected {
        /// The type.
        kind: ResourceType,
        /// The response.
        nonce: u64,
        /// What may be to blame: in Delta all it carried, in State of the World what it changed.
        names: Vec<Arc<str>>,
        /// What the client said, cut to 1 KiB.
        message: Arc<str>,
        /// Whether `names` stay rejected until their content changes. If not, they are being sent again in
        /// halves, to find the culprit and to let the others through.
        conclusive: bool,
    },
    /// The client asked for a type that SMC does not serve. It gets no answer, as the specification
    /// wants; reported once per URL and stream, for the first eight.
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
    Sotw(Box<Conversation<SotwTrack>>),
    Delta(Box<Conversation<DeltaTrack>>),
}

impl Session {
    /// A session for a new stream.
    pub fn new(variant: Variant, scope: Scope) -> Self {
        Self(match variant {
            Variant::Sotw => Inner::Sotw(Box::new(Conversation::new(scope))),
            Variant::Delta => Inner::Delta(Box::new(Conversation::new(scope))),
        })
    }

    /// Takes a State-of-the-World request.
    ///
    /// `view` is taken while the session has none and ignored afterwards: from then on views come through
    /// [`Session::on_view`] alone, which says what they touched. An error ends the stream.
    pub fn on_sotw(
        &mut self,
        request: &discovery::DiscoveryRequest,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        match &mut self.0 {
            Inner::Sotw(conversation) => conversation.on_request(request, view),
            Inner::Delta(_) => Err(ProtocolError::WrongVariant { expected: Variant::Delta }),
        }
    }

    /// Takes a Delta request; else as [`Session::on_sotw`].
    pub fn on_delta(
        &mut self,
        request: &discovery::DeltaDiscoveryRequest,
        view: Option<&View>,
    ) -> Result<Step, ProtocolError> {
        match &mut self.0 {
            Inner::Delta(conversation) => conversation.on_request(request, view),
            Inner::Sotw(_) => Err(ProtocolError::WrongVariant { expected: Variant::Sotw }),
        }
    }

    /// Takes a newer view. `touched` must cover all that differs from the view the session has: too much
    /// is only slower. Views must come in order; that is what keeps a proxy from going back in time.
    pub fn on_view(&mut self, view: &View, touched: &Touched) -> Step {
        match &mut self.0 {
            Inner::Sotw(conversation) => conversation.on_view(view, touched),
            Inner::Delta(conversation) => conversation.on_view(view, touched),
        }
    }

    /// Whether the session has been given a view.
    pub fn has_view(&self) -> bool {
        match &self.0 {
            Inner::Sotw(conversation) => conversation.has_view(),
            Inner::Delta(conversation) => conversation.has_view(),
        }
    }

    /// What the names take that the client asked for and holds, in bytes: at most [`MAX_HELD_BYTES`] after a request,
    /// and twice that once all of them are being removed. Cheap.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Inner::Sotw(conversation) => conversation.held_bytes(),
            Inner::Delta(conversation) => conversation.held_bytes(),
        }
    }

    /// Every name of a type that a Delta session keeps in some place.
    #[cfg(test)]
    fn kept(&self, kind: ResourceType) -> std::collections::BTreeSet<Arc<str>> {
        match &self.0 {
            Inner::Sotw(_) => std::collections::BTreeSet::new(),
            Inner::Delta(conversation) => conversation.track(kind).kept(),
        }
    }

    /// Whether the client has answered all it was sent and nothing more waits to be sent.
    pub fn acknowledged(&self) -> bool {
        match &self.0 {
            Inner::Sotw(conversation) => conversation.acknowledged(),
            Inner::Delta(conversation) => conversation.acknowledged(),
        }
    }

    /// Whether the client has taken all that it asked for of a type other than endpoints, as `view` has it, and keeps
    /// nothing older of it in force. What it never asked for on this stream it does not have.
    pub fn has_taken(&self, kind: ResourceType, view: &View) -> bool {
        match &self.0 {
            Inner::Sotw(conversation) => conversation.has_taken(kind, view),
            Inner::Delta(conversation) => conversation.has_taken(kind, view),
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
            Inner::Sotw(conversation) => conversation.scope(),
            Inner::Delta(conversation) => conversation.scope(),
        }
    }

    /// What the client asked for, was sent, took and refused. Walks all names: for people, not for loops.
    pub fn status(&self) -> SessionStatus {
        let types = match &self.0 {
            Inner::Sotw(conversation) => conversation.status(),
            Inner::Delta(conversation) => conversation.status(),
        };
        SessionStatus { variant: self.variant(), scope: self.scope(), types }
    }
}

#[cfg(test)]
mod tests;
