//! Private keys leave memory only sealed, and appear in no text.

use data_encoding::HEXLOWER;
use std::fs;
use std::path::PathBuf;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use smc_proto::admin::v1::{BootstrapResponse, GetGatewayCertificateResponse};
use smc_raft::GroupSecret;
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;
use crate::Rotate;
use crate::seal::{KeyEncryption, Purpose, SealContext};

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { todo.push(path) } else { found.push(path) }
        }
    }
    found
}

/// The traces of a key: its PEM text, each line of it, its DER, the bare scalar, and both of these in
/// hexadecimal digits.
fn traces(key_pem: &str) -> Vec<Vec<u8>> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).unwrap().secret_pkcs8_der().to_vec();
    // RFC 5915 within RFC 5208: the scalar of P-256 is the bytes `04 20 …`.
    let at = der.windows(2).position(|pair| pair == [0x04, 0x20]).expect("a P-256 private key");
    let scalar = der[at + 2..at + 34].to_vec();
    let digits = |bytes: &[u8]| HEXLOWER.encode(bytes).into_bytes();
    let mut traces = vec![digits(&scalar), digits(&der), scalar, der];
    // The first line of base64 is the same for every key: version, algorithm, curve.
    traces.extend(
        key_pem.lines().skip(2).filter(|line| !line.starts_with('-')).map(|line| line.as_bytes().to_vec()),
    );
    traces.push(b"PRIVATE KEY".to_vec());
    traces
}

#[tokio::test]
async fn no_private_key_is_in_any_file_snapshot_or_backup() {
    let dir = TempDir::new().unwrap();
    let test = latest_ca(dir.path(), START, 1).await;
    let mut keys = vec![
        test.ca.issue_service(&account("v1"), None).await.unwrap().certificate.key_pem,
        test.ca.issue_service(&account("v1"), None).await.unwrap().certificate.key_pem,
        test.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap().key_pem,
        test.ca.issue_controller(&names()).await.unwrap().key_pem,
        gateway_key(&test).await,
    ];
    let authority = || test.ca.ledger().local().read(|ledger| ledger.authority().cloned()).unwrap();
    let kek = LocalKey::load(&dir.path().join("kek"), &test.env).unwrap();
    let founded = authority();
    test.ca.rotate(Rotate::Issuing).await.unwrap();
    test.ca.rotate(Rotate::Root).await.unwrap();
    let rotated = authority();
    let next = rotated.next_root.as_ref().unwrap();
    for (purpose, ca) in [
        (Purpose::Root, &founded.root),
        (Purpose::Issuing, &founded.issuing),
        (Purpose::Issuing, &rotated.issuing),
        (Purpose::Root, &next.ca),
    ] {
        let context = SealContext { purpose, name: "cluster.local", serial: ca.serial };
        let pem = kek.open(context, &ca.key).unwrap();
        keys.push(Zeroizing::new(String::from_utf8(pem.to_vec()).unwrap()));
    }
    // The key of a former issuing CA is not kept, not even sealed.
    let sealed = HEXLOWER.encode(&founded.issuing.key.sealed);
    let snapshot = test.ca.ledger().local().read(|ledger| ledger.canonical().unwrap());
    assert!(!String::from_utf8(snapshot).unwrap().contains(&sealed));
    drop(test);
    // Opened once more, so that a part has moved from RocksDB's log to its tables. A snapshot and an
    // unsealed backup must not contain a key either.
    let group = group(&dir.path().join("ledger")).await;
    let applied = group.status().applied;
    group.snapshot().await.unwrap();
    while group.status().snapshot < applied {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let backup = dir.path().join("backup");
    group.backup(fs::File::create(&backup).unwrap()).await.unwrap();
    group.stop().await;
    let unsealed =
        smc_raft::read_backup(&GroupSecret::new(Zeroizing::new([0; 32])), fs::File::open(&backup).unwrap());
    fs::write(dir.path().join("unsealed"), unsealed.unwrap().ledger.canonical().unwrap()).unwrap();
    fs::remove_file(dir.path().join("kek")).unwrap();

    // A check of the search itself: it finds the root's certificate, in the middle of its text.
    let line = founded.root.certificate_pem.lines().nth(4).unwrap().as_bytes().to_vec();
    let mut in_files = 0;
    for path in files(dir.path()) {
        let bytes = fs::read(&path).unwrap();
        in_files += usize::from(bytes.windows(line.len()).any(|window| window == line));
        for trace in keys.iter().flat_map(|key| traces(key)) {
            let found = bytes.windows(trace.len()).any(|window| window == trace);
            assert!(!found, "{} has {:?}", path.display(), String::from_utf8_lossy(&trace));
        }
    }
    assert!(in_files > 0, "the search finds nothing at all");
}

/// Issues a certificate of a gateway.
async fn gateway_key(test: &TestCa) -> Zeroizing<String> {
    let wanted = gateway(&["gateway.example"]);
    test.ca.issue_gateway(&wanted).await.unwrap();
    test.ca.gateway(&wanted).unwrap().unwrap().certificate.key_pem
}

/// The secret part of the response to a bootstrap request.
fn bootstrap(key_pem: &str) -> BootstrapResponse {
    BootstrapResponse { bootstrap: key_pem.to_owned(), ..BootstrapResponse::default() }
}

#[tokio::test]
async fn no_private_key_is_in_any_debug_text() {
    let dir = TempDir::new().unwrap();
    let test = latest_ca(dir.path(), START, 1).await;
    let of_gateway = gateway_key(&test).await;
    let answer = GetGatewayCertificateResponse {
        key_pem: of_gateway.to_string(),
        ..GetGatewayCertificateResponse::default()
    };
    let TestCa { ca, .. } = test;
    let issued = ca.gateway(&gateway(&["gateway.example"])).unwrap();
    let service = ca.issue_service(&account("v1"), None).await.unwrap();
    let proxy = ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    let controller = ca.issue_controller(&names()).await.unwrap();
    let texts = [
        format!("{service:?} {issued:?} {answer:?}"),
        format!("{proxy:?}"),
        format!("{controller:?}"),
        format!("{:?}", bootstrap(&proxy.key_pem)),
        format!("{:?}", tonic::Response::new(bootstrap(&proxy.key_pem))),
        ca.ledger().local().read(|ledger| format!("{ledger:?}")),
        format!("{:?}", ca.list()),
    ];
    for key in [&service.certificate.key_pem, &proxy.key_pem, &controller.key_pem, &of_gateway] {
        for trace in traces(key) {
            let trace = String::from_utf8_lossy(&trace);
            assert!(texts.iter().all(|text| !text.contains(&*trace)), "{trace}");
        }
    }
}
