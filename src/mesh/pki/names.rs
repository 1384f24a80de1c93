//! Names that the control plane itself goes by.

/// The DNS name that a controller's certificate carries whatever its address, and that every bootstrap demands of the
/// server it connects to. No service certificate and no proxy certificate carries a DNS name.
pub const CONTROLLER_IDENTITY: &str = "smc-controller";
