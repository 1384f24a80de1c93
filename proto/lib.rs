//! SMC's own gRPC interfaces, generated from the `.proto` files beside this one.
//!
//! Owns the wire forms that SMC defines itself; Envoy's come from the crate `envoy-types`. Messages of the
//! administration also serialize as JSON, for `-o json`: fields by their names, enums by the lower-case
//! name of the value.

use std::fmt;

use serde::Serializer;

/// The administration of one controller replica.
pub mod admin {
    /// Version 1.
    #[allow(missing_docs, clippy::pedantic, reason = "generated code")]
    pub mod v1 {
        tonic::include_proto!("smc.admin.v1");
    }
}

/// The protocol between the replicas of one group, and the records on their disks.
pub mod raft {
    /// Version 1.
    #[allow(missing_docs, clippy::pedantic, clippy::large_enum_variant, reason = "generated code")]
    pub mod v1 {
        tonic::include_proto!("smc.raft.v1");
    }
}

/// What the controllers of one group ask each other.
pub mod peer {
    /// Version 1.
    #[allow(missing_docs, clippy::pedantic, reason = "generated code")]
    pub mod v1 {
        tonic::include_proto!("smc.peer.v1");
    }
}

impl fmt::Debug for admin::v1::BootstrapResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapResponse").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl fmt::Debug for admin::v1::GetGatewayCertificateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetGatewayCertificateResponse").field("serial", &self.serial).finish_non_exhaustive()
    }
}

/// A generated enum, whose values have names.
trait Named: TryFrom<i32> + Default {
    /// The prefix of all names.
    const PREFIX: &'static str;

    /// The value's name as the `.proto` file writes it.
    fn name(&self) -> &'static str;
}

macro_rules! named {
    ($type:ident, $prefix:literal) => {
        impl Named for admin::v1::$type {
            const PREFIX: &'static str = $prefix;

            fn name(&self) -> &'static str {
                self.as_str_name()
            }
        }
    };
}

named!(Variant, "VARIANT_");
named!(CertificateState, "CERTIFICATE_STATE_");
named!(AuthorityState, "AUTHORITY_STATE_");
named!(Severity, "SEVERITY_");
named!(ReplicaPhase, "REPLICA_PHASE_");
named!(EgressProtocol, "EGRESS_PROTOCOL_");

/// Serializes an enum value as its name; a value of a newer version becomes `unspecified`.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn enum_name<E: Named, S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let value = E::try_from(*number).unwrap_or_default();
    let name = value.name();
    serializer.serialize_str(&name.strip_prefix(E::PREFIX).unwrap_or(name).to_ascii_lowercase())
}
