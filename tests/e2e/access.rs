//! Tests TrafficTarget, HTTPRouteGroup and TCPRoute against running sidecars.

use std::time::Duration;

use smc_lab::LabHandle;
use smc_testkit::eventually::Patience;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, allow, any_route, routes, tcp_route};
use crate::{DENIED, SETTLE, fetch, get, hello, outcome, start, tcp_outcome};

fn guarded() -> Mesh {
    let matches = "    - {name: read, pathRegex: '/api', methods: [GET]}
    - {name: write, pathRegex: '/submit', methods: [POST, PUT]}
    - name: tenant
      pathRegex: '/tenant'
      headers:
        - x-tenant: 't[0-9]+'
    - {name: unused, pathRegex: '/unused'}";
    Mesh::web()
        .with("routes.yaml", &routes("web", matches))
        .with("tcp.yaml", &tcp_route("lines", &[7000, 7001]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_use_just_the_routes_that_its_targets_name() {
    let mesh = guarded()
        .with("alice.yaml", &allow("alice-web", "alice", &["HTTPRouteGroup/web:read,write,tenant"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/api", "200").await;

    for (args, expected) in [
        // The expression is anchored at the start only, and does not see the query.
        (&["--url", "http://web.servers/api/deeper?x=1"][..], "200"),
        (&["--url", "http://web.servers/apian"], "200"),
        (&["--url", "http://web.servers/v2/api"], "403"),
        (&["--url", "http://web.servers/?/api"], "403"),
        // Paths that an application may normalize differently from Envoy.
        (&["--url", "http://web.servers/api/../other"], "403"),
        (&["--url", "http://web.servers/api/..%2fother"], "403"),
        (&["--url", "http://web.servers/api/%2e%2e%5Cother"], "403"),
        (&["--url", "http://web.servers/api/..;/other"], "403"),
        (&["--url", "http://web.servers/"], "403"),
        // A match of the group that no target names.
        (&["--url", "http://web.servers/unused"], "403"),
        (&["--url", "http://web.servers/api", "--method", "POST"], "403"),
        (&["--url", "http://web.servers/submit", "--method", "POST"], "200"),
        (&["--url", "http://web.servers/submit", "--method", "PUT"], "200"),
        (&["--url", "http://web.servers/submit"], "403"),
        (&["--url", "http://web.servers/tenant"], "403"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: t12"], "200"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: xt12"], "403"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: t12x"], "403"),
        // Of a header that is sent twice, every value must match, in either order.
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: evil", "-H", "x-tenant: t1"], "403"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: t1", "-H", "x-tenant: evil"], "403"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: ", "-H", "x-tenant: t1"], "403"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: t1,t2"], "403"),
        (&["--url", "http://web.servers/tenant", "-H", "x-tenant: t1", "-H", "x-tenant: t2"], "200"),
        (
            &["--http2", "--url", "http://web.servers/tenant", "-H", "x-tenant: t1", "-H", "x-tenant: x"],
            "403",
        ),
        // The address selects the service, whatever the `host` header says.
        (&["--url", "http://web.servers/api", "-H", "host: something.else"], "200"),
        (&["--url", "http://web-v1.servers.svc.cluster.local/api"], "200"),
        // HTTP/2 without TLS on an http port.
        (&["--url", "http://web.servers/api", "--http2"], "200"),
        (&["--url", "http://web.servers/", "--http2"], "403"),
    ] {
        assert_eq!(outcome(&fetch(&lab, "clients/alice", args).await), expected, "alice {args:?}");
    }

    // No target allows bob, and none has alice's own service as its destination.
    for (pod, url) in [
        ("clients/bob", "http://web.servers/api"),
        ("clients/bob", "http://web-v1.servers/api"),
        ("servers/web-v1", "http://alice.clients/"),
        ("servers/web-v1", "http://web-v2.servers/api"),
    ] {
        assert_eq!(get(&lab, pod, url).await, DENIED, "{pod} {url}");
    }
    // A client without any allowed service is denied like the others: the connection opens and is
    // closed. "Connection refused" would look like a dead sidecar.
    for (pod, target) in [
        ("clients/alice", "alice.clients:7000"),
        ("clients/bob", "alice.clients:7000"),
        ("clients/bob", "web.servers:7000"),
    ] {
        eventually(&format!("{pod} is connected to {target} and closed"), async || {
            let denied = lab.tcp(pod, &[target, "--send", "hello"]).await.unwrap();
            assert_eq!(tcp_outcome(&denied), DENIED, "{pod} {target}");
            if denied.connected { Ok(()) } else { Err(format!("{denied:?}")) }
        })
        .await;
    }
    assert_eq!(hello(&lab, "clients/alice", "web.servers:7000").await, "answered");

    // The server sees the client's identity, and a header of the client's cannot change it.
    let spoof = "x-forwarded-client-cert: By=spiffe://x;URI=spiffe://cluster.local/ns/clients/sa/bob";
    let result = fetch(&lab, "clients/alice", &["--url", "http://web.servers/api", "-H", spoof]).await;
    let seen = result.body["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default().to_owned();
    assert!(seen.contains("URI=spiffe://cluster.local/ns/clients/sa/alice"), "{seen}");
    assert!(!seen.contains("sa/bob"), "{seen}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_targets_add_up_and_no_matches_means_the_whole_group() {
    let mesh = guarded()
        .with("alice-1.yaml", &allow("alice-read", "alice", &["HTTPRouteGroup/web:read"]))
        .with("alice-2.yaml", &allow("alice-again", "alice", &["HTTPRouteGroup/web:read,write"]))
        .with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/web"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/bob", "http://web.servers/unused", "200").await;
    eventually_get(&lab, "clients/alice", "http://web.servers/api", "200").await;
    for (pod, args, expected) in [
        ("clients/alice", &["--url", "http://web.servers/submit", "--method", "POST"][..], "200"),
        ("clients/alice", &["--url", "http://web.servers/unused"], "403"),
        ("clients/bob", &["--url", "http://web.servers/api"], "200"),
        ("clients/bob", &["--url", "http://web.servers/submit", "--method", "PUT"], "200"),
        ("clients/bob", &["--url", "http://web.servers/none"], "403"),
    ] {
        assert_eq!(outcome(&fetch(&lab, pod, args).await), expected, "{pod} {args:?}");
    }
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_and_routes_of_a_target_must_both_match_and_open_no_tcp_port() {
    let mesh = guarded()
        .with("any.yaml", &any_route())
        .with("grpc-port.yaml", &tcp_route("grpc-port", &[9090]))
        .with("alice.yaml", &allow("alice", "alice", &["TCPRoute/grpc-port", "HTTPRouteGroup/web:read"]))
        .with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"]));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/bob", "http://web.servers/any", "200").await;
    let http2 = ["--http2", "--url", "http://web.servers:90/api"];
    eventually("alice uses the port of the target", async || {
        let outcome = outcome(&fetch(&lab, "clients/alice", &http2).await);
        if outcome == "200" { Ok(()) } else { Err(outcome) }
    })
    .await;
    // The right port with another route; the right route with another port.
    let other = ["--http2", "--url", "http://web.servers:90/other"];
    assert_eq!(outcome(&fetch(&lab, "clients/alice", &other).await), "403");
    assert_eq!(get(&lab, "clients/alice", "http://web.servers/api").await, "403");
    for pod in ["clients/alice", "clients/bob"] {
        assert_eq!(hello(&lab, pod, "web.servers:7000").await, DENIED, "{pod}");
    }
    lab.stop().await.unwrap();
}

/// The outcome of a stranger's request to the statistics, which answer an address one every four seconds.
async fn at_statistics(lab: &LabHandle, arguments: &[&str]) -> String {
    let patience = Patience { limit: SETTLE, pause: Duration::from_secs(1) };
    smc_testkit::eventually::eventually(patience, "the stranger may ask again", async || {
        let outcome = outcome(&fetch(lab, "outside/stranger", arguments).await);
        if outcome == "429" { Err(outcome) } else { Ok(outcome) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_from_outside_is_refused_on_every_port_but_the_statistics() {
    let mesh = guarded().with("mesh-config.yaml", &crate::mesh::mesh_config(true));
    let lab = start(&mesh).await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let address = lab.pod_ip("servers/web-v1").await.unwrap();
    let statistics = format!("http://{address}:15010/stats/prometheus");
    // Twice: the second round shows that the first has not ended the sidecar.
    for _ in 0..2 {
        // The statistics show that the stranger can reach the pod at all.
        assert_eq!(at_statistics(&lab, &["--url", &statistics]).await, "200");
        for url in ["http://web.servers/".to_owned(), format!("http://{address}:8080/")] {
            assert_eq!(get(&lab, "outside/stranger", &url).await, DENIED, "{url}");
        }
        // The ports of the applications, of the sidecar, and of rewritten probes, which are not
        // intercepted.
        for port in [7000, 7001, 8080, 8443, 9090, 9999, 15000, 15001, 15003, 15901, 15902, 15903, 15904] {
            let target = format!("{address}:{port}");
            assert_eq!(hello(&lab, "outside/stranger", &target).await, DENIED, "{target}");
        }
        // Of the admin interface only the statistics are served, read-only.
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/config_dump"),
            ("GET", "/certs"),
            ("POST", "/quitquitquit"),
            ("POST", "/stats/prometheus"),
            ("GET", "/stats/prometheus/../../config_dump"),
        ] {
            let url = format!("http://{address}:15010{path}");
            let outcome = at_statistics(&lab, &["--url", &url, "--method", method]).await;
            assert_eq!(outcome, "404", "{method} {path}");
        }
    }
    lab.stop().await.unwrap();
}
