//! Making CAs: their keys and certificates.
//!
//! Owns the moments in which a root's key is in memory: while the root is made, and while it signs an issuing CA.

use rcgen::{Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use smc_mesh::ledger::CaCertificate;
use smc_mesh::pki::SerialNumber;
use zeroize::Zeroizing;

use super::{CaSettings, new_key, text};
use crate::ca::error::CaError;
use crate::ca::profile;
use crate::ca::seal::{KeyEncryption, Purpose, SealContext};
use crate::ca::verify::UnreadableCertificate;
use crate::env::Env;

/// A new root.
pub(super) fn root(
    keys: &dyn KeyEncryption,
    env: &Env,
    settings: &CaSettings,
) -> Result<CaCertificate, CaError> {
    let what = "the root CA";
    let serial = SerialNumber::draw(env.random()?);
    let validity = settings.lifetimes.root_validity(env.now());
    let made = || {
        let key = new_key()?;
        let certificate = profile::root(serial, &validity)?.self_signed(&*key)?;
        Ok((key, certificate.pem()))
    };
    let (key, certificate_pem) = made().map_err(signing(what))?;
    let key = seal(keys, settings, Purpose::Root, serial, &key, what)?;
    Ok(CaCertificate { serial, validity, certificate_pem, key })
}

/// A new issuing CA under `root`, whose key it unseals.
pub(super) fn issuing(
    keys: &dyn KeyEncryption,
    env: &Env,
    settings: &CaSettings,
    root: &CaCertificate,
) -> Result<CaCertificate, CaError> {
    let what = "the issuing CA";
    let (root_key, root_certificate) =
        unseal(keys, settings.trust_domain.as_str(), Purpose::Root, root, "the root CA")?;
    let serial = SerialNumber::draw(env.random()?);
    let validity = settings
        .lifetimes
        .issuing_validity(env.now(), &root.validity)
        .map_err(|source| CaError::IssuerEnding { what: what.to_owned(), source })?;
    let made = || {
        let key = new_key()?;
        let issuer = Issuer::from_ca_cert_der(&root_certificate, &*root_key)?;
        let certificate = profile::issuing(serial, &validity)?.signed_by(&*key, &issuer)?;
        Ok((key, certificate.pem()))
    };
    let (key, certificate_pem) = made().map_err(signing(what))?;
    let key = seal(keys, settings, Purpose::Issuing, serial, &key, what)?;
    Ok(CaCertificate { serial, validity, certificate_pem, key })
}

/// The key and the certificate of a CA of the ledger.
pub(super) fn unseal(
    keys: &dyn KeyEncryption,
    trust_domain: &str,
    purpose: Purpose,
    ca: &CaCertificate,
    what: &str,
) -> Result<(Zeroizing<KeyPair>, CertificateDer<'static>), CaError> {
    let context = SealContext { purpose, name: trust_domain, serial: ca.serial };
    let pem = keys
        .open(context, &ca.key)
        .and_then(text)
        .map_err(|source| CaError::Sealing { what: what.to_owned(), source })?;
    let key = KeyPair::from_pem(&pem).map(Zeroizing::new).map_err(signing(what))?;
    let certificate = CertificateDer::from_pem_slice(ca.certificate_pem.as_bytes())
        .map_err(|_| UnreadableCertificate::not_pem())
        .map_err(|source| CaError::Unreadable { what: what.to_owned(), source })?;
    Ok((key, certificate))
}

fn seal(
    keys: &dyn KeyEncryption,
    settings: &CaSettings,
    purpose: Purpose,
    serial: SerialNumber,
    key: &KeyPair,
    what: &str,
) -> Result<smc_mesh::pki::SealedKey, CaError> {
    let pem = Zeroizing::new(key.serialize_pem());
    let context = SealContext { purpose, name: settings.trust_domain.as_str(), serial };
    keys.seal(context, pem.as_bytes()).map_err(|source| CaError::Sealing { what: what.to_owned(), source })
}

fn signing(what: &str) -> impl FnOnce(rcgen::Error) -> CaError {
    let what = what.to_owned();
    move |source| CaError::Signing { what, source }
}
