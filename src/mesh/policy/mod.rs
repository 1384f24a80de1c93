//! What the declared mesh means: who may speak to whom, by which routes, and how traffic is split.
//!
//! Owns the semantics of the Service Mesh Interface (v0.6.0) and of permissive mode, as plain functions
//! over the [`Catalog`](crate::catalog::Catalog). Refuses Envoy, which is [`crate::translate`], and state:
//! each answer is worked out from the objects when asked.
//!
//! Three readings hold everywhere. Policy is additive: what any rule allows is allowed, and nothing else
//! is. Enforcement is at the destination; what a source is told is for reaching it, not for guarding it.
//! Whatever cannot be read or found narrows what is allowed, never widens it.

mod grants;
mod reach;
mod splits;

pub use grants::{Grant, HttpAccess, InboundAccess, grant, grants, inbound_access};
pub use reach::{allowed_inbound_accounts, allowed_outbound_accounts, outbound_services};
pub use splits::{SplitArm, SplitPlan, split_plan};
