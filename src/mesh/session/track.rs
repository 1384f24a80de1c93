//! What the two variants of the protocol have in common: one type's side of a stream.

use std::sync::Arc;

use super::status::TypeStatus;
use super::{ProtocolError, Response};
use crate::resource::ResourceType;
use crate::world::View;

/// How much a client may hold that the view no longer has, per type, while removals wait for the client to
/// let go of what refers to them. They wait for long only if a client keeps refusing the listener or route
/// that would let go; then this many leftovers are worth an unbroken old route, and no more.
pub(super) const MAX_RETAINED: usize = 4096;

/// One type on one stream.
pub(super) trait Track {
    /// The request message of the variant.
    type Request;

    /// Whether a response may be empty and yet leave the client all that it holds.
    const EMPTY_IS_HARMLESS: bool;

    /// A track nobody has asked for yet.
    fn new(kind: ResourceType) -> Self;

    /// The type URL that a request names.
    fn type_url(request: &Self::Request) -> &str;

    /// Whether the first request for a type says that the client holds some of it.
    fn resumes(request: &Self::Request) -> bool;

    /// Checks what a request names, before any of it is taken.
    fn check(kind: ResourceType, request: &Self::Request) -> Result<(), ProtocolError>;

    /// Takes the stream's first request for this type. It answers nothing: a nonce, if it has one, is of another
    /// stream.
    fn register(&mut self, request: &Self::Request, context: &Context<'_>);

    /// Takes a further request for this type.
    fn on_request(&mut self, request: &Self::Request, context: &Context<'_>) -> Option<Verdict>;

    /// What the client asked for and holds, and what is on its way to be removed there.
    fn held(&self) -> Tally;

    /// Notes that the resource of this name may look different in the view.
    fn touch(&mut self, name: &Arc<str>);

    /// Notes that every resource may look different in the view.
    fn touch_all(&mut self);

    /// Notes that the client waits for this resource even if it holds it already.
    fn warm(&mut self, name: &Arc<str>);

    /// What to send now, if anything. It counts as sent.
    fn next(&mut self, view: &View, gates: Gates, nonce: u64) -> Option<Outgoing>;

    /// Whether the client has asked for this type on this stream.
    fn registered(&self) -> bool;

    /// Whether nothing is unanswered and nothing waits.
    fn quiet(&self) -> bool;

    /// Whether the client keeps an older version of something in force, having refused the newer one.
    fn stuck(&self) -> bool;

    /// What of the names that are new to the client it cannot be relied on to have yet.
    fn novelty(&self, view: &View) -> Novelty;

    /// For people.
    fn status(&self) -> TypeStatus;
}

/// Names, and the memory they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) names: usize,
    pub(super) bytes: usize,
}

/// What a track needs to know about its stream to take a request.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// The view, if there is one. Only for sharing its names.
    pub(super) view: Option<&'a View>,
    /// Whether the stream has carried a response of any type.
    pub(super) answered: bool,
    /// Whether the stream carries this type alone.
    pub(super) alone: bool,
    /// Whether a cluster at the client waits for what is asked for first now, or may.
    pub(super) warming: bool,
}

/// What the order of types allows a track to do now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gates {
    /// Send what is new or changed.
    pub(super) send: bool,
    /// Remove what the client may still refer to.
    pub(super) remove: bool,
    /// Give an answer that is due, even though there is news that may not be sent: to hear the client's answer. Not to a
    /// client that holds nothing of the type, which would take it that there is nothing.
    pub(super) probe: bool,
}

/// A response and what follows from it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) response: Response,
    /// The EDS names that Envoy waits for after the clusters in this response.
    pub(super) warming: Vec<Arc<str>>,
}

/// How far the client is with names that it did not have before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// It has taken, or refused for good, all that exist.
    Known,
    /// All have been sent; the answer is not there.
    Unanswered,
    /// Some have not been sent, or are being sent again to find out which are bad.
    Unsent,
}

/// A client's answer to a response.
#[derive(Debug)]
pub(super) enum Verdict {
    /// ACK.
    Acked { nonce: u64, resources: usize, removed: usize },
    /// NACK.
    Rejected { nonce: u64, names: Vec<Arc<str>>, message: Arc<str>, conclusive: bool },
}
