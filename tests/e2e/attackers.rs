//! Tests clients that attack a sidecar's inbound port, with wrong certificates and with headers
//! that control Envoy.

use std::path::Path;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, mesh_config};
use crate::{fetch, get, outcome, start};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use smc_lab::{Lab, TcpResult};

/// A certificate from the attacker's own CA, with the SPIFFE ID of an allowed client.
#[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
fn forged(spiffe_id: &str) -> (String, String) {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(root, root_key);
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = vec![SanType::URI(spiffe_id.try_into().unwrap())];
    (leaf.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
}

/// The proxy certificate that the controller issues for a pod.
async fn proxy_certificate(lab: &Lab, pod: &str) -> (String, String) {
    let output = lab.smc(&["proxy", "bootstrap", pod]).await.unwrap();
    assert!(output.success(), "{output:?}");
    let bootstrap: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let tls =
        "/static_resources/clusters/0/transport_socket/typed_config/common_tls_context/tls_certificates/0";
    let text = |field: &str| {
        let pointer = format!("{tls}/{field}/inline_string");
        bootstrap.pointer(&pointer).and_then(serde_json::Value::as_str).unwrap().to_owned()
    };
    (text("certificate_chain"), text("private_key"))
}

/// Sends HTTP over TLS to `target` from the node, with this certificate.
async fn request(lab: &Lab, target: &str, certificate: Option<&(String, String)>) -> TcpResult {
    let directory = lab.state_dir().path();
    let (cert, key) = (directory.join("attacker.crt"), directory.join("attacker.key"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let mut args: Vec<String> =
        ["smc-lab", "tls", target, "--server-name", "web.servers.svc.cluster.local", "--send"]
            .map(str::to_owned)
            .to_vec();
    args.push(r"GET / HTTP/1.1\r\nhost: web\r\n\r\n".to_owned());
    if let Some((chain, private_key)) = certificate {
        std::fs::write(&cert, chain).unwrap();
        std::fs::write(&key, private_key).unwrap();
        args.extend(["--cert".to_owned(), path(&cert), "--key".to_owned(), path(&key)]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = lab.exec_on_node(&args).await.unwrap();
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_service_certificate_of_this_mesh_opens_a_sidecars_inbound_port() {
    // Permissive mode allows every client in the mesh, so only the certificate can be the reason
    // for a refusal.
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let address = lab.pod_ip("servers/web-v1").await.unwrap();
    let forged = forged("spiffe://cluster.local/ns/clients/sa/alice");
    let proxy = proxy_certificate(&lab, "clients/alice").await;
    for port in [8080, 8443, 7000, 7001] {
        let target = format!("{address}:{port}");
        // The TLS alert shows that Envoy refused the certificate, and why.
        for (what, certificate, alert) in [
            ("no certificate", None, "CertificateRequired"),
            ("a certificate of another authority", Some(&forged), "UnknownCA"),
            ("a proxy certificate of this mesh", Some(&proxy), "CertificateUnknown"),
        ] {
            let result = request(&lab, &target, certificate).await;
            assert!(result.connected, "{what} to {target}: {result:?}");
            assert_eq!(result.reply, None, "{what} to {target}");
            let error = result.error.unwrap_or_default();
            assert!(error.contains(alert), "{what} to {target}: {error}");
        }
    }
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_cannot_keep_half_made_handshakes() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let address = lab.pod_ip("servers/web-v1").await.unwrap();
    for port in [8080, 7000] {
        let target = format!("{address}:{port}");
        let args = ["smc-lab", "tls", &target, "--server-name", "web", "--half", "200", "--timeout", "40s"];
        let output = lab.exec_on_node(&args).await.unwrap();
        let result: TcpResult = serde_json::from_str(&output.stdout).unwrap();
        let reply = result.reply.unwrap_or_else(|| panic!("{output:?}"));
        let counted: serde_json::Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(counted["closed"], 200, "{target}: {counted}");
        // They were handshakes that Envoy waited for, not connections that it refused at once.
        assert!(counted["first_millis"].as_u64().unwrap() > 5_000, "{target}: {counted}");
    }
    // Other clients were not disturbed.
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_a_caller_do_not_control_any_sidecar() {
    let lab = start(&Mesh::web().with("mesh-config.yaml", &mesh_config(true))).await;
    eventually_get(&lab, "clients/alice", "http://web-v1.servers/", "200").await;
    let so_far = async || {
        let answer = fetch(&lab, "clients/alice", &["--url", "http://web-v1.servers/"]).await;
        answer.body["request"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
    };
    // If Envoy trusted private addresses as internal, `x-forwarded-for` would make a caller
    // internal.
    for address in ["x-forwarded-for: 10.0.0.1", "x-forwarded-for: 127.0.0.1", "x-nothing: said"] {
        let before = so_far().await;
        let args = [
            &["--url", "http://web-v1.servers/status/503", "-H", address][..],
            &["-H", "x-envoy-retry-on: 5xx,retriable-status-codes", "-H", "x-envoy-max-retries: 5"],
            &["-H", "x-envoy-retriable-status-codes: 503", "-H", "x-envoy-retry-grpc-on: unavailable"],
            &["-H", "x-envoy-original-path: /another/path"],
        ];
        assert_eq!(outcome(&fetch(&lab, "clients/alice", &args.concat()).await), "503", "{address}");
        assert_eq!(so_far().await - before, 2, "one more than the request that asks; {address}");

        let args = [
            &["--url", "http://web-v1.servers/delay/1500", "-H", address][..],
            &["-H", "x-envoy-upstream-rq-timeout-ms: 100", "-H", "x-envoy-expected-rq-timeout-ms: 100"],
            &["-H", "x-envoy-upstream-rq-per-try-timeout-ms: 100"],
        ];
        assert_eq!(outcome(&fetch(&lab, "clients/alice", &args.concat()).await), "200", "{address}");
    }
    eventually("the access log tells the true paths", async || {
        let log = lab.logs("servers/web-v1", "envoy").unwrap();
        assert!(!log.contains("/another/path"), "{log}");
        if log.contains(r#""path":"/status/503""#) { Ok(()) } else { Err(log) }
    })
    .await;
    lab.stop().await.unwrap();
}
