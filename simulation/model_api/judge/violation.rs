//! What must hold, and what did not.

use std::fmt;

/// What must hold of what a source publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A batch names an object once, of this world, and removes only what is there.
    WellFormed,
    /// What is published of a kind is what the server had of it at one version, which is not older than that
    /// of what was published before, and not older than this run of the source.
    OneVersion,
    /// The published namespaces are those of the mesh at one version; one that was published and has stayed
    /// is never missing.
    Namespaces,
    /// Nothing is published before everything was listed, unless it was known before.
    Whole,
    /// The last known mesh is published only while the server does not answer.
    LastKnown,
    /// What the server has is published in time once it is healthy and quiet.
    Converges,
    /// What the server has after a return to an older state is published in time.
    ConvergesAfterReturn,
    /// The source says that it is stale while it cannot know better.
    SaysStale,
    /// A source that is not stale does not say so, and has no problem with the server.
    SaysFresh,
    /// Every refused object is a problem, and no other one is.
    Problems,
    /// Every custom object of the mesh is known in the generation that the server has, and no other one is.
    Custom,
    /// No more requests than the server gives reasons for.
    Requests,
    /// The source goes on.
    Lives,
}

/// What did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What must hold.
    pub rule: Rule,
    /// What was seen instead.
    pub seen: String,
}

impl Violation {
    pub(crate) fn new(rule: Rule, seen: impl Into<String>) -> Self {
        Self { rule, seen: seen.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}
