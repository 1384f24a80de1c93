//! What a hostile author declares in a namespace of its own: many of everything, long of everything, and
//! products of two and three dimensions, drawn from a seed.
//!
//! Owns the shapes. Each is legal YAML of kinds that the mesh reads, within the length of a file, and asks
//! for as much work or memory as its author could think of.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::replicas::Random;

/// The author's namespace.
const EVIL: &str = "evil";

/// What fits in one file: the directory reads 8 MiB, and 10,000 objects.
const FILE_BYTES: usize = 7 << 20;
const FILE_OBJECTS: usize = 9_000;
/// What the author writes at most: it is the shapes that are tried, and not how fast YAML is read.
const MESH_BYTES: usize = 16 << 20;

/// A way to ask for too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Workloads × services × ports, all of them behind one another.
    Workloads,
    /// Selectors × pods.
    Selectors,
    /// EndpointSlices × endpoints × ports.
    Slices,
    /// Pods × slices × endpoints at few addresses, as pods in the network of their node have them.
    Addresses,
    /// Targets × sources × rules × matches.
    Targets,
    /// Roots × backends × matches.
    Splits,
    /// Groups × matches × headers, whose complements are hard to compute.
    Expressions,
    /// Identities, each with a pod, and each allowed to call each.
    Accounts,
    /// Retries × destinations, what each of these services can bear, and splits × backends among them.
    Retries,
    /// Telemetries × pods × services, each of which an account may call, and the collectors of what they log.
    Logs,
    /// The longest names, labels and texts.
    Long,
    /// Depth, aliases, and what is no object at all.
    Broken,
}

pub(crate) const SHAPES: [Shape; 12] = [
    Shape::Workloads,
    Shape::Selectors,
    Shape::Slices,
    Shape::Addresses,
    Shape::Targets,
    Shape::Splits,
    Shape::Expressions,
    Shape::Accounts,
    Shape::Retries,
    Shape::Logs,
    Shape::Long,
    Shape::Broken,
];

/// The files of a hostile mesh, in the order in which they are written. Its objects come in the order of
/// their kinds or in any other, and all at once or in parts.
pub(crate) fn files(shape: Shape, random: &mut Random) -> Vec<String> {
    let mut objects = vec![namespace()];
    match shape {
        Shape::Workloads => workloads(random, &mut objects),
        Shape::Selectors => selectors(random, &mut objects),
        Shape::Slices => slices(random, &mut objects),
        Shape::Addresses => addresses(random, &mut objects),
        Shape::Targets => targets(random, &mut objects),
        Shape::Splits => splits(random, &mut objects),
        Shape::Expressions => expressions(random, &mut objects),
        Shape::Accounts => accounts(random, &mut objects),
        Shape::Retries => retries(random, &mut objects),
        Shape::Logs => logs(random, &mut objects),
        Shape::Long => long(random, &mut objects),
        Shape::Broken => return broken(random),
    }
    if random.below(2) == 0 {
        // The namespace stays the first.
        for last in (2..objects.len()).rev() {
            objects.swap(last, 1 + usize::try_from(random.below(last as u64)).unwrap());
        }
    }
    let part = objects.len().div_ceil(1 + usize::try_from(random.below(3)).unwrap()).min(FILE_OBJECTS);
    let mut files = vec![(0, String::new())];
    let mut left = MESH_BYTES;
    for object in objects {
        let object = object.to_string();
        let Some(rest) = left.checked_sub(object.len()) else { break };
        left = rest;
        let (count, file) = files.last_mut().unwrap();
        if *count == part || file.len() + object.len() > FILE_BYTES {
            files.push((1, format!("{object}\n")));
        } else {
            *count += 1;
            writeln!(file, "---\n{object}").unwrap();
        }
    }
    files.into_iter().map(|(_, file)| file).collect()
}

/// A mesh of the same namespace as people have: what one of its size costs on this machine.
pub(crate) fn ordinary() -> String {
    let mut objects = vec![namespace()];
    objects.extend((0..2_000).map(|n| pod(n, &account(n % 20))));
    objects.extend((0..20).map(|n| service(n, &ports(4))));
    grants(20, &mut objects);
    objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n")
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": EVIL, "labels": {"openservicemesh.io/monitored-by": "smc"}}})
}

