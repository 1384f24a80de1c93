//! The stored names of commands and of the authority, which logs and snapshots contain.

use serde_json::{Value, json};

use super::*;

fn stored(operation: &Operation) -> Value {
    serde_json::to_value(operation).unwrap()
}

/// The stored form of [`small_ca`].
fn stored_ca(n: u8) -> Value {
    json!({
        "serial": serial(n), "validity": { "not_before": 1, "not_after": 9 },
        "certificate_pem": "PEM", "key": { "encryption_key": "k", "sealed": "010203" },
    })
}

fn small_ca(n: u8) -> CaCertificate {
    ca(n, Validity { not_before: Timestamp(1), not_after: Timestamp(9) })
}

#[test]
fn records_keep_their_stored_names() {
    let validity = Validity { not_before: Timestamp(1), not_after: Timestamp(9) };
    let fingerprint = Fingerprint::of(&[7]);
    let uuid = "07070707-0707-0707-0707-070707070707";
    let times = json!({ "not_before": 1, "not_after": 9 });
    let (two, three, key) = (serial(2), serial(3), json!({ "encryption_key": "k", "sealed": "010203" }));
    for (operation, expected) in [
        (
            service(2, Some(3), validity),
            json!({ "record-service-certificate": {
                "account": "bookstore/v1", "replaces": three, "record": {
                    "serial": two, "validity": times, "issued_at": START, "issuer": serial(1),
                    "chain_pem": "CHAIN", "key": key,
                },
            } }),
        ),
        (
            proxy_certificate(7, 7, validity),
            json!({ "record-proxy-certificate": {
                "serial": serial(7), "proxy": { "uuid": uuid, "namespace": "bookstore" },
                "service_account": "bookstore/v1", "validity": times, "issuer": serial(1),
                "fingerprint": fingerprint,
            } }),
        ),
        (
            controller(7, validity),
            json!({ "record-controller-certificate": {
                "serial": serial(7), "record": {
                    "names": ["smc-controller.smc-system"], "validity": times, "issuer": serial(1),
                    "fingerprint": fingerprint,
                },
            } }),
        ),
        (
            gateway(2, Some(3), validity),
            json!({ "record-gateway-certificate": {
                "secret": "ingress/gateway", "replaces": three, "record": {
                    "names": ["gateway.example"], "lifetime": 86_400, "certificate": {
                        "serial": two, "validity": times, "issued_at": START, "issuer": serial(1),
                        "chain_pem": "CHAIN", "key": key,
                    },
                },
            } }),
        ),
        (forget_gateway(2), json!({ "forget-gateway": { "secret": "ingress/gateway", "serial": two } })),
    ] {
        assert_eq!(stored(&operation), expected);
    }
}

#[test]
fn releases_and_rotations_keep_their_stored_names() {
    let uuid = "07070707-0707-0707-0707-070707070707";
    let (two, key) = (serial(2), json!({ "encryption_key": "k", "sealed": "010203" }));
    let rekeyed = RekeyedKey { account: Some(account("v1")), serial: two, key: sealed() };
    for (operation, expected) in [
        (Operation::ClaimProxyCertificate(two), json!({ "claim-proxy-certificate": two })),
        (
            Operation::ReleaseProxy(proxy(7)),
            json!({ "release-proxy": { "uuid": uuid, "namespace": "bookstore" } }),
        ),
        (Operation::ReleaseProxyCertificates(vec![two]), json!({ "release-proxy-certificates": [two] })),
        (Operation::Prune, json!("prune")),
        (
            Operation::RotateIssuing(RotateIssuing { replaces: two, issuing: Box::new(small_ca(3)) }),
            json!({ "rotate-issuing": { "replaces": two, "issuing": stored_ca(3) } }),
        ),
        (
            Operation::TrustRoot(TrustRoot { beside: two, root: Box::new(small_ca(3)) }),
            json!({ "trust-root": { "beside": two, "root": stored_ca(3) } }),
        ),
        (
            Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 1, root: two }),
            json!({ "acknowledge-root": { "replica": 1, "root": two } }),
        ),
        (
            Operation::SignWithNextRoot(SignWithNextRoot {
                root: two,
                replicas: [0, 1].into(),
                issuing: Box::new(small_ca(3)),
            }),
            json!({ "sign-with-next-root": { "root": two, "replicas": [0, 1], "issuing": stored_ca(3) } }),
        ),
        (
            Operation::EndControllerIssuer(EndControllerIssuer { issuing: two }),
            json!({ "end-vouching": { "issuing": two } }),
        ),
        (Operation::RetireCa(two), json!({ "retire-ca": two })),
        (
            Operation::AgreeOnTime(AgreeOnTime { clocks: [(2, Timestamp(7))].into() }),
            json!({ "agree-on-time": { "clocks": { "2": 7 } } }),
        ),
        (Operation::CancelRoot(CancelRoot { root: two }), json!({ "cancel-root": { "root": two } })),
        (Operation::HastenRoot(HastenRoot { root: two }), json!({ "hasten-root": { "root": two } })),
        (
            Operation::SetReplicaPhase(SetReplicaPhase { replica: 1, run: 7, phase: ReplicaPhase::Draining }),
            json!({ "set-replica-phase": { "replica": 1, "run": 7, "phase": "draining" } }),
        ),
        (
            Operation::ForgetReplica(ForgetReplica { replica: 1, run: 7 }),
            json!({ "forget-replica": { "replica": 1, "run": 7 } }),
        ),
        (Operation::UseRules(Rules::Second), json!({ "use-rules": 2 })),
        (
            Operation::ForgetServices(vec![unused(2)]),
            json!({ "forget-services": [{ "account": "bookstore/v1", "serial": two }] }),
        ),
        (
            Operation::Rekey(vec![rekeyed]),
            json!({ "reseal-keys": [{ "account": "bookstore/v1", "serial": two, "key": key }] }),
        ),
    ] {
        assert_eq!(stored(&operation), expected);
    }
}

#[test]
fn an_authority_in_rotation_keeps_its_stored_names() {
    let mut authority = Authority::new(TrustDomain::new("cluster.local").unwrap(), small_ca(2), small_ca(3));
    authority.next_root = Some(Box::new(NextRoot {
        ca: small_ca(4),
        trusted_since: Timestamp(5),
        old_trust_ends: Timestamp(6),
        acknowledged: [1].into(),
        hastened: false,
    }));
    authority.controller_issuer = Some(Box::new(small_ca(5)));
    let expected = json!({
        "trust_domain": "cluster.local", "root": stored_ca(2), "issuing": stored_ca(3),
        "next_root": { "ca": stored_ca(4), "trusted_since": 5, "untold_until": 6, "acknowledged": [1] },
        "vouching": stored_ca(5),
    });
    assert_eq!(serde_json::to_value(&authority).unwrap(), expected);
    assert_eq!(serde_json::from_value::<Authority>(expected).unwrap(), authority);
}
