//! What both variants of the protocol have in common: the state of one type on a stream.

use std::sync::Arc;

use super::request::{NameList, Request};
use super::status::TypeStatus;
use super::{Response, Verdict};
use crate::resource::{ResourceType, Version};
use crate::served_state::View;

/// How many resources per type a client may keep that the view no longer has, while their removal waits
/// until the client drops its references to them. The wait is long only if the client keeps rejecting
/// the listener or route without those references; an old route is worth this many leftovers and no
/// more.
pub(super) const MAX_RETAINED: usize = 4096;

/// The state of one type on one stream.
pub(super) trait TypeState {
    /// True if an empty response removes nothing from the client.
    const EMPTY_IS_HARMLESS: bool;

    /// A type without a subscription.
    fn new(kind: ResourceType) -> Self;

    /// Returns true if the first request for a type states that the client holds resources of it.
    fn resumes(request: &Request) -> bool;

    /// Begins a request: takes in the answer to a response, and says which lists of names are to be taken in,
    /// in this order. The first request for a type answers no response: if it has a nonce, that nonce is
    /// from another stream.
    fn begin(&mut self, request: &Request) -> Begun;

    /// Takes in one name of a list. `held` is the version that the client holds, if the list has versions and
    /// SMC knows this one.
    fn take_in(&mut self, list: NameList, name: &str, held: Option<Version>, context: &Context<'_>);

    /// Ends a request, when all its names are taken in.
    fn finish(&mut self, request: &Request, context: &Context<'_>);

    /// Compares names with the view, about `limit` of them. Returns how many it looked at; fewer than `limit`
    /// if none is left to compare before a response is made.
    fn settle(&mut self, view: &View, limit: usize) -> usize;

    /// The names that were looked at since this was last asked.
    fn take_work(&mut self) -> usize;

    /// The names held and subscribed to, and those whose removal is unanswered.
    fn usage(&self) -> Usage;

    /// Marks one name as possibly different in the view.
    fn mark_changed(&mut self, name: &Arc<str>);

    /// Marks every name as possibly different in the view.
    fn mark_all_changed(&mut self);

    /// Marks a resource to be sent even if the client holds it, because the client waits for it.
    fn resend(&mut self, name: &Arc<str>);

    /// The next response, if there is one. It counts as sent.
    fn next(&mut self, view: &View, policy: SendPolicy, nonce: u64) -> Option<Outgoing>;

    /// Returns true if the client has subscribed to this type on this stream.
    fn registered(&self) -> bool;

    /// Returns true if no response is unanswered and nothing waits to be sent.
    fn idle(&self) -> bool;

    /// Returns true if something waits to be sent, whether or not a response is unanswered.
    fn has_more(&self) -> bool;

    /// Returns true if the client rejected a newer version of a resource and keeps the older one in force.
    fn kept_old(&self) -> bool;

    /// How far the client is with names that it did not hold before.
    fn progress(&self, view: &View) -> ClusterProgress;

    /// The rejected resources that the client lacks, each with its error message.
    fn rejected(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)>;

    /// The state for display.
    fn status(&self) -> TypeStatus;
}

/// Names, and the memory they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) names: usize,
    pub(super) bytes: usize,
}

/// The beginning of a request.
#[derive(Debug)]
pub(super) struct Begun {
    /// The answer to a response.
    pub(super) verdict: Option<Verdict>,
    /// The lists of names that are to be taken in.
    pub(super) lists: &'static [NameList],
}

/// The state of the stream that a type needs to handle a request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one stream")]
pub(super) struct Context<'a> {
    /// The view, if there is one. Used only to share its names.
    pub(super) view: Option<&'a View>,
    /// The request is the stream's first for this type.
    pub(super) first: bool,
    /// The stream has carried a response of any type.
    pub(super) answered: bool,
    /// The stream carries this type alone.
    pub(super) alone: bool,
    /// A cluster at the client may wait for the resources in this first request.
    pub(super) warming: bool,
}

/// What the order of types allows a type to do now.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent permissions")]
pub(super) struct SendPolicy {
    /// Send new and changed resources.
    pub(super) send: bool,
    /// Remove resources that the client may still refer to.
    pub(super) remove: bool,
    /// Send an empty response to elicit an ACK even while updates are held back. Never to a client that holds
    /// nothing of the type: it would read it as "no resources".
    pub(super) probe: bool,
    /// The client holds newer content than this replica has: send nothing that would take it back.
    pub(super) hold: bool,
}

/// A response and what follows from it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) response: Response,
    /// The EDS names that Envoy waits for after the clusters in this response.
    pub(super) warming: Vec<Arc<str>>,
}

/// How far the client is with names that it did not hold before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterProgress {
    /// All existing names are ACKed or conclusively rejected.
    Known,
    /// All are sent; the answer is outstanding.
    Unanswered,
    /// Some are not sent, or are being bisected after a rejection.
    Unsent,
}
