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

/// How the name begins of the admission policy that bounds what the controllers write. The name of the mesh
/// follows.
pub(crate) const CONTROLLER_POLICY: &str = "smc-controller-";

/// The Secret with the roots of the mesh, in the control plane's namespace.
pub(crate) const ROOTS_SECRET: &str = "smc-ca-bundle";

/// The label of the Secret with a gateway's certificate. Its value is the name of the mesh.
pub(crate) const GATEWAY_LABEL: &str = "mesh.smc.dev/gateway-of";

/// The field manager of what SMC writes.
pub(crate) const FIELD_MANAGER: &str = "smc-controller";
