//! The content of each kind of certificate (RFC 5280; X.509-SVID for service certificates).
//!
//! Owns the extensions and key usages. [`smc_authority::pki`] decides names and times.

use std::collections::BTreeSet;
use std::time::Duration;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType, SerialNumber as DerSerial,
};
use smc_authority::pki::{SerialNumber, Validity};
use smc_types::ids::{ProxyName, ServiceAccountId, TrustDomain};
use smc_types::text::truncated;
use smc_types::time::Timestamp;

use super::issuer::ControllerNames;

type Profile = Result<CertificateParams, rcgen::Error>;

/// A root, which signs issuing CAs only.
pub(super) fn root(serial: SerialNumber, validity: &Validity) -> Profile {
    authority("SMC root CA", 1, serial, validity)
}

/// An issuing CA, which signs leaves only.
pub(super) fn issuing(serial: SerialNumber, validity: &Validity) -> Profile {
    authority("SMC issuing CA", 0, serial, validity)
}

/// The name contains the serial number, since chains are built by name and two CAs must differ.
fn authority(role: &str, path_length: u8, serial: SerialNumber, validity: &Validity) -> Profile {
    let mut params = basics(serial, validity)?;
    let digits = truncated(&serial.to_string(), 16);
    params.distinguished_name.push(DnType::OrganizationName, "SMC");
    params.distinguished_name.push(DnType::CommonName, format!("{role} {digits}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(path_length));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// An X.509-SVID: exactly one URI, no subject (so that the names are critical), for clients and servers. It
/// has a DNS name beside the URI for an ingress, which verifies nothing else; within the mesh the URI alone
/// counts.
pub(super) fn service(
    domain: &TrustDomain,
    account: &ServiceAccountId,
    serial: SerialNumber,
    validity: &Validity,
) -> Profile {
    let mut params = leaf(serial, validity)?;
    params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(domain.spiffe_id(account))?)];
    if let Some(name) = domain.dns_name(account) {
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(name)?));
    }
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A proxy certificate: a Common Name and no alternative names, for clients only, so that no peer accepts
/// it as an SVID or as a controller's.
///
/// With a namespace of more than 27 characters the Common Name exceeds the 64 characters of RFC 5280
/// (ub-common-name). Envoy and rustls accept it, and the original design prescribes the form.
pub(super) fn proxy(proxy: &ProxyName, serial: SerialNumber, validity: &Validity) -> Profile {
    let mut params = leaf(serial, validity)?;
    params.distinguished_name.push(DnType::CommonName, proxy.to_string());
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A gateway's certificate: DNS names alone, for clients only. It has no URI, so that no peer accepts it as
/// an SVID, and no Common Name, so that it is no proxy's.
pub(super) fn gateway(names: &BTreeSet<String>, serial: SerialNumber, validity: &Validity) -> Profile {
    let mut params = leaf(serial, validity)?;
    for name in names {
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(name.as_str())?));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A controller's certificate: DNS names and IP addresses, for servers only.
pub(super) fn controller(names: &ControllerNames, serial: SerialNumber, validity: &Validity) -> Profile {
    let mut params = leaf(serial, validity)?;
    for name in &names.dns {
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(name.as_str())?));
    }
    params.subject_alt_names.extend(names.ips.iter().copied().map(SanType::IpAddress));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn leaf(serial: SerialNumber, validity: &Validity) -> Profile {
    let mut params = basics(serial, validity)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn basics(serial: SerialNumber, validity: &Validity) -> Profile {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serial_number = Some(DerSerial::from(serial.as_bytes().to_vec()));
    params.use_authority_key_identifier_extension = true;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(validity.not_before)?;
    params.not_after = epoch + since_epoch(validity.not_after)?;
    Ok(params)
}

/// Certificates cover years up to 9999 (RFC 5280 §4.1.2.5). Times before 1970 are not needed.
fn since_epoch(time: Timestamp) -> Result<Duration, rcgen::Error> {
    const LAST: u64 = 253_402_300_799;
    u64::try_from(time.0).ok().filter(|&t| t <= LAST).map(Duration::from_secs).ok_or(rcgen::Error::Time)
}
