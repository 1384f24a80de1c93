//! HTTP, gRPC, TCP and server-first TCP over both xDS variants.

use crate::mesh::{Mesh, allow, routes, tcp_route};
use crate::{VARIANTS, eventually_get, fetch, outcome, start_with};

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_works_over_both_xds_variants() {
    let matches = "    - {name: say, pathRegex: '/echo.Echo/Say', methods: [POST]}
    - {name: http, pathRegex: '/http'}";
    let mesh = Mesh::web()
        .with("routes.yaml", &routes("web", matches))
        .with("tcp.yaml", &tcp_route("lines", &[7000, 7001]))
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
        // Envoy answers a refused gRPC call as gRPC does: 200 with PERMISSION_DENIED.
        let status = answer.headers.get("grpc-status").or(answer.trailers.get("grpc-status"));
        assert_eq!(status.map(String::as_str), Some("7"), "{variant:?} {answer:?}");

        let lines = lab.tcp("clients/alice", &["web.servers:7000", "--send", "hello"]).await.unwrap();
        assert!(lines.reply.as_deref().is_some_and(|reply| reply.contains("hello")), "{variant:?} {lines:?}");
        let greeted = ["web.servers:7001", "--read-first", "--send", "hello"];
        let greeted = lab.tcp("clients/alice", &greeted).await.unwrap();
        assert!(greeted.greeting.is_some() && greeted.reply.is_some(), "{variant:?} {greeted:?}");

        let proxies = lab.smc_json(&["proxy", "list"]).await.unwrap();
        assert!(proxies.to_string().contains("alice"), "{proxies}");
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