/// A number up to `most`, as often small as large: its magnitude is drawn.
fn up_to(most: u64, random: &mut Random) -> u64 {
    let least = most >> random.below(8);
    least.max(1) + random.below(most - least.max(1) + 1)
}

fn object(group: &str, kind: &str, name: &str, body: &Value) -> Value {
    let mut object =
        json!({"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": EVIL}});
    for (field, value) in body.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

/// A pod with an address of its own, which gets traffic.
fn pod(number: u64, account: &str) -> Value {
    let [_, _, high, middle, low, ..] = (number << 24).to_be_bytes();
    let mut pod = object(
        "v1",
        "Pod",
        &format!("pod-{number}"),
        &json!({
            "spec": {"serviceAccountName": account, "containers": [{"name": "app", "image": "app"}]},
            "status": {"phase": "Running", "podIP": format!("10.{high}.{middle}.{low}"),
                "conditions": [{"type": "Ready", "status": "True"}]},
        }),
    );
    pod["metadata"]["labels"] = json!({"app": "all"});
    pod
}

fn ports(count: u64) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"name": format!("http-{n}"), "port": 1000 + n, "targetPort": 8000 + n}))
        .collect()
}

fn service(number: u64, ports: &[Value]) -> Value {
    let [.., high, low] = number.to_be_bytes();
    let spec =
        json!({"clusterIP": format!("10.255.{high}.{low}"), "selector": {"app": "all"}, "ports": ports});
    object("v1", "Service", &format!("service-{number}"), &json!({ "spec": spec }))
}

fn account(number: u64) -> String {
    format!("account-{number}")
}

fn group(name: &str, matches: &[Value]) -> Value {
    object("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", name, &json!({"spec": {"matches": matches}}))
}

fn target(name: &str, destination: &str, sources: impl Iterator<Item = u64>, rules: &[String]) -> Value {
    let account = |name: String| json!({"kind": "ServiceAccount", "name": name, "namespace": EVIL});
    let sources: Vec<_> = sources.map(|source| account(self::account(source))).collect();
    let rules: Vec<_> = rules.iter().map(|rule| json!({"kind": "HTTPRouteGroup", "name": rule})).collect();
    let spec = json!({"destination": account(destination.to_owned()), "sources": sources, "rules": rules});
    object("access.smi-spec.io/v1alpha3", "TrafficTarget", name, &json!({ "spec": spec }))
}

/// All accounts may call all: the products are made for each caller.
fn grants(accounts: u64, objects: &mut Vec<Value>) {
    objects.push(group("any", &[json!({"name": "any", "methods": ["*"]})]));
    for to in 0..accounts {
        objects.push(target(&format!("to-{to}"), &account(to), 0..accounts.min(1000), &["any".to_owned()]));
    }
}

fn workloads(random: &mut Random, objects: &mut Vec<Value>) {
    let accounts = up_to(20, random);
    objects.extend((0..up_to(5_000, random)).map(|n| pod(n, &account(n % accounts))));
    let ports = ports(up_to(256, random));
    objects.extend((0..up_to(64, random)).map(|n| service(n, &ports)));
    grants(accounts, objects);
}

/// Services that select the same pods by one label, by two of which each pod has many, or by one that is
/// rare.
fn selectors(random: &mut Random, objects: &mut Vec<Value>) {
    let (pods, labels) = (up_to(5_000, random), 1 + random.below(24));
    let label = |n: u64| format!("label-{n}");
    for number in 0..pods {
        let mut pod = pod(number, &account(0));
        for n in 0..labels {
            pod["metadata"]["labels"][label(n)] = json!("all");
        }
        pod["metadata"]["labels"]["rare"] = json!(number.to_string());
        objects.push(pod);
    }
    let shape = random.below(3);
    for number in 0..up_to(8_000, random) {
        let mut service = service(number, &ports(1));
        let [one, other] = [0; 2].map(|_| label(random.below(labels)));
        service["spec"]["selector"] = match shape {
            0 => json!({"app": "all"}),
            1 => json!({one: "all", other: "all"}),
            _ => json!({"app": "all", "rare": (number % pods).to_string()}),
        };
        objects.push(service);
    }
    grants(1, objects);
}

