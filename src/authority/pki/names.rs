//! Names of the control plane.
//!
//! Owns the controller's identity.

/// The DNS name in every controller certificate, which every bootstrap requires of its server. No
/// service certificate and no proxy certificate has a DNS name.
pub const CONTROLLER_IDENTITY: &str = "smc-controller";
