//! The TLS that sidecars speak with each other and with gateways.
//!
//! Owns the choice of a mesh, such that no two sidecars are ever without something in common, whichever of
//! two choices each of them has got.
//!
//! The end that is called decides: it has the versions and the suites of the choice, and the end that calls
//! offers all that any choice can have. Of curves each end has those of the choice, and every choice has
//! [`COMMON_CURVE`].

/// The curve that TLS 1.3 makes mandatory (RFC 8446, section 9.1), and that every list has.
pub const COMMON_CURVE: &str = "P-256";

/// A version of TLS. Earlier ones must not be spoken (RFC 8996).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// What a mesh chooses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TlsParameters {
    /// The least version that a sidecar accepts when it is called.
    pub minimum: TlsVersion,
    /// The highest, which is not below the least.
    pub maximum: TlsVersion,
    /// The suites of TLS 1.2 that it accepts, as Envoy names them, alone or as several of equal rank
    /// (`[A|B]`), the preferred first. Envoy's own if none. Those of TLS 1.3 cannot be chosen.
    pub cipher_suites: Vec<String>,
    /// The curves of both ends, as Envoy names them, the preferred first. Envoy's own if none, and otherwise
    /// [`COMMON_CURVE`] is among them.
    pub curves: Vec<&'static str>,
}

impl Default for TlsParameters {
    fn default() -> Self {
        let (minimum, maximum) = (TlsVersion::Tls12, TlsVersion::Tls13);
        Self { minimum, maximum, cipher_suites: Vec::new(), curves: Vec::new() }
    }
}