fn slices(random: &mut Random, objects: &mut Vec<Value>) {
    let (count, endpoints) = (up_to(40, random), up_to(1_000, random));
    let ports = ports(up_to(100, random));
    for number in 0..count {
        let endpoint = |n: u64| {
            json!({"addresses": [format!("10.{}.{}.{}", number, n / 250, n % 250)],
            "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "namespace": EVIL, "name": format!("pod-{n}")}})
        };
        objects.extend(service_of_a_slice(number, &ports, (0..endpoints).map(endpoint)));
    }
    objects.push(pod(0, &account(0)));
    grants(1, objects);
}

fn addresses(random: &mut Random, objects: &mut Vec<Value>) {
    let (count, endpoints) = (up_to(100, random), up_to(1_000, random));
    let (addresses, accounts) = (1 + random.below(4), up_to(20, random));
    let address = |n: u64| format!("10.9.9.{}", 1 + n % addresses);
    for number in 0..up_to(5_000, random) {
        let mut pod = pod(number, &account(number % accounts));
        pod["status"]["podIP"] = json!(address(number));
        objects.push(pod);
    }
    let ports = ports(up_to(4, random));
    for number in 0..count {
        let endpoint = |n: u64| json!({"addresses": [address(n)], "conditions": {"ready": true}});
        objects.extend(service_of_a_slice(number, &ports, (0..endpoints).map(endpoint)));
    }
    grants(accounts, objects);
}

/// A service without a selector, and what stands behind it.
fn service_of_a_slice(number: u64, ports: &[Value], endpoints: impl Iterator<Item = Value>) -> [Value; 2] {
    let mut service = service(number, ports);
    service["spec"].as_object_mut().unwrap().remove("selector");
    let ports: Vec<_> = ports.iter().map(|p| json!({"name": p["name"], "port": p["targetPort"]})).collect();
    let endpoints: Vec<_> = endpoints.collect();
    let mut slice = object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &format!("slice-{number}"),
        &json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints}),
    );
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": format!("service-{number}")});
    [service, slice]
}

fn targets(random: &mut Random, objects: &mut Vec<Value>) {
    let (destinations, rules) = (up_to(100, random), up_to(64, random));
    let matches: Vec<_> = (0..up_to(256, random))
        .map(|n| json!({"name": format!("m{n}"), "pathRegex": format!("/{n}/[a-z]+"), "methods": ["GET", "POST"]}))
        .collect();
    let names: Vec<_> = (0..rules).map(|n| format!("group-{n}")).collect();
    objects.extend(names.iter().map(|name| group(name, &matches)));
    let sources = up_to(1_000, random);
    for to in 0..destinations {
        objects.push(pod(to, &account(to)));
        objects.push(target(&format!("to-{to}"), &account(to), 0..sources, &names));
    }
    objects.push(service(0, &ports(up_to(256, random))));
}

fn splits(random: &mut Random, objects: &mut Vec<Value>) {
    let (roots, backends) = (up_to(500, random), up_to(256, random));
    let ports = ports(up_to(16, random));
    objects.extend((0..roots.max(backends)).map(|n| service(n, &ports)));
    let matches: Vec<_> = (0..up_to(32, random)).map(|n| format!("group-{n}")).collect();
    let one = [json!({"name": "m", "pathRegex": "/[a-z]+", "methods": ["GET"]})];
    objects.extend(matches.iter().map(|name| group(name, &one)));
    let matches: Vec<_> =
        matches.iter().map(|name| json!({"kind": "HTTPRouteGroup", "name": name})).collect();
    let backends: Vec<_> =
        (0..backends).map(|n| json!({"service": format!("service-{n}"), "weight": n + 1})).collect();
    for root in 0..roots {
        let spec = json!({"service": format!("service-{root}"), "backends": backends, "matches": matches});
        objects.push(object(
            "split.smi-spec.io/v1alpha4",
            "TrafficSplit",
            &format!("split-{root}"),
            &json!({ "spec": spec }),
        ));
    }
    objects.extend((0..10).map(|n| pod(n, &account(n))));
    grants(10, objects);
}

