//! What happens in a story: a server, what it holds at first, and steps.
//!
//! Owns what a seed draws. A step says all that it does, so that others can be left out.

mod draw;

use std::time::Duration;

use smc_types::object_ref::Kind;

use super::faults::{Command, Refusal};
use super::server::Setup;

/// A story.
#[derive(Debug, Clone)]
pub struct Story {
    /// What it was drawn from; delays within it are drawn from it as well.
    pub seed: u64,
    /// How the server is.
    pub setup: Setup,
    /// Namespaces, beside the control plane's.
    pub namespaces: u16,
    /// The objects of each at first.
    pub objects: u16,
    /// The milliseconds after which the next batch is taken.
    pub consumer_pause: u64,
    /// How many steps are made before the source begins.
    pub prelude: usize,
    /// What happens.
    pub steps: Vec<Step>,
}

/// A step of a story.
#[derive(Debug, Clone)]
pub struct Step {
    /// How long after the one before.
    pub wait: Duration,
    /// What happens.
    pub action: Action,
}

/// What happens in a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// Objects change.
    Changes {
        /// How many times.
        count: u8,
        /// Which ones.
        seed: u64,
    },
    /// An object becomes one that is refused.
    Hostile {
        /// Which one.
        seed: u64,
    },
    /// A namespace is of the mesh.
    Enter(u16),
    /// A namespace is not of the mesh.
    Leave(u16),
    /// A namespace is deleted, with its objects.
    Delete(u16),
    /// A kind's watch cache is further behind.
    Lag {
        /// The kind.
        kind: Kind,
        /// By how much.
        by: Duration,
        /// For how long.
        span: Duration,
    },
    /// Requests are refused for a while.
    Refuse(Option<Kind>, Refusal, Duration),
    /// The next requests are refused.
    RefuseNext(Option<Kind>, Refusal, u8),
    /// Something happens to the watches of a kind.
    Watches(Kind, Command),
    /// Connections are refused.
    Away(Duration),
    /// Nothing is said on any connection.
    Frozen(Duration),
    /// No request is answered.
    Hang(Duration),
    /// All connections are lost without a word.
    Lose,
    /// The right to read a kind is taken for a while.
    Forbid(Kind, Duration),
    /// A kind's definition is gone for a while, with all objects.
    Undefine(Kind, Duration),
    /// The changes so far are forgotten.
    Compact,
    /// The server goes back to an older state.
    GoBack {
        /// How many changes are lost.
        changes: u8,
        /// What is between.
        how: Back,
    },
    /// The source ends and begins again.
    Restart {
        /// Whether it is killed; it is asked to end otherwise.
        kill: bool,
        /// Whether its directory is there afterwards.
        keeps_directory: bool,
        /// For how long it is not there.
        pause: Duration,
    },
    /// Nothing happens until the source says what the server has.
    Quiet,
}

/// How the server goes back to an older state.
#[derive(Debug, Clone, Copy)]
pub enum Back {
    /// It is away for a while. Before it returns, so many changes are made.
    Away(Duration, u8),
    /// Watches stay open, and say what changes from now on.
    Telling,
    /// Watches stay open, and say nothing until the versions overtake theirs.
    Silent,
}
