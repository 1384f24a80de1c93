//! Names that the control plane itself goes by.

use crate::ids::{InvalidName, check_label};

/// The first label of the name that a controller's certificate carries whatever its address, so that a
/// proxy can check whom it reached through any address (a DNS SAN).
pub const CONTROLLER_IDENTITY: &str = "smc-controller";

/// `smc-controller.<namespace>`: the DNS name that a bootstrap demands of the server it connects to. No
/// service certificate and no proxy certificate ever carries a DNS name.
pub fn controller_identity(namespace: &str) -> Result<String, InvalidName> {
    check_label("namespace", namespace)?;
    Ok(format!("{CONTROLLER_IDENTITY}.{namespace}"))
}
