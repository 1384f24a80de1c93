//! The names that SMC has in a cluster.
//!
//! Owns those that several parts write and read.

/// The Service of the webhooks, in the control plane's namespace.
pub(crate) const WEBHOOK_SERVICE: &str = "smc-webhook";

/// The Service of the conversion. It leads to replicas that are not ready as well: a replica that lists
/// objects which an older definition stored needs them converted before it can be ready.
pub(crate) const CONVERSION_SERVICE: &str = "smc-conversion";

/// How the name of a mesh's MutatingWebhookConfiguration begins. The name of the mesh follows.
pub const INJECTOR: &str = "smc-injector-";

/// The field manager of what SMC writes.
pub(crate) const FIELD_MANAGER: &str = "smc-controller";
