//! Values of the mesh's public-key infrastructure: serial numbers, fingerprints, lifetimes, sealed
//! keys, trust bundles.
//!
//! Owns their bounds and their text forms. The names follow RFC 5280 and the SPIFFE X.509-SVID
//! standard, the kinds of certificates docs/design/identity.md. Does not make keys, sign or parse DER.
//!
//! | kind | names | lives | for |
//! |---|---|---|---|
//! | service certificate | one URI (the SPIFFE ID), one DNS name | about 48 h | traffic between workloads |
//! | proxy certificate | Common Name `<uuid>[.<service>].<namespace>` | a year | proxy to control plane |
//! | controller certificate | DNS names and addresses | about 48 h | control plane to proxy |

mod fingerprint;
mod lifetime;
mod material;
mod names;

pub use fingerprint::Fingerprint;
pub use lifetime::{
    BACKDATE, InvalidLifetime, IssuerEnding, LONGEST_SERVICE_LIFETIME, Lifetimes, SHORTEST_LIFETIME,
    Validity, reissue_time, renewal_is_due, renewal_time,
};
pub use material::{SealedKey, ServiceCertificate, TrustBundle};
pub use names::CONTROLLER_IDENTITY;
pub use smc_types::serial_number::{InvalidSerial, SerialNumber};
