//! `config.openservicemesh.io/v1alpha2` MeshConfig, the singleton `osm-mesh-config`.

use std::time::Duration;

/// Switches of the whole mesh. The default is what holds while no MeshConfig is there: deny.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MeshConfig {
    /// `traffic.enablePermissiveTrafficPolicyMode`: everybody in the mesh may speak to everybody in it;
    /// SMI access policy is not looked at, mTLS stays.
    pub permissive: bool,
    /// `traffic.enableEgress`: connections to addresses that are no service of the mesh pass through.
    pub egress: bool,
    /// `certificate.serviceCertValidityDuration`; `None` leaves it to the controller's flag.
    pub service_cert_validity: Option<Duration>,
}
