//! Tests egress: the switch, and that it does not bypass policy; and what Egresses let out.

use std::time::Duration;

use smc_lab::{LabHandle, TcpResult};

use crate::continuity::Traffic;
use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, egress, pod, routes, service, tcp_route};
use crate::metrics::counter;
use crate::{DENIED, fetch, get, hello, outcome, start, tcp_outcome};

#[tokio::test(flavor = "multi_thread")]
async fn egress_opens_external_addresses_and_no_service_that_policy_denies() {
    let mesh = Mesh::web()
        .with("mesh-config.yaml", &egress(false))
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let address = async |pod: &str| lab.pod_ip(pod).await.unwrap();
    let (stranger, server) = (address("outside/stranger").await, address("servers/web-v1").await);
    let (outside, lines) = (format!("http://{stranger}:8080/"), format!("{stranger}:7000"));
    for pod in ["clients/alice", "clients/bob"] {
        assert_eq!(get(&lab, pod, &outside).await, DENIED, "{pod}");
        assert_eq!(hello(&lab, pod, &lines).await, DENIED, "{pod}");
    }

    lab.apply("mesh-config.yaml", &egress(true)).await.unwrap();
    for pod in ["clients/alice", "clients/bob"] {
        eventually_get(&lab, pod, &outside, "200").await;
        assert_eq!(hello(&lab, pod, &lines).await, "answered", "{pod}");
    }
    // The request leaves unchanged: the mesh adds no header.
    let seen = fetch(&lab, "clients/alice", &["--url", &outside]).await;
    assert_eq!(seen.pod(), Some("stranger"));
    assert!(!seen.body["headers"].to_string().contains("x-forwarded"), "{seen:?}");
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/").await, "200");
    // Egress gives bob no other path to the servers.
    for url in ["http://web.servers/".to_owned(), format!("http://{server}:8080/")] {
        assert_eq!(get(&lab, "clients/bob", &url).await, DENIED, "{url}");
    }
    for target in ["web.servers:7000".to_owned(), format!("{server}:7000"), format!("{server}:7001")] {
        assert_eq!(hello(&lab, "clients/bob", &target).await, DENIED, "{target}");
    }

    lab.apply("mesh-config.yaml", &egress(false)).await.unwrap();
    for pod in ["clients/alice", "clients/bob"] {
        eventually_get(&lab, pod, &outside, DENIED).await;
        assert_eq!(hello(&lab, pod, &lines).await, DENIED, "{pod}");
    }
    lab.stop().await.unwrap();
}

/// The mesh of [`Mesh::web`] with two hosts outside of it, `shop.outside` and `bank.outside`, and alice's way
/// out by an Egress with these fields.
fn with_hosts(spec: &str) -> Mesh {
    let mut mesh = Mesh::web();
    for name in ["shop", "bank"] {
        mesh.add(&format!("pod-{name}.yaml"), &pod("outside", name, name));
        mesh.add(&format!("service-{name}.yaml"), &service("outside", name, &format!("app: {name}")));
    }
    mesh.with("mesh-config.yaml", &egress(false)).with("egress.yaml", &policy("egress", spec))
}

fn policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1
kind: Egress
metadata: {{name: {name}, namespace: clients}}
spec:
  sources: [{{kind: ServiceAccount, name: alice, namespace: clients}}]
  {spec}
"
    )
}

/// The pod that answers a request with this `Host`, or how it failed.
async fn answering(lab: &LabHandle, pod: &str, url: &str, host: &str) -> String {
    let result = fetch(lab, pod, &["--url", url, "-H", &format!("host: {host}")]).await;
    result.pod().map_or_else(|| outcome(&result), str::to_owned)
}

