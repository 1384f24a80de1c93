//! Random meshes and what is asked of them.
//!
//! Owns the choice: few names and values, so that conditions are met and nearly met often, and those ways
//! of writing one thing by which policies have been passed before.

use serde_json::{Value, json};
use smc_policy::{Request, Version};

use crate::outsiders::Caller;
use crate::requests::{self, PATHS, VALUES};
use smc_testkit::random::Random;

/// The namespaces and service accounts. The first two serve, and so does the last, elsewhere.
pub(crate) const ACCOUNTS: [(&str, &str); 5] =
    [("n1", "s1"), ("n1", "s2"), ("n1", "c1"), ("n2", "c2"), ("n2", "s3")];

/// The ports of pods that services lead to.
pub(crate) const PORTS: [u16; 4] = [8080, 8081, 7000, 7001];

/// How the addresses of machines begin.
pub(crate) const MACHINES: &str = "192.0.2.";

/// A mesh, and questions.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    /// The objects of Kubernetes.
    pub(crate) objects: Vec<Value>,
    /// Asked of every account and of every port.
    pub(crate) requests: Vec<Request>,
    /// The clients outside of the mesh that ask; empty for those within.
    pub(crate) callers: Vec<Caller>,
}

impl Case {
    pub(crate) fn yaml(&self) -> String {
        self.objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n")
    }
}

/// The address of the pod of an account.
pub(crate) fn pod_address(account: usize) -> String {
    format!("10.1.0.{}", account + 1)
}

/// The mesh and the requests of a seed.
pub(crate) fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut objects: Vec<Value> = ["n1", "n2"].into_iter().map(namespace).collect();
    objects.extend((0..ACCOUNTS.len()).map(|number| pod(random, number)));
    objects.extend(services(random));
    objects.extend((0..random.below(3)).map(|number| machine(random, number)));
    for group in 0..3 {
        let namespace = if random.one_in(8) { "n2" } else { "n1" };
        let matches: Vec<Value> = (0..=random.below(3)).map(|number| matching(random, number)).collect();
        objects.push(object(
            "specs.smi-spec.io/v1alpha4",
            "HTTPRouteGroup",
            namespace,
            &format!("g{group}"),
            &json!({ "matches": matches }),
        ));
    }
    for route in 0..2 {
        let ports = some_of(random, &[json!(8080), json!(8081), json!(7000), json!(7001)], 5);
        objects.push(object(
            "specs.smi-spec.io/v1alpha4",
            "TCPRoute",
            "n1",
            &format!("t{route}"),
            &json!({ "matches": { "ports": ports } }),
        ));
    }
    // Few would deny nearly everything, and so test one answer alone.
    objects.extend((0..4 + random.below(5)).map(|number| target(random, number)));
    objects.extend((0..random.below(3)).map(|number| split(random, number)));
    // Those of one version on one connection.
    let versions = [Version::Http1, Version::Http2].into_iter().flat_map(|version| [version; 8]);
    let mut requests: Vec<_> = versions.map(|version| requests::request(random, &objects, version)).collect();
    // Two in three meshes have no open namespace, in which policy decides nothing. Drawn last, so that a
    // seed's mesh is otherwise as it was.
    for namespace in objects.iter_mut().filter(|object| object["kind"] == "Namespace") {
        if random.one_in(6) {
            namespace["metadata"]["annotations"] = json!({"mesh.smc.dev/permissive": "true"});
        }
    }
    requests.extend((0..4).map(|_| requests::odd(random, &objects)));
    objects.extend((0..random.below(4)).map(|number| retry(random, number)));
    objects.extend((0..random.below(4)).map(|number| setting(random, number)));
    Case { seed, objects, requests, callers: Vec::new() }
}

pub(crate) fn object(version: &str, kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"openservicemesh.io/monitored-by": "smc"}}})
}

fn pod(random: &mut Random, number: usize) -> Value {
    let (namespace, account) = ACCOUNTS[number];
    let app = if number < 2 { "web" } else { account };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": account, "namespace": namespace, "labels": {"app": app, "one": account}},
        "spec": {"serviceAccountName": account, "containers": [{"name": "app", "ports": named_ports(random)}]},
        "status": {"phase": "Running", "podIP": pod_address(number), "podIPs": [{"ip": pod_address(number)}]}})
}

