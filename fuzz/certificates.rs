//! A certificate of a peer, and the Common Name and URIs in one.
//!
//! An input is the certificate in DER; or, after a byte `n`, a Common Name and lines of URIs.

use smc_authority::ledger::Ledger;
use smc_authority::pki::{Fingerprint, SerialNumber, Validity};
use smc_authority::rules::{PeerCertificate, Refusal, admit};
use smc_issuing::verify::peer_certificate;
use smc_types::ids::ProxyName;
use smc_types::time::Timestamp;

/// Reads one, and asks for admission with it.
pub(crate) fn run(input: &[u8]) {
    match peer_certificate(input) {
        Ok(peer) => {
            assert_eq!(peer_certificate(input).as_ref(), Ok(&peer), "two readings differ");
            assert_eq!(peer.fingerprint, Fingerprint::of(input));
            let again = SerialNumber::from_der(&peer.serial).map(|serial| *serial.as_bytes());
            assert!(
                again.is_none_or(|bytes| bytes.ends_with(significant(&peer.serial))),
                "another serial number"
            );
            refused(&peer);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Some(text) = input.strip_prefix(b"n").and_then(|text| str::from_utf8(text).ok()) {
        let mut lines = text.lines().map(str::to_owned);
        let peer = PeerCertificate {
            serial: vec![1; 16],
            common_names: lines.next().into_iter().collect(),
            uris: lines.collect(),
            dns_names: Vec::new(),
            validity: Validity { not_before: Timestamp(0), not_after: Timestamp(100) },
            ca: false,
            client_auth: true,
            fingerprint: Fingerprint::of(input),
        };
        refused(&peer);
    }
}

/// A serial number without the zeros before it.
fn significant(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    &serial[zeros..]
}

/// A ledger that has issued nothing admits no peer. The reason is short, whatever the certificate says.
fn refused(peer: &PeerCertificate) {
    let admitted = admit(peer, &Ledger::default(), |_| panic!("a workload is looked for"), Timestamp(50));
    let reason = admitted.expect_err("a stranger is admitted");
    assert!(reason.to_string().len() < 4096, "{} bytes of a reason", reason.to_string().len());
    if let Refusal::NotIssued { proxy, .. } = &reason {
        assert_eq!(peer.common_names, [proxy.to_string()], "another name than the certificate's");
        assert_eq!(proxy.to_string().parse::<ProxyName>().as_ref(), Ok(proxy));
    }
}