fn expressions(random: &mut Random, objects: &mut Vec<Value>) {
    let count = up_to(60, random);
    let mut names = Vec::new();
    for number in 0..count {
        let matches: Vec<_> = (0..up_to(256, random))
            .map(|n| {
                let headers: Vec<_> =
                    (0..up_to(32, random)).map(|h| json!({format!("x-{h}"): hard(random)})).collect();
                json!({"name": format!("m{n}"), "pathRegex": hard(random), "headers": headers})
            })
            .collect();
        names.push(format!("group-{number}"));
        objects.push(group(&names[names.len() - 1], &matches));
    }
    names.truncate(64);
    objects.extend((0..4).map(|n| pod(n, &account(n))));
    objects.push(service(0, &ports(1)));
    objects.push(target("all", &account(0), 0..4, &names));
}

/// Of few sources, so that most objects contradict each other.
fn retries(random: &mut Random, objects: &mut Vec<Value>) {
    const POLICY: &str = "policy.openservicemesh.io/v1alpha1";
    let (services, accounts) = (up_to(1_024, random), up_to(20, random));
    let ports = ports(1);
    objects.extend((0..services).map(|n| service(n, &ports)));
    objects.extend((0..accounts).map(|n| pod(n, &account(n))));
    let reference = |kind: &str, name: String| json!({"kind": kind, "name": name, "namespace": EVIL});
    let destinations: Vec<_> = (0..services).map(|n| reference("Service", format!("service-{n}"))).collect();
    for number in 0..up_to(1_000, random) {
        let spec = json!({
            "source": reference("ServiceAccount", account(number % accounts)),
            "destinations": destinations,
            "retryPolicy": {"retryOn": "5xx", "numRetries": number % 10},
        });
        objects.push(object(POLICY, "Retry", &format!("retry-{number}"), &json!({ "spec": spec })));
    }
    for number in 0..up_to(4 * services, random) {
        let spec = json!({
            "host": format!("service-{}.{EVIL}.svc.cluster.local", number % services),
            "connectionSettings": {"tcp": {"maxConnections": number}},
        });
        let name = format!("setting-{number}");
        objects.push(object(POLICY, "UpstreamTrafficSetting", &name, &json!({ "spec": spec })));
    }
    let backends: Vec<_> =
        (0..services.min(256)).map(|n| json!({"service": format!("service-{n}"), "weight": n + 1})).collect();
    for number in 0..up_to(200, random) {
        let spec = json!({"service": format!("service-{}", number % services), "backends": backends});
        let name = format!("split-{number}");
        objects.push(object("split.smi-spec.io/v1alpha4", "TrafficSplit", &name, &json!({ "spec": spec })));
    }
    grants(accounts, objects);
}

/// Formats of a log, as long and as many as may be, each for a few of the pods of an account.
fn logs(random: &mut Random, objects: &mut Vec<Value>) {
    let (accounts, services) = (up_to(20, random), up_to(200, random));
    let selected = up_to(200, random);
    for number in 0..up_to(2_000, random) {
        let mut pod = pod(number, &account(number % accounts));
        pod["metadata"]["labels"] = json!({"app": "all", "log": (number % selected).to_string()});
        objects.push(pod);
    }
    let ports = ports(1);
    objects.extend((0..services).map(|n| service(n, &ports)));
    let format = if random.below(2) == 0 {
        "%REQ(X-A)%".repeat(60)
    } else {
        "{\"\":[".repeat(4) + "0" + &",{}".repeat(50) + &"]}".repeat(4)
    };
    // None, one for all, or one for each.
    let collectors = [0, 1, 2_000][usize::try_from(random.below(3)).unwrap()];
    let attributes: BTreeMap<_, _> = (0..16).map(|n| (format!("a{n}"), "%REQ(X-A)%".repeat(6))).collect();
    for number in 0..up_to(2_000, random) {
        let mut spec = json!({
            "selector": {"log": (number % selected).to_string()},
            "accessLog": {"format": format},
        });
        if collectors > 0 {
            let collector = format!("collector-{}", number % collectors);
            let named = json!({"name": collector, "namespace": EVIL});
            let open_telemetry = json!({"extensionService": named, "attributes": attributes});
            spec["accessLog"]["openTelemetry"] = open_telemetry;
            let host = json!({"spec": {"host": format!("{collector}.example"), "port": 4317}});
            objects.push(object("config.openservicemesh.io/v1alpha2", "ExtensionService", &collector, &host));
        }
        let name = format!("log-{number}");
        let body = json!({ "spec": spec });
        objects.push(object("policy.openservicemesh.io/v1alpha1", "Telemetry", &name, &body));
    }
    grants(accounts, objects);
}