/// A machine with the identity of a server or of a caller. Its labels are those of a pod behind services.
fn machine(random: &mut Random, number: usize) -> Value {
    let (namespace, account) = ACCOUNTS[[0, 0, 1, 2, 4][random.below(5)]];
    let named: &[&str] =
        if namespace == "n1" { &["web", "web", "one", "two", "missing"] } else { &["far", "web"] };
    let mut services: Vec<&str> = random.some(1, 3, named);
    services.sort_unstable();
    services.dedup();
    let ports: Vec<Value> = named_ports(random)
        .into_iter()
        .map(|port| json!({"name": port["name"], "number": port["containerPort"]}))
        .collect();
    json!({"apiVersion": "mesh.smc.dev/v1alpha1", "kind": "MeshWorkload",
        "metadata": {"name": format!("m{number}"), "namespace": namespace, "labels": {"app": "web", "one": "s1"}},
        "spec": {"addresses": [format!("{MACHINES}{}", number + 1)], "serviceAccountName": account,
            "services": services, "ports": ports, "drained": random.one_in(4)}})
}

/// A port by name, which is each workload's own, or none.
fn named_ports(random: &mut Random) -> Vec<Value> {
    let port = PORTS[random.below(PORTS.len())];
    if random.one_in(4) { Vec::new() } else { vec![json!({"name": "main", "containerPort": port})] }
}

/// A service of both servers, one of each of them, and one elsewhere.
fn services(random: &mut Random) -> Vec<Value> {
    let services = [
        ("n1", "web", json!({"app": "web"})),
        ("n1", "one", json!({"one": "s1"})),
        ("n1", "two", json!({"one": "s2"})),
        ("n2", "far", json!({"one": "s3"})),
    ];
    services
        .into_iter()
        .zip(1..)
        .map(|((namespace, name, selector), number)| {
            let ports = ports(random);
            // Or headless.
            let address = if random.one_in(4) { "None".to_owned() } else { format!("10.9.0.{number}") };
            let spec =
                json!({"clusterIP": address, "clusterIPs": [address], "selector": selector, "ports": ports});
            object("v1", "Service", namespace, name, &spec)
        })
        .collect()
}

/// Four ports, and perhaps another number for one of them. Mostly all services say the same of a port of the
/// pod; where they differ, they share it by their names.
fn ports(random: &mut Random) -> Vec<Value> {
    let usual = [("http-a", 80, 8080), ("b", 81, 8081), ("tcp-c", 90, 7000), ("tcp-d", 91, 7001)];
    let mut ports: Vec<Value> = Vec::new();
    for (name, port, target) in usual {
        if port == 80 || !random.one_in(3) {
            ports.push(json!({"name": name, "port": port, "targetPort": target}));
        }
    }
    if random.one_in(4) {
        let target = [8080, 8081, 7000][random.below(3)];
        let (name, port) =
            (random.pick(&["http-e", "tcp-e", "mysql-e", "redis", "e"]), [82, 3306, 5432, 443]);
        let port = port[random.below(port.len())];
        ports.push(json!({"name": name, "port": port, "targetPort": target}));
    }
    for port in &mut ports {
        if random.one_in(6) {
            let protocols = ["http", "grpc", "kubernetes.io/h2c", "tcp", "tcp-server-first", "https"];
            port["appProtocol"] = json!(random.pick(&protocols));
        }
        if random.one_in(8) {
            port["targetPort"] = json!("main");
        }
    }
    ports
}

/// Each of them, or not; one in `times` none.
fn some_of(random: &mut Random, from: &[Value], times: usize) -> Vec<Value> {
    if random.one_in(times) {
        return Vec::new();
    }
    from.iter().filter(|_| random.one_in(2)).cloned().collect()
}

fn matching(random: &mut Random, number: usize) -> Value {
    let mut spec = json!({ "name": format!("m{number}") });
    if !random.one_in(4) {
        spec["pathRegex"] = json!(path_expression(random));
    }
    if random.one_in(3) {
        spec["methods"] = json!(random.some(1, 3, &["GET", "POST", "PUT", "HEAD", "DELETE", "*"]));
    }
    if random.one_in(2) {
        let mut headers = serde_json::Map::new();
        for _ in 0..=random.below(2) {
            headers.insert(random.pick(HEADERS).to_owned(), json!(value_expression(random)));
        }
        let list: Vec<Value> = headers.iter().map(|(name, value)| json!({ name: value })).collect();
        spec["headers"] = if random.one_in(2) { json!(headers) } else { json!(list) };
    }
    spec
}

