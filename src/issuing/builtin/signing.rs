//! An issuing CA with its key unsealed, and the signatures it makes.

use std::fmt;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use smc_authority::ledger::CaCertificate;
use smc_authority::pki::{IssuerEnding, SerialNumber, Validity};
use smc_authority::rules::PeerCertificate;
use smc_host::env::Env;
use smc_types::time::Timestamp;
use zeroize::Zeroizing;

use super::{new_ca, new_key};
use crate::error::{CaError, CaOperation};
use crate::seal::{KeyEncryption, Purpose};
use crate::verify::peer_certificate;

/// An issuing CA that signs. Its key is zeroed on drop; ring's own copy is not, since ring offers no way.
pub(super) struct IssuingCa {
    serial: SerialNumber,
    validity: Validity,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key: Zeroizing<KeyPair>,
}

/// A signed leaf certificate that is not on record yet.
pub(super) struct Leaf {
    pub(super) serial: SerialNumber,
    pub(super) validity: Validity,
    pub(super) issued_at: Timestamp,
    /// Leaf, then issuer.
    pub(super) chain_pem: String,
    pub(super) key_pem: Zeroizing<String>,
    /// The certificate as a peer reads it, to be compared with the request before it is recorded.
    pub(super) reads_as: PeerCertificate,
}

impl fmt::Debug for IssuingCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuingCa").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl IssuingCa {
    /// Unseals the key of an issuing CA in the ledger.
    pub(super) fn unseal(
        keys: &dyn KeyEncryption,
        trust_domain: &str,
        ca: &CaCertificate,
    ) -> Result<Self, CaError> {
        let (key, certificate) = new_ca::unseal(keys, trust_domain, Purpose::Issuing, ca)?;
        let CaCertificate { serial, validity, certificate_pem, .. } = ca.clone();
        Ok(Self { serial, validity, certificate, certificate_pem, key })
    }

    pub(super) fn serial(&self) -> SerialNumber {
        self.serial
    }

    /// Makes a key pair and a certificate for it. `lifetime` returns the validity, given the time and the
    /// issuer's validity; `profile` returns the content.
    pub(super) fn sign(
        &self,
        operation: &CaOperation,
        env: &Env,
        lifetime: impl FnOnce(Timestamp, &Validity) -> Result<Validity, IssuerEnding>,
        profile: impl FnOnce(SerialNumber, &Validity) -> Result<CertificateParams, rcgen::Error>,
    ) -> Result<Leaf, CaError> {
        let issued_at = env.now();
        let serial = SerialNumber::draw(env.random()?);
        let validity = lifetime(issued_at, &self.validity)
            .map_err(|source| CaError::IssuerEnding { operation: operation.clone(), source })?;
        let signed = || {
            let key = new_key(env)?;
            let issuer = Issuer::from_ca_cert_der(&self.certificate, &*self.key)?;
            let certificate = profile(serial, &validity)?.signed_by(&*key, &issuer)?;
            Ok((certificate, Zeroizing::new(key.serialize_pem())))
        };
        let (certificate, key_pem) =
            signed().map_err(|source| CaError::Signing { operation: operation.clone(), source })?;
        let reads_as = peer_certificate(certificate.der())
            .map_err(|source| CaError::Unreadable { operation: operation.clone(), source })?;
        if reads_as.serial != serial.as_bytes() || reads_as.validity != validity || reads_as.ca {
            return Err(CaError::Missigned(operation.clone()));
        }
        let chain_pem = format!("{}{}", certificate.pem(), self.certificate_pem);
        Ok(Leaf { serial, validity, issued_at, chain_pem, key_pem, reads_as })
    }
}
