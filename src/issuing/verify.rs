//! Reading a peer's certificate.
//!
//! Owns the step from DER to [`PeerCertificate`], which takes any bytes without panicking. Does not verify
//! the certificate: rustls verifies the chain before, and [`smc_authority::rules::admit`] decides on
//! admission after.

use smc_authority::pki::{Fingerprint, Validity};
use smc_authority::rules::PeerCertificate;
use smc_types::time::Timestamp;
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The longest certificate that is parsed, in bytes; those of this mesh have about 600.
const MAX_LEN: usize = 64 * 1024;

/// Bytes that are not a certificate, or a certificate that SMC would not have made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a certificate that can be read: {0}")]
pub struct UnreadableCertificate(&'static str);

impl UnreadableCertificate {
    pub(super) fn not_pem() -> Self {
        Self("it is not PEM")
    }
}

/// Reads one DER certificate.
pub fn peer_certificate(der: &[u8]) -> Result<PeerCertificate, UnreadableCertificate> {
    if der.len() > MAX_LEN {
        return Err(UnreadableCertificate("it is too long"));
    }
    let (rest, certificate) =
        X509Certificate::from_der(der).map_err(|_| UnreadableCertificate("it is not X.509 in DER"))?;
    if !rest.is_empty() {
        return Err(UnreadableCertificate("something follows it"));
    }
    let common_names = certificate
        .subject()
        .iter_common_name()
        .map(|name| name.as_str().map(str::to_owned))
        .collect::<Result<_, _>>()
        .map_err(|_| UnreadableCertificate("its common name is not text"))?;
    let (mut uris, mut dns_names) = (Vec::new(), Vec::new());
    let names = certificate
        .subject_alternative_name()
        .map_err(|_| UnreadableCertificate("its alternative names are malformed"))?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::URI(uri) => uris.push((*uri).to_owned()),
            GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
            GeneralName::Invalid(..) => {
                return Err(UnreadableCertificate("one of its alternative names is malformed"));
            }
            _ => {}
        }
    }
    let ca = certificate
        .basic_constraints()
        .map_err(|_| UnreadableCertificate("its basic constraints are malformed"))?
        .is_some_and(|constraints| constraints.value.ca);
    let client_auth = certificate
        .extended_key_usage()
        .map_err(|_| UnreadableCertificate("its extended key usage is malformed"))?
        .is_some_and(|usage| usage.value.client_auth);
    Ok(PeerCertificate {
        serial: certificate.raw_serial().to_vec(),
        common_names,
        uris,
        dns_names,
        validity: Validity {
            not_before: Timestamp(certificate.validity().not_before.timestamp()),
            not_after: Timestamp(certificate.validity().not_after.timestamp()),
        },
        ca,
        client_auth,
        fingerprint: Fingerprint::of(der),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
    fn some_certificate() -> Vec<u8> {
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn garbage_is_refused() {
        let certificate = some_certificate();
        let mut followed = certificate.clone();
        followed.push(0);
        for garbage in [
            &b""[..],
            b"\0",
            b"-----BEGIN CERTIFICATE-----",
            &[0x30; 10_000],
            &vec![0x30; 100_000],
            &followed,
        ] {
            assert!(peer_certificate(garbage).is_err());
        }
        for cut in 0..certificate.len() {
            assert!(peer_certificate(&certificate[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = peer_certificate(&bytes);
        }

        #[test]
        fn no_damage_to_a_certificate_makes_it_panic(
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = some_certificate();
            for (index, byte) in flips {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = peer_certificate(&bytes);
        }
    }
}
