//! The TLS of both ends of a connection.
//!
//! Owns that any two sidecars have versions, suites and a curve in common, whichever MeshConfig each of them
//! has got: the end that calls offers all versions and Envoy's own suites, and lists of curves have the one
//! that all have.

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use smc_model::tls_parameters::COMMON_CURVE;
use tls::tls_parameters::TlsProtocol;

use super::reader::Reader;

impl Reader {
    /// The TLS that the end that calls offers.
    pub(super) fn offered(&mut self, context: &tls::CommonTlsContext) {
        let parameters = context.tls_params.clone().unwrap_or_default();
        if versions(&parameters) != Some((TlsProtocol::TlSv12, TlsProtocol::TlSv13)) {
            self.fault("does not offer the versions of TLS that another sidecar may accept");
        }
        if !parameters.cipher_suites.is_empty() {
            self.fault("offers other suites than another sidecar may accept");
        }
        self.curves(&parameters);
    }

    /// The TLS that the end that is called accepts.
    pub(super) fn accepted(&mut self, context: &tls::CommonTlsContext) {
        let parameters = context.tls_params.clone().unwrap_or_default();
        if versions(&parameters).is_none() {
            self.fault("accepts versions of TLS that no sidecar speaks, or none");
        }
        let suites = &parameters.cipher_suites;
        if !suites.is_empty() && !suites.iter().any(|suite| suite.contains("ECDHE-ECDSA-AES")) {
            self.fault("accepts no suite that every sidecar offers");
        }
        self.curves(&parameters);
    }

    fn curves(&mut self, parameters: &tls::TlsParameters) {
        let curves = &parameters.ecdh_curves;
        if !curves.is_empty() && !curves.iter().any(|curve| curve == COMMON_CURVE) {
            self.fault(format!("has a list of curves without {COMMON_CURVE}"));
        }
    }
}

/// The least and the highest version, if sidecars speak both and the one is not above the other.
fn versions(parameters: &tls::TlsParameters) -> Option<(TlsProtocol, TlsProtocol)> {
    let spoken = [TlsProtocol::TlSv12, TlsProtocol::TlSv13];
    let (least, highest) =
        (parameters.tls_minimum_protocol_version(), parameters.tls_maximum_protocol_version());
    let known = spoken.contains(&least) && spoken.contains(&highest);
    (known && least as i32 <= highest as i32).then_some((least, highest))
}