fn path_expression(random: &mut Random) -> String {
    if !random.one_in(4) {
        return PATHS[random.below(PATHS.len())].0.to_owned();
    }
    let parts = [
        "/", "/", "a", "b", "admin", "public", ".", ".*", "[^/]*", "[0-9]", r"\w+", "(a|b)", "x?", "$", r"\b",
    ];
    format!("/{}", random.some(1, 5, &parts).concat())
}

const HEADERS: &[&str] = &["x-tenant", "X-Role", "x_role", "user-agent", "accept", "cookie", "host"];

fn value_expression(random: &mut Random) -> String {
    VALUES[random.below(VALUES.len())].0.to_owned()
}

fn target(random: &mut Random, number: usize) -> Value {
    let account = |(namespace, name): (&str, &str)| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    // A caller serves only with a machine.
    let destination = ACCOUNTS[[0, 0, 0, 1, 1, 4, 2][random.below(7)]];
    let namespace = if random.one_in(8) { "n2" } else { destination.0 };
    let sources: Vec<Value> =
        (0..=1 + random.below(3)).map(|_| account(ACCOUNTS[random.below(ACCOUNTS.len())])).collect();
    let tcp = random.one_in(4);
    let rules: Vec<Value> = (0..=random.below(3)).map(|_| rule(random, tcp)).collect();
    object(
        "access.smi-spec.io/v1alpha3",
        "TrafficTarget",
        namespace,
        &format!("target{number}"),
        &json!({"destination": account(destination), "sources": sources, "rules": rules}),
    )
}

/// A rule for ports, always so with `tcp`, or one for requests.
fn rule(random: &mut Random, tcp: bool) -> Value {
    if tcp || random.one_in(8) {
        return json!({"kind": "TCPRoute", "name": random.pick(&["t0", "t1", "missing"])});
    }
    let mut rule =
        json!({"kind": "HTTPRouteGroup", "name": random.pick(&["g0", "g1", "g2", "g0", "g1", "missing"])});
    if random.one_in(2) {
        rule["matches"] = json!(random.some(0, 2, &["m0", "m0", "m1", "m1", "m2", "missing"]));
    }
    rule
}

/// A Retry of a caller's requests, also to services that it may not call.
fn retry(random: &mut Random, number: usize) -> Value {
    let (namespace, account) = ACCOUNTS[random.below(ACCOUNTS.len())];
    let services = random.some(1, 3, &["web", "one", "two", "far", "missing"]);
    let destinations: Vec<Value> = services
        .into_iter()
        .map(|name| (name, if name == "far" { "n2" } else { "n1" }))
        .map(|(name, namespace)| json!({"kind": "Service", "name": name, "namespace": namespace}))
        .collect();
    let conditions = random.some(1, 3, &["5xx", "gateway-error", "retriable-4xx", "unavailable", "typo"]);
    let spec = json!({
        "source": {"kind": "ServiceAccount", "name": account, "namespace": namespace},
        "destinations": destinations,
        "retryPolicy": {"retryOn": conditions.join(","), "numRetries": random.below(4)},
    });
    object("policy.openservicemesh.io/v1alpha1", "Retry", namespace, &format!("retry{number}"), &spec)
}

/// What a service can bear, which is as much as is asked here: one thing after the other.
fn setting(random: &mut Random, number: usize) -> Value {
    let host =
        random.pick(&["web.n1.svc.cluster.local", "one.n1.svc", "far.n2.svc.cluster.local", "a.example"]);
    let spec = json!({
        "host": host,
        "connectionSettings": {"tcp": {"maxConnections": 1}, "http": {"maxRequests": 1, "maxRetries": 0}},
    });
    let id = format!("setting{number}");
    object("policy.openservicemesh.io/v1alpha1", "UpstreamTrafficSetting", "n1", &id, &spec)
}

fn weight(random: &mut Random) -> u32 {
    [0, 1, 90][random.below(3)]
}

fn split(random: &mut Random, number: usize) -> Value {
    let backends: Vec<Value> = (0..=random.below(3))
        .map(|_| json!({"service": random.pick(&["web", "one", "two", "far"]), "weight": weight(random)}))
        .collect();
    let mut spec = json!({"service": random.pick(&["web", "web", "one"]), "backends": backends});
    if random.one_in(2) {
        let groups = random.some(1, 2, &["g0", "g1", "g2", "missing"]);
        spec["matches"] = groups.iter().map(|name| json!({"kind": "HTTPRouteGroup", "name": name})).collect();
    }
    object("split.smi-spec.io/v1alpha4", "TrafficSplit", "n1", &format!("split{number}"), &spec)
}
