//! Making CAs: their keys and certificates.
//!
//! Owns the only moments at which a root's key is in memory: making the root, and signing an issuing CA.

use rcgen::{Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use smc_authority::ledger::CaCertificate;
use smc_authority::pki::SerialNumber;
use smc_host::env::Env;
use zeroize::Zeroizing;

use super::{CaSettings, new_key, text};
use crate::error::{CaError, CaOperation};
use crate::profile;
use crate::seal::{KeyEncryption, Purpose, SealContext};
use crate::verify::UnreadableCertificate;

pub(super) fn root(
    keys: &dyn KeyEncryption,
    env: &Env,
    settings: &CaSettings,
) -> Result<CaCertificate, CaError> {
    let operation = CaOperation::MakeRoot;
    let serial = SerialNumber::draw(env.random()?);
    let validity = settings.lifetimes.root_validity(env.now());
    let made = || {
        let key = new_key(env)?;
        let certificate = profile::root(serial, &validity)?.self_signed(&*key)?;
        Ok((key, certificate.pem()))
    };
    let (key, certificate_pem) = made().map_err(signing(&operation))?;
    let key = seal(keys, settings, Purpose::Root, serial, &key, &operation)?;
    Ok(CaCertificate { serial, validity, certificate_pem, key })
}

/// Makes an issuing CA under `root`, whose key it unseals.
pub(super) fn issuing(
    keys: &dyn KeyEncryption,
    env: &Env,
    settings: &CaSettings,
    root: &CaCertificate,
) -> Result<CaCertificate, CaError> {
    let operation = CaOperation::MakeIssuing;
    let (root_key, root_certificate) = unseal(keys, settings.trust_domain.as_str(), Purpose::Root, root)?;
    let serial = SerialNumber::draw(env.random()?);
    let validity = settings
        .lifetimes
        .issuing_validity(env.now(), &root.validity)
        .map_err(|source| CaError::IssuerEnding { operation: operation.clone(), source })?;
    let made = || {
        let key = new_key(env)?;
        let issuer = Issuer::from_ca_cert_der(&root_certificate, &*root_key)?;
        let certificate = profile::issuing(serial, &validity)?.signed_by(&*key, &issuer)?;
        Ok((key, certificate.pem()))
    };
    let (key, certificate_pem) = made().map_err(signing(&operation))?;
    let key = seal(keys, settings, Purpose::Issuing, serial, &key, &operation)?;
    Ok(CaCertificate { serial, validity, certificate_pem, key })
}

/// The key and the certificate of a CA in the ledger.
pub(super) fn unseal(
    keys: &dyn KeyEncryption,
    trust_domain: &str,
    purpose: Purpose,
    ca: &CaCertificate,
) -> Result<(Zeroizing<KeyPair>, CertificateDer<'static>), CaError> {
    let operation = CaOperation::UnsealCa(ca.serial);
    let context = SealContext { purpose, name: trust_domain, serial: ca.serial };
    let pem = keys
        .open(context, &ca.key)
        .and_then(text)
        .map_err(|source| CaError::Sealing { operation: operation.clone(), source })?;
    let key = KeyPair::from_pem(&pem).map(Zeroizing::new).map_err(signing(&operation))?;
    let certificate = CertificateDer::from_pem_slice(ca.certificate_pem.as_bytes())
        .map_err(|_| UnreadableCertificate::not_pem())
        .map_err(|source| CaError::Unreadable { operation, source })?;
    Ok((key, certificate))
}

fn seal(
    keys: &dyn KeyEncryption,
    settings: &CaSettings,
    purpose: Purpose,
    serial: SerialNumber,
    key: &KeyPair,
    operation: &CaOperation,
) -> Result<smc_authority::pki::SealedKey, CaError> {
    let pem = Zeroizing::new(key.serialize_pem());
    let context = SealContext { purpose, name: settings.trust_domain.as_str(), serial };
    keys.seal(context, pem.as_bytes())
        .map_err(|source| CaError::Sealing { operation: operation.clone(), source })
}

fn signing(operation: &CaOperation) -> impl FnOnce(rcgen::Error) -> CaError {
    let operation = operation.clone();
    move |source| CaError::Signing { operation, source }
}
