//! The TLS that a MeshConfig chooses, between real sidecars, and that no change of it costs a request.

use smc_lab::LabHandle;

use crate::access_log::{requests_as_text, telemetry};
use crate::eventually::eventually;
use crate::mesh::{Mesh, settings};
use crate::{get, hello, start};

/// How the server's sidecar logs the TLS of a request.
const FORMAT: &str =
    "accessLog: {format: 'spoken %DOWNSTREAM_TLS_VERSION% %DOWNSTREAM_TLS_CIPHER% %REQ(:PATH)%'}";

fn chosen(fields: &str) -> String {
    settings(&format!("sidecar: {{{fields}}}"))
}

/// Asks until a request arrives over TLS with these words, by its version and its suite.
async fn eventually_spoken(lab: &LabHandle, path: &str, words: &str) {
    eventually(&format!("{words:?} for {path}"), async || {
        get(lab, "clients/alice", &format!("http://web-v1.servers/{path}")).await;
        let lines = requests_as_text(lab, "servers/web-v1", path);
        match lines.last() {
            Some(line) if line.contains(words) => Ok(()),
            last => Err(format!("{last:?}")),
        }
    })
    .await;
}

/// How many handshakes of alice's sidecar with the server's TCP port had this curve. Each call of that port
/// is a handshake.
async fn handshakes(lab: &LabHandle, curve: &str) -> u64 {
    let name = format!("cluster.servers/web-v1|7000.ssl.curves.{curve}");
    let filter = name.replace('|', "%5C%7C");
    let body = lab.envoy_admin("clients/alice", &format!("/stats?filter=^{filter}$")).await.unwrap().body;
    let value = body.trim().strip_prefix(&format!("{name}: ")).and_then(|value| value.parse().ok());
    value.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_speak_the_tls_that_is_chosen_and_no_change_fails_a_request() {
    let mesh = Mesh::open_to_alice().with("log.yaml", &telemetry("servers", "all", FORMAT));
    let lab = start(&mesh).await;
    eventually_spoken(&lab, "first", "TLSv1.3 TLS_").await;
    let url = ["--url", "http://web-v1.servers/", "--keep-alive", "--count", "100000", "--interval", "10ms"];
    let mut calls = lab.call("clients/alice", &url);
    calls.more(10, crate::SETTLE).await.unwrap();
    let suite = "ECDHE-ECDSA-AES256-GCM-SHA384";
    // Each step accepts nothing that the one before it accepts.
    let older = format!("tlsMaxProtocolVersion: TLSv1_2, cipherSuites: [{suite}]");
    let chosen_suite = format!("TLSv1.2 {suite}");
    for (step, (fields, words, curve)) in [
        (&*older, &*chosen_suite, None),
        ("tlsMinProtocolVersion: TLSv1_3", "TLSv1.3 TLS_", None),
        ("tlsMaxProtocolVersion: TLSv1_2, ecdhCurves: [P-521]", "TLSv1.2 ", Some("P-521")),
        ("tlsMinProtocolVersion: TLSv1_3, ecdhCurves: [P-384]", "TLSv1.3 TLS_", Some("P-384")),
    ]
    .into_iter()
    .enumerate()
    {
        lab.apply("mesh-config.yaml", &chosen(fields)).await.unwrap();
        eventually_spoken(&lab, &format!("step{step}"), words).await;
        assert_eq!(hello(&lab, "clients/alice", "web-v1.servers:7000").await, "answered", "{fields}");
        calls.more(50, crate::SETTLE).await.unwrap();
        // Once both ends have the list.
        if let Some(curve) = curve {
            eventually(&format!("a handshake with {curve}"), async || {
                hello(&lab, "clients/alice", "web-v1.servers:7000").await;
                if handshakes(&lab, curve).await > 0 { Ok(()) } else { Err("none".to_owned()) }
            })
            .await;
        }
    }
    lab.remove("mesh-config.yaml").await.unwrap();
    calls.more(50, crate::SETTLE).await.unwrap();
    let failed: Vec<_> =
        calls.stop().into_iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    lab.stop().await.unwrap();
}
