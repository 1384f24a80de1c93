//! Tests HTTP, gRPC, TCP, server-first TCP and the application's own TLS over both xDS variants,
//! and the addresses of a pod.

use crate::eventually::eventually_get;
use crate::mesh::{Mesh, allow, routes, tcp_route};
use crate::{DENIED, VARIANTS, fetch, get, hello, outcome, start, start_with, tcp_outcome};
use smc_lab::{LabHandle, TcpResult};

/// Runs a TLS client in a pod against `address`.
async fn own_tls(lab: &LabHandle, pod: &str, address: &str) -> TcpResult {
    let request = r"GET /own HTTP/1.1\r\nhost: web\r\n\r\n";
    let output = lab.exec(pod, &["smc-lab", "tls", address, "--send", request]).await.unwrap();
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_works_over_both_xds_variants() {
    let matches = "    - {name: say, pathRegex: '/echo.Echo/Say', methods: [POST]}
    - {name: http, pathRegex: '/http'}";
    let mesh = Mesh::web()
        .with("routes.yaml", &routes("web", matches))
        .with("tcp.yaml", &tcp_route("lines", &[7000, 7001, 8443]))
        .with("alice.yaml", &allow("alice-http", "alice", &["HTTPRouteGroup/web"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]));
    for variant in VARIANTS {
        let lab = start_with(&mesh, |options| options.variant = variant).await;
        eventually_get(&lab, "clients/alice", "http://web.servers/http", "200").await;

        let say = ["--grpc", "--url", "http://web.servers:90/echo.Echo/Say", "--body", "hello"];
        let answer = fetch(&lab, "clients/alice", &say).await;
        assert_eq!(outcome(&answer), "200", "{variant:?} {answer:?}");
        assert_eq!(
            answer.trailers.get("grpc-status").map(String::as_str),
            Some("0"),
            "{variant:?} {answer:?}"
        );
        let shout = ["--grpc", "--url", "http://web.servers:90/echo.Echo/Shout", "--body", "hello"];
        let answer = fetch(&lab, "clients/alice", &shout).await;
        // Envoy denies a gRPC call in gRPC's form: status 200 with PERMISSION_DENIED.
        let status = answer.headers.get("grpc-status").or(answer.trailers.get("grpc-status"));
        assert_eq!(status.map(String::as_str), Some("7"), "{variant:?} {answer:?}");

        let lines = lab.tcp("clients/alice", &["web.servers:7000", "--send", "hello"]).await.unwrap();
        assert!(lines.reply.as_deref().is_some_and(|reply| reply.contains("hello")), "{variant:?} {lines:?}");
        // The application's own TLS, inside the mesh's mTLS.
        for address in ["web.servers:443", "web.servers:444"] {
            let own = own_tls(&lab, "clients/alice", address).await;
            assert!(own.reply.as_deref().is_some_and(|reply| reply.contains("/own")), "{variant:?} {own:?}");
        }
        let refused = own_tls(&lab, "clients/bob", "web.servers:443").await;
        assert_eq!(tcp_outcome(&refused), DENIED, "{variant:?}");
        for address in ["web.servers:7001", "web.servers:7002", "web.servers:3306"] {
            let greeted = [address, "--read-first", "--send", "hello"];
            let greeted = lab.tcp("clients/alice", &greeted).await.unwrap();
            assert!(
                greeted.greeting.is_some() && greeted.reply.is_some(),
                "{variant:?} {address} {greeted:?}"
            );
        }

        lab.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_both_address_families_are_reached_over_both() {
    let mesh = Mesh::web().with("mesh-config.yaml", &crate::mesh::mesh_config(true));
    let lab = start_with(&mesh, |options| options.dual_stack = true).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let pod = lab.pod("servers/web-v1").await.unwrap();
    assert!(pod.addresses.iter().any(std::net::IpAddr::is_ipv6), "{pod:?}");
    let services = lab.exec("clients/alice", &["cat", "/etc/hosts"]).await.unwrap().stdout;
    let addresses: Vec<&str> = services
        .lines()
        .filter(|line| line.split_whitespace().any(|name| name == "web.servers"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(addresses.len(), 2, "{services}");
    for address in addresses {
        let url =
            if address.contains(':') { format!("http://[{address}]/") } else { format!("http://{address}/") };
        assert_eq!(crate::get(&lab, "clients/alice", &url).await, "200", "{url}");
    }
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_headless_service_are_reached_at_their_ports_under_policy() {
    let mesh = Mesh::open_to_alice();
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://peers.servers:8080/", "200").await;
    for name in ["web-v1", "web-v2"] {
        let address = lab.pod_ip(&format!("servers/{name}")).await.unwrap();
        let url = format!("http://{address}:8080/");
        eventually_get(&lab, "clients/alice", &url, "200").await;
        let result = fetch(&lab, "clients/alice", &["--url", &url]).await;
        assert_eq!(result.pod(), Some(name), "who picks a pod means that pod");
        let caller = result.body["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default();
        assert!(caller.contains("/ns/clients/sa/alice"), "{result:?}");
        let lines = lab.tcp("clients/alice", &[&format!("{address}:7000"), "--send", "hello"]).await.unwrap();
        assert!(lines.reply.as_deref().is_some_and(|reply| reply.contains(name)), "{lines:?}");
        assert_eq!(get(&lab, "clients/bob", &url).await, DENIED);
        assert_eq!(hello(&lab, "clients/bob", &format!("{address}:7000")).await, DENIED);
    }
    assert_eq!(get(&lab, "clients/bob", "http://peers.servers:8080/").await, DENIED);
    lab.stop().await.unwrap();
}