/// The serial number of the certificate of the server that a name leads to, or how it failed.
async fn serial(lab: &LabHandle, pod: &str, target: &str, name: &str) -> String {
    let args =
        ["smc-lab", "tls", target, "--server-name", name, "--send", r"GET / HTTP/1.1\r\nhost: a\r\n\r\n"];
    let output = lab.exec(pod, &args).await.unwrap();
    let result: TcpResult =
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    result.server_serial.clone().unwrap_or_else(|| tcp_outcome(&result))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_leave_by_the_hosts_that_are_granted_wherever_they_are_dialled() {
    let mesh = with_hosts("hosts: [shop.outside]\n  ports: [{number: 80, protocol: http}]")
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://shop.outside/", "200").await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    for (case, pod, url, host, expected) in [
        ("as it is meant", "clients/alice", "http://shop.outside/", "shop.outside", "shop"),
        ("with its port", "clients/alice", "http://shop.outside/", "shop.outside:80", "shop"),
        ("in capitals", "clients/alice", "http://shop.outside/", "SHOP.outside", "shop"),
        ("its name, at another host", "clients/alice", "http://bank.outside/", "shop.outside", "shop"),
        (
            "its name, at a service that is denied",
            "clients/alice",
            "http://web-v1.servers/",
            "shop.outside",
            "web-v1",
        ),
        ("another name", "clients/alice", "http://shop.outside/", "bank.outside", "404"),
        ("another host", "clients/alice", "http://bank.outside/", "bank.outside", "404"),
        ("a longer name", "clients/alice", "http://shop.outside/", "shop.outside.test", "404"),
        ("a service of the mesh", "clients/alice", "http://shop.outside/", "web.servers", "404"),
        ("another identity", "clients/bob", "http://shop.outside/", "shop.outside", DENIED),
        ("the mesh, as before", "clients/alice", "http://web.servers/", "shop.outside", "web"),
    ] {
        let found = answering(&lab, pod, url, host).await;
        assert!(found.starts_with(expected), "{case}: {found}, not {expected}");
    }
    for port in [7000, 7001, 443, 90] {
        assert_eq!(hello(&lab, "clients/alice", &format!("shop.outside:{port}")).await, DENIED, "{port}");
    }
    for (account, words) in [
        (
            "clients/alice",
            "HTTP     shop.outside  all       what the sidecar resolves the host to  Egress clients/egress",
        ),
        ("clients/bob", "no connection may leave the mesh"),
    ] {
        let said = lab.smc(&["mesh", "egress", account]).await.unwrap();
        assert!(said.success() && said.stdout.contains(words), "{account}: {said:?}");
    }
    // What Envoy says of itself stays in the mesh.
    let seen = fetch(&lab, "clients/alice", &["--url", "http://shop.outside/"]).await;
    let headers = seen.body["headers"].to_string();
    assert!(!headers.contains("x-envoy") && !headers.contains("x-smc"), "{seen:?}");

    // With networks, the address that is dialled has to be in them, and the name has to fit as well.
    let bank = lab.pod_ip("outside/bank").await.unwrap();
    let spec = format!(
        "hosts: [shop.outside]\n  ipAddresses: [{bank}]\n  ports: [{{number: 8080, protocol: http}}]"
    );
    lab.apply("egress.yaml", &policy("egress", &spec)).await.unwrap();
    eventually_get(&lab, "clients/alice", "http://shop.outside/", DENIED).await;
    let host = if bank.is_ipv6() { format!("[{bank}]") } else { bank.to_string() };
    let shop = lab.pod_ip("outside/shop").await.unwrap();
    let other = if shop.is_ipv6() { format!("[{shop}]") } else { shop.to_string() };
    assert_eq!(
        answering(&lab, "clients/alice", &format!("http://{host}:8080/"), "shop.outside").await,
        "bank"
    );
    assert_eq!(
        answering(&lab, "clients/alice", &format!("http://{host}:8080/"), "bank.outside").await,
        "404"
    );
    assert_eq!(
        answering(&lab, "clients/alice", &format!("http://{other}:8080/"), "shop.outside").await,
        DENIED
    );
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_leave_are_those_that_groups_match() {
    let group = routes("out", "    - {name: out, pathRegex: '/some/.*', methods: [GET]}")
        .replace("namespace: servers", "namespace: clients");
    let matches = "matches: [{apiGroup: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, name: out}]";
    let spec = format!("hosts: [shop.outside]\n  ports: [{{number: 80, protocol: http}}]\n  {matches}");
    let lab = start(&with_hosts(&spec).with("out.yaml", &group)).await;
    eventually_get(&lab, "clients/alice", "http://shop.outside/some/path", "200").await;
    for (path, expected) in [
        ("/other", "404"),
        ("/some/../other", "404"),
        ("/some/%2e%2e/other", "404"),
        ("/some/..%2fother", "400"),
        ("/some/..%5cother", "400"),
        ("/some/../some/path", "200"),
    ] {
        let found = get(&lab, "clients/alice", &format!("http://shop.outside{path}")).await;
        assert_eq!(found, expected, "{path}");
    }
    let post =
        fetch(&lab, "clients/alice", &["--url", "http://shop.outside/some/path", "--method", "POST"]).await;
    assert_eq!(outcome(&post), "404");
    // Without its group, an Egress lets no request out.
    lab.remove("out.yaml").await.unwrap();
    eventually_get(&lab, "clients/alice", "http://shop.outside/some/path", DENIED).await;
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_leaves_by_its_name_and_tcp_by_its_address() {
    let lab = start(&with_hosts("hosts: [shop.outside]\n  ports: [{number: 443, protocol: https}]")).await;
    let target = "shop.outside:443";
    let of = async |pod: &str, target: &str, name: &str| serial(&lab, pod, target, name).await;
    eventually("alice reaches the host over TLS", async || {
        let found = of("clients/alice", target, "shop.outside").await;
        if found == DENIED { Err(found) } else { Ok(()) }
    })
    .await;
    let shop = of("outside/stranger", target, "shop.outside").await;
    assert_ne!(shop, of("outside/stranger", "bank.outside:443", "bank.outside").await, "each has its own");
    for (case, pod, target, name, expected) in [
        ("as it is meant", "clients/alice", target, "shop.outside", shop.as_str()),
        ("its name, at another host", "clients/alice", "bank.outside:443", "shop.outside", &shop),
        ("another name", "clients/alice", target, "bank.outside", DENIED),
        ("another host", "clients/alice", "bank.outside:443", "bank.outside", DENIED),
        ("another port", "clients/alice", "shop.outside:444", "shop.outside", DENIED),
        ("another identity", "clients/bob", target, "shop.outside", DENIED),
    ] {
        assert_eq!(of(pod, target, name).await, expected, "{case}");
    }
    // What is no TLS has no name.
    assert_eq!(hello(&lab, "clients/alice", target).await, DENIED);

    let bank = lab.pod_ip("outside/bank").await.unwrap();
    let tcp = policy(
        "tcp",
        &format!(
            "ipAddresses: [{bank}]\n  ports: [{{number: 7000, protocol: tcp}}, {{number: 7001, protocol: tcp-server-first}}]"
        ),
    );
    lab.apply("tcp.yaml", &tcp).await.unwrap();
    let at = |ip: std::net::IpAddr, port: u16| std::net::SocketAddr::new(ip, port).to_string();
    eventually("alice reaches the address", async || {
        let found = hello(&lab, "clients/alice", &at(bank, 7000)).await;
        if found == "answered" { Ok(()) } else { Err(found) }
    })
    .await;
    // A server that speaks first does so at once: the client has said nothing.
    let greeted = lab.tcp("clients/alice", &[&at(bank, 7001), "--timeout", "2s"]).await.unwrap();
    assert!(greeted.greeting.is_some(), "{greeted:?}");
    let others = [lab.pod_ip("outside/shop").await.unwrap(), lab.pod_ip("servers/web-v1").await.unwrap()];
    for other in others {
        assert_eq!(hello(&lab, "clients/alice", &at(other, 7000)).await, DENIED);
    }
    assert_eq!(hello(&lab, "clients/alice", &at(bank, 8080)).await, DENIED, "another port");
    assert_eq!(hello(&lab, "clients/bob", &at(bank, 7000)).await, DENIED, "another identity");

    lab.remove("egress.yaml").await.unwrap();
    eventually("the host is closed again", async || {
        let found = of("clients/alice", target, "shop.outside").await;
        if found == DENIED { Ok(()) } else { Err(found) }
    })
    .await;
    assert_eq!(hello(&lab, "clients/alice", &at(bank, 7000)).await, "answered");
    lab.stop().await.unwrap();
}

/// How many edits there are of what a pod may reach outside of the mesh.
const EDITS: u32 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_edits_end_no_connection_of_the_mesh_nor_of_other_ways_out() {
    let mut mesh = with_hosts("hosts: [shop.outside]\n  ports: [{number: 443, protocol: https}]");
    for (name, yaml) in [
        ("any.yaml", any_route()),
        ("lines.yaml", tcp_route("lines", &[7000])),
        ("alice.yaml", allow("alice", "alice", &["HTTPRouteGroup/any"])),
        ("alice-tcp.yaml", allow("alice-tcp", "alice", &["TCPRoute/lines"])),
    ] {
        mesh.add(name, &yaml);
    }
    let lab = start(&mesh).await;
    let bank = lab.pod_ip("outside/bank").await.unwrap();
    let kept = format!("ipAddresses: [{bank}]\n  ports: [{{number: 7000, protocol: tcp}}]");
    lab.apply("kept.yaml", &policy("kept", &kept)).await.unwrap();
    let address = std::net::SocketAddr::new(bank, 7000).to_string();
    eventually("alice reaches the address", async || {
        let found = hello(&lab, "clients/alice", &address).await;
        if found == "answered" { Ok(()) } else { Err(found) }
    })
    .await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let traffic = Traffic::start(&lab).await;
    let mut lines = lab.connect_tcp("clients/alice", &address);
    assert!(lines.send_line("hello").await.unwrap().reply.is_some());
    for edit in 0..EDITS {
        let spec = format!(
            "hosts: [h{edit}.outside, shop.outside]\n  ipAddresses: [198.51.{edit}.0/24]\n  \
             ports: [{{number: 80, protocol: http}}, {{number: 443, protocol: https}}, {{number: {}, protocol: tcp}}]",
            20_000 + edit
        );
        lab.apply("edited.yaml", &policy("edited", &spec)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let updates = counter(&lab, "clients/alice", "listener_manager.listener_in_place_updated").await;
    assert!(updates >= u64::from(EDITS / 4), "edits that came together are one: {updates}");
    // Longer than a sidecar of the lab drains connections.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(lines.send_line("still here").await.unwrap().reply.is_some());
    traffic.assert_undisturbed(&lab).await;
    lab.stop().await.unwrap();
}