/// An expression whose automaton, or whose complement, is large.
fn hard(random: &mut Random) -> String {
    let n = 1 + random.below(500);
    match random.below(7) {
        0 => format!("a{{0,{n}}}"),
        1 => format!("(a|b)*a(a|b){{{}}}", n % 20),
        2 => format!("[^{}]{{{n}}}", char::from(b'a' + u8::try_from(n % 26).unwrap())),
        3 => format!("({})+", (0..n % 40).map(|k| format!("x{{{k}}}")).collect::<Vec<_>>().join("|")),
        4 => (0..n % 60)
            .map(|k| format!("[a-{}]*", char::from(b'b' + u8::try_from(k % 24).unwrap())))
            .collect::<Vec<_>>()
            .concat(),
        5 => format!(
            "{}a{}",
            "(".repeat(usize::try_from(n % 90).unwrap()),
            ")?".repeat(usize::try_from(n % 90).unwrap())
        ),
        _ => format!("(?i)\\pL{{{}}}[^\\x00-\\x{{10ff}}]*", n % 30),
    }
}

fn accounts(random: &mut Random, objects: &mut Vec<Value>) {
    let count = up_to(1_500, random);
    objects.extend((0..count).map(|n| pod(n, &account(n))));
    objects.extend((0..up_to(50, random)).map(|n| service(n, &ports(2))));
    grants(count.min(up_to(150, random)), objects);
}

fn long(random: &mut Random, objects: &mut Vec<Value>) {
    let name = |n: u64, length: usize| format!("{n}-{}", "x".repeat(length - 8));
    let labels: serde_json::Map<_, _> =
        (0..up_to(200, random)).map(|n| (name(n, 60), Value::from(name(n, 60)))).collect();
    for number in 0..up_to(300, random) {
        let mut pod = pod(number, &name(number, 250));
        pod["metadata"]["labels"] = labels.clone().into();
        pod["metadata"]["name"] = name(number, 250).into();
        pod["metadata"]["annotations"] = json!({"openservicemesh.io/sidecar-injection": "y".repeat(1 << 12)});
        objects.push(pod);
        let mut service = service(number, &ports(3));
        service["metadata"]["name"] = name(number, 60).into();
        service["spec"]["selector"] = labels.clone().into();
        objects.push(service);
        let long: Vec<_> = (0..up_to(64, random))
            .map(|n| json!({"name": name(n, 200), "pathRegex": "p".repeat(1020), "unknown": "u".repeat(1 << 10)}))
            .collect();
        objects.push(group(&name(number, 250), &long));
    }
}

fn broken(random: &mut Random) -> Vec<String> {
    let n = usize::try_from(up_to(100_000, random)).unwrap();
    let mut aliases = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        writeln!(aliases, "a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 9].join(", "))
            .unwrap();
    }
    vec![
        aliases,
        "[".repeat(n),
        format!("{{apiVersion: v1, kind: Pod, metadata: {}1{}}}", "{a: ".repeat(n), "}".repeat(n)),
        "---\n- \n".repeat(n),
        "---\napiVersion: v1\nkind: Pod\n".repeat(n / 4 + 1),
        "\u{feff}\u{0}\u{1}%YAML 9.9\n".repeat(n / 10 + 1),
    ]
}
