//! An issuing CA with its key unsealed, and the signatures it makes.

use std::fmt;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use smc_mesh::ledger::CaCertificate;
use smc_mesh::pki::{IssuerEnding, PeerCertificate, SerialNumber, Validity};
use smc_mesh::time::Timestamp;
use zeroize::Zeroizing;

use super::{making, new_key};
use crate::ca::error::CaError;
use crate::ca::seal::{KeyEncryption, Purpose};
use crate::ca::verify::peer_certificate;
use crate::env::Env;

/// What signs. Its key is zeroed when it is dropped (the copy that ring computes with is not: ring offers no
/// way).
pub(super) struct IssuingCa {
    serial: SerialNumber,
    validity: Validity,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key: Zeroizing<KeyPair>,
}

/// A signed leaf that is not on record yet.
pub(super) struct Leaf {
    pub(super) serial: SerialNumber,
    pub(super) validity: Validity,
    pub(super) issued_at: Timestamp,
    /// Leaf, then issuer.
    pub(super) chain_pem: String,
    pub(super) key_pem: Zeroizing<String>,
    /// What a peer reads in it: checked against what was wanted before it is recorded.
    pub(super) reads_as: PeerCertificate,
}

impl fmt::Debug for IssuingCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuingCa").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl IssuingCa {
    /// Takes an issuing CA of the ledger, and its key with the KEK.
    pub(super) fn unseal(
        keys: &dyn KeyEncryption,
        trust_domain: &str,
        ca: &CaCertificate,
    ) -> Result<Self, CaError> {
        let (key, certificate) = making::unseal(keys, trust_domain, Purpose::Issuing, ca, "the issuing CA")?;
        let CaCertificate { serial, validity, certificate_pem, .. } = ca.clone();
        Ok(Self { serial, validity, certificate, certificate_pem, key })
    }

    pub(super) fn serial(&self) -> SerialNumber {
        self.serial
    }

    /// Makes a key pair and a certificate for it. `live` decides when it is valid, given the time and the
    /// issuer's validity; `profile` decides what stands in it.
    pub(super) fn sign(
        &self,
        what: &str,
        env: &Env,
        live: impl FnOnce(Timestamp, &Validity) -> Result<Validity, IssuerEnding>,
        profile: impl FnOnce(SerialNumber, &Validity) -> Result<CertificateParams, rcgen::Error>,
    ) -> Result<Leaf, CaError> {
        let issued_at = env.now();
        let serial = SerialNumber::draw(env.random()?);
        let validity = live(issued_at, &self.validity)
            .map_err(|source| CaError::IssuerEnding { what: what.to_owned(), source })?;
        let signed = || {
            let key = new_key()?;
            let issuer = Issuer::from_ca_cert_der(&self.certificate, &*self.key)?;
            let certificate = profile(serial, &validity)?.signed_by(&*key, &issuer)?;
            Ok((certificate, Zeroizing::new(key.serialize_pem())))
        };
        let (certificate, key_pem) =
            signed().map_err(|source| CaError::Signing { what: what.to_owned(), source })?;
        let reads_as = peer_certificate(certificate.der())
            .map_err(|source| CaError::Unreadable { what: what.to_owned(), source })?;
        if reads_as.serial != serial.as_bytes() || reads_as.validity != validity || reads_as.ca {
            return Err(CaError::Missigned(what.to_owned()));
        }
        let chain_pem = format!("{}{}", certificate.pem(), self.certificate_pem);
        Ok(Leaf { serial, validity, issued_at, chain_pem, key_pem, reads_as })
    }
}
