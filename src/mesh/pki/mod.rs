//! The rules of the mesh's public-key infrastructure: who is called what, what lives how long, when it is
//! renewed, and which proxy is let in.
//!
//! Owns those decisions as functions of values. Refuses to make keys, to sign, to parse DER and to know the
//! time: the shell does the cryptography and hands in serials' randomness and the time. The names follow
//! RFC 5280 and the SPIFFE X.509-SVID standard; the two kinds of certificates are DESIGN §4.
//!
//! | kind | names | lives | for |
//! |---|---|---|---|
//! | service certificate | one URI: the SPIFFE ID | about 48 h | traffic between workloads |
//! | proxy certificate | Common Name `<proxy-uuid>[.<service>].<namespace>` | a year | proxy to control plane |
//! | controller certificate | DNS names and addresses | about 48 h | control plane to proxy |

mod admission;
mod ca_rotation;
mod departure;
mod fingerprint;
mod hex;
mod lifetime;
mod material;
mod names;
mod rotation;
mod serial;
mod steadiness;

pub use admission::{
    Admission, Identified, KnownWorkload, PeerCertificate, Refusal, admit, identify, service_identity,
};
pub use ca_rotation::{CaPlan, CaStep, Circumstances, plan_ca_rotation};
pub use departure::{Bearer, Departures, bearers_without_pod};
pub use fingerprint::Fingerprint;
pub(crate) use hex::decode as decode_hex;
pub use hex::encode as encode_hex;
pub use lifetime::{
    BACKDATE, InvalidLifetime, IssuerEnding, LONGEST_SERVICE_LIFETIME, Lifetimes, SHORTEST_LIFETIME,
    Validity, reissue_time, renewal_is_due, renewal_time, retry_delay,
};
pub use material::{SealedKey, ServiceCertificate, TrustBundle};
pub use names::CONTROLLER_IDENTITY;
pub use rotation::{RotationPlan, WantedCertificates, earliest_service_end, plan_rotation};
pub use serial::{InvalidSerial, SerialNumber};
pub use steadiness::Steadiness;
