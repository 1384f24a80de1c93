//! Names of the control plane.
//!
//! Owns the controller's identity.

/// The DNS name in every controller certificate, which every bootstrap requires of its server. It has no dot,
/// so no service certificate has it: the names of those have two at least. No proxy certificate has a DNS
/// name.
pub const CONTROLLER_IDENTITY: &str = "smc-controller";
