//! Tests the lab itself, without controller and Envoy: namespaces, names, virtual IPs, live
//! changes, interception rules, and that nothing remains of it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use smc_lab::{Failure, FetchResult, Lab, LabError, LabHandle, LabOptions};
use smc_sidecar::interception::{Family, Interception, Jumps, Parameters, restore_input};
use smc_test_sandbox::DirectoryError;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

/// A namespace that is not in the mesh, a client, and a service with two servers.
const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}, {name: first, port: 9001}, {name: lines, port: 9002}]}
---
apiVersion: v1
kind: Service
metadata: {name: peers, namespace: shop}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
spec: {containers: [{name: client, command: [sleep, infinity]}]}
";

fn web(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, labels: {{app: web}}}}
spec:
  containers:
  - name: web
    command: [smc-lab, echo, --http, '8080', --tcp-server-first, '9001', --tcp, '9002']
    ports: [{{name: http, containerPort: 8080}}]
    readinessProbe: {{httpGet: {{port: http, path: /healthy}}}}
"
    )
}

fn mesh() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("shop.yaml"), SHOP).unwrap();
    for name in ["web-1", "web-2"] {
        fs::write(directory.path().join(format!("{name}.yaml")), web(name)).unwrap();
    }
    directory
}

async fn start() -> Lab {
    let directory = mesh();
    Lab::start(LabOptions::without_controller(directory.path())).await.unwrap()
}

fn pods(results: &[FetchResult]) -> Vec<String> {
    let mut pods: Vec<String> = results
        .iter()
        .map(|result| result.pod().map_or_else(|| format!("{result:?}"), str::to_owned))
        .collect();
    pods.sort();
    pods.dedup();
    pods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_talk_through_names_and_virtual_ips() {
    let lab = start().await;
    for url in ["http://web", "http://web.shop", "http://web.shop.svc/x", "http://web.shop.svc.cluster.local"]
    {
        let result = lab.get("shop/client", url).await.unwrap();
        assert_eq!(result.status, Some(200), "{url}: {result:?}");
        let client = lab.pod_ip("shop/client").await.unwrap().to_string();
        assert!(result.body["peer"].as_str().unwrap().starts_with(&client), "{result:?}");
    }
    let many = lab.fetch("shop/client", &["--url", "http://web/", "--count", "40"]).await.unwrap();
    assert_eq!(pods(&many), ["web-1", "web-2"]);
    // A Pod reaches itself through its service.
    let own = lab.fetch("shop/web-1", &["--url", "http://web/", "--count", "20"]).await.unwrap();
    assert_eq!(pods(&own), ["web-1", "web-2"]);
    assert!(own.iter().all(|result| result.error.is_none()), "{own:?}");
    // Headless: the Pods' own addresses.
    let headless = lab.get("shop/client", "http://peers:8080").await.unwrap();
    assert_eq!(headless.status, Some(200), "{headless:?}");

    let grpc =
        lab.fetch("shop/client", &["--url", "http://web/a.B/C", "--grpc", "--body", "hi"]).await.unwrap();
    assert_eq!(grpc[0].trailers["grpc-status"], "0");
    assert_eq!((&grpc[0].body["body"], &grpc[0].body["protocol"]), (&"hi".into(), &"HTTP/2".into()));
    let first = lab.tcp("shop/client", &["web:9001", "--read-first", "--send", "ping"]).await.unwrap();
    assert!(first.greeting.unwrap().contains("hello"));
    assert!(first.reply.unwrap().contains("ping"));
    let unknown = lab.tcp("shop/client", &["web-unknown:1"]).await.unwrap();
    assert_eq!((unknown.connected, unknown.failure), (false, Some(Failure::Unresolved)), "{unknown:?}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_as_the_pods_user_with_input_and_exit_status() {
    let lab = start().await;
    let sh = async |script: &str| lab.exec("shop/client", &["sh", "-c", script]).await.unwrap();
    assert_eq!(sh("id -u").await.stdout, "1001\n");
    let output = sh("echo out; echo err >&2; exit 7").await;
    assert_eq!((output.status, &*output.stdout, &*output.stderr), (7, "out\n", "err\n"));
    assert_eq!(sh("kill -TERM $$").await.status, 128 + 15);
    assert_eq!(lab.exec_as("shop/client", 1500, &["id", "-u"]).await.unwrap().stdout, "1500\n");
    let (mut stdout, input) = (Vec::new(), vec![b'x'; 1 << 20]);
    let status = lab
        .run(Some("shop/client"), None, &["cat"], &[], &*input, &mut stdout, tokio::io::sink())
        .await
        .unwrap();
    assert_eq!((status, stdout.len()), (0, input.len()));
    let error = lab.exec("shop/missing", &["true"]).await.unwrap_err();
    assert!(error.to_string().contains("shop/missing"), "{error}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_mesh_directory_are_followed() {
    let lab = start().await;
    let url = ["--url", "http://web/", "--count", "20"];
    // Adds a Pod.
    lab.apply("web-3.yaml", &web("web-3")).await.unwrap();
    lab.wait_ready("shop/web-3", SOON).await.unwrap();
    let three = lab.fetch("shop/client", &["--url", "http://web/", "--count", "60"]).await.unwrap();
    assert_eq!(pods(&three), ["web-1", "web-2", "web-3"]);
    // The published file is the one a kubelet would write.
    let published = fs::read_to_string(lab.published_dir().join("web-3.yaml")).unwrap();
    let pod: Value = serde_json::from_str(published.trim_end().trim_end_matches("---")).unwrap();
    assert_eq!(pod["status"]["podIP"], lab.pod_ip("shop/web-3").await.unwrap().to_string());
    assert_eq!(pod["status"]["conditions"][2]["status"], "True");
    // Removes a Pod: its address gets no more traffic.
    for pod in ["web-2", "web-3"] {
        lab.remove(&format!("{pod}.yaml")).await.unwrap();
        lab.wait_gone(&format!("shop/{pod}"), SOON).await.unwrap();
    }
    assert_eq!(pods(&lab.fetch("shop/client", &url).await.unwrap()), ["web-1"]);
    // Unreadable files reach the controller unchanged, and affect no other file.
    lab.apply("broken.yaml", "kind: [Pod\n\t").await.unwrap();
    assert_eq!(fs::read(lab.published_dir().join("broken.yaml")).unwrap(), b"kind: [Pod\n\t");
    // A changed Pod is replaced.
    let before = lab.pod_ip("shop/web-1").await.unwrap();
    let probes = TempDir::new().unwrap();
    fs::set_permissions(probes.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let probes = probes.path().join("probes");
    let probe = format!("exec: {{command: [sh, -c, 'echo >>{}; exit 1']}}", probes.display());
    let failing = web("web-1").replace("httpGet: {port: http, path: /healthy}", &probe);
    lab.apply("web-1.yaml", &failing).await.unwrap();
    lab.wait("shop/web-1 to be replaced", SOON, |pods| {
        pods.iter().any(|pod| pod.pod == "shop/web-1" && pod.running && pod.addresses != [before])
    })
    .await
    .unwrap();
    // Its probe always fails now: it never becomes ready, and gets no traffic.
    lab.wait("three probes", SOON, |pods| {
        assert!(pods.iter().all(|pod| pod.pod != "shop/web-1" || !pod.ready));
        fs::read(&probes).is_ok_and(|lines| lines.len() >= 3)
    })
    .await
    .unwrap();
    let result = lab.get("shop/client", "http://web/").await.unwrap();
    assert_eq!(result.status, None, "{result:?}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_ends_is_restarted_and_its_pod_is_not_ready_meanwhile() {
    let lab = start().await;
    // Kills in its own namespace only, since every Pod sees all processes.
    let script = "for p in /proc/[0-9]*; do [ \"$(readlink $p/ns/net)\" = \"$(readlink /proc/self/ns/net)\" ] && \
                  grep -q echo $p/cmdline && kill -9 ${p#/proc/}; done; true";
    lab.exec_as("shop/web-1", 0, &["sh", "-c", script]).await.unwrap();
    lab.wait("a restart", SOON, |pods| pods.iter().any(|pod| pod.pod == "shop/web-1" && pod.restarts == 1))
        .await
        .unwrap();
    lab.wait_ready("shop/web-1", SOON).await.unwrap();
    assert!(lab.logs("shop/web-1", "web").unwrap().contains("ended: signal: 9"));
    lab.stop().await.unwrap();
}

/// `echo` reports the port it was reached on, which shows where a connection went.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interception_sends_all_traffic_to_the_proxy_except_exclusions() {
    let lab = start().await;
    let server = lab.pod_ip("shop/web-1").await.unwrap();
    let own = lab.pod_ip("shop/client").await.unwrap();
    let parameters = Parameters {
        exclude_outbound_ports: vec![9001],
        exclude_inbound_ports: vec![7001],
        exclude_outbound_cidrs: vec!["10.77.0.0/16".parse().unwrap()],
        ..Parameters::default()
    };
    let interception = Interception::new(parameters).unwrap();
    // Twice: the second run must change nothing.
    let mut tables = Vec::new();
    for _ in 0..2 {
        let saved = lab.exec_as("shop/client", 0, &["iptables-save", "-t", "nat"]).await.unwrap().stdout;
        let rules = restore_input(&interception, Family::V4, Jumps::found_in(&saved));
        let restore = ["iptables-restore", "--noflush", "--wait", "5"];
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = lab
            .run(Some("shop/client"), Some(0), &restore, &[], rules.as_bytes(), &mut stdout, &mut stderr)
            .await
            .unwrap();
        assert_eq!(status, 0, "{}\n{rules}", String::from_utf8_lossy(&stderr));
        let saved = lab.exec_as("shop/client", 0, &["iptables-save", "-t", "nat"]).await.unwrap().stdout;
        let rules = saved.lines().filter(|line| line.starts_with('-')).map(str::to_owned);
        tables.push(rules.collect::<Vec<_>>());
    }
    assert_eq!(tables[0], tables[1]);

    // Stands in for the proxy's two listeners and an application, in the client's Pod.
    let handle: LabHandle = LabHandle::clone(&lab);
    let proxy = tokio::spawn(async move {
        let argv =
            ["smc-lab", "echo", "--http", "15001", "--http", "15003", "--http", "7000", "--http", "7001"];
        handle.exec_as("shop/client", 1500, &argv).await
    });
    let deadline = tokio::time::Instant::now() + SOON;
    for port in ["127.0.0.1:15001", "127.0.0.1:15003", "127.0.0.1:7000", "127.0.0.1:7001"] {
        // As root: traffic to loopback is not intercepted.
        let argv = ["smc-lab", "tcp", port];
        while !lab.exec_as("shop/client", 0, &argv).await.unwrap().success() {
            assert!(tokio::time::Instant::now() < deadline, "no program listens on {port}");
        }
    }
    let port = async |pod: &str, uid: u32, url: String| {
        let argv = ["smc-lab", "fetch", "--timeout", "2s", "--url", &url];
        let output = lab.exec_as(pod, uid, &argv).await.unwrap();
        let results: Vec<FetchResult> = serde_json::from_str(&output.stdout).unwrap();
        results[0].body.get("port").and_then(Value::as_u64)
    };
    for (what, pod, uid, url, expected) in [
        ("the application, outbound", "shop/client", 1001, format!("http://{server}:8080"), Some(15001)),
        ("root, outbound", "shop/client", 0, format!("http://{server}:8080"), Some(15001)),
        ("a virtual IP", "shop/client", 1001, "http://web".to_owned(), Some(15001)),
        ("an unused address", "shop/client", 1001, "http://10.9.9.9".to_owned(), Some(15001)),
        ("the proxy, outbound", "shop/client", 1500, format!("http://{server}:8080"), Some(8080)),
        ("an excluded port", "shop/client", 1001, format!("http://{server}:9001"), None),
        ("an excluded network", "shop/client", 1001, "http://10.77.1.1".to_owned(), None),
        ("loopback", "shop/client", 1001, "http://127.0.0.1:7000".to_owned(), Some(7000)),
        ("the application to its own address", "shop/client", 1001, format!("http://{own}:7000"), Some(7000)),
        ("the proxy to its own address", "shop/client", 1500, format!("http://{own}:7000"), Some(15003)),
        ("inbound", "shop/web-1", 1001, format!("http://{own}:7000"), Some(15003)),
        ("inbound to an excluded port", "shop/web-1", 1001, format!("http://{own}:7001"), Some(7001)),
        ("inbound to the outbound listener", "shop/web-1", 1001, format!("http://{own}:15001"), Some(15003)),
        ("inbound to the admin port", "shop/web-1", 1001, format!("http://{own}:15000"), Some(15003)),
        ("inbound to the metrics port", "shop/web-1", 1001, format!("http://{own}:15010"), None),
    ] {
        assert_eq!(port(pod, uid, url.clone()).await, expected, "{what}: {url}");
    }
    proxy.abort();
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_publication_is_reported_and_the_mesh_keeps_running() {
    let lab = start().await;
    // Blocks the path of a file that is to be published.
    let blocked = lab.published_dir().join("in-the-way.yaml");
    fs::create_dir(&blocked).unwrap();
    let error = lab.apply("in-the-way.yaml", "kind: Anything\n").await.unwrap_err().chain();
    assert!(error.contains("in-the-way.yaml"), "{error}");
    assert_eq!(lab.get("shop/client", "http://web/").await.unwrap().status, Some(200));
    fs::remove_dir(&blocked).unwrap();
    lab.sync().await.unwrap();
    assert_eq!(fs::read(&blocked).unwrap(), b"kind: Anything\n");

    // Objects that iptables would refuse are left out of its rules.
    let (namespace, name) = ("x".repeat(63), "x".repeat(253));
    let odd = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{ports: [{{port: 80, name: a}}, {{port: 81, name: b}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: slice, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: a, port: 0}}, {{name: b, port: 8081}}]
endpoints: [{{addresses: [10.1.2.3]}}]
"
    );
    lab.apply("odd.yaml", &odd).await.unwrap();
    lab.apply("web-3.yaml", &web("web-3")).await.unwrap();
    lab.wait_ready("shop/web-3", SOON).await.unwrap();
    let many = lab.fetch("shop/client", &["--url", "http://web/", "--count", "60"]).await.unwrap();
    assert_eq!(pods(&many), ["web-1", "web-2", "web-3"]);
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_a_tcp_connection_continue_in_the_background() {
    let lab = start().await;
    let args = ["--url", "http://web/", "--keep-alive", "--count", "100000", "--interval", "5ms"];
    let mut calls = lab.call("shop/client", &args);
    let mut connection = lab.connect_tcp("shop/client", "web:9002");
    for line in ["one", "two"] {
        let result = connection.send_line(line).await.unwrap();
        assert!(result.reply.as_deref().is_some_and(|reply| reply.contains(line)), "{result:?}");
    }
    calls.more(5, SOON).await.unwrap();
    for pod in ["web-1", "web-2"] {
        lab.remove(&format!("{pod}.yaml")).await.unwrap();
    }
    calls
        .until("a failure", SOON, |results| results.iter().any(|result| result.failure.is_some()))
        .await
        .unwrap();
    for pod in ["web-1", "web-2"] {
        lab.wait_gone(&format!("shop/{pod}"), SOON).await.unwrap();
    }
    let results = calls.stop();
    assert!(
        results[..5].iter().all(|result| result.connection == 1 && result.status == Some(200)),
        "{results:?}"
    );
    assert_eq!(connection.send_line("three").await.unwrap().failure, Some(Failure::Closed));
    assert!(connection.send_line("four").await.is_err(), "the client has ended");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_labs_run_at_once_and_are_isolated() {
    let (one, two) = tokio::join!(start(), start());
    assert_ne!(one.name(), two.name());
    two.remove("web-1.yaml").await.unwrap();
    two.wait_gone("shop/web-1", SOON).await.unwrap();
    assert_eq!(one.pods().await.unwrap().len(), 3);
    let address = one.pod_ip("shop/web-1").await.unwrap();
    let same = two.get("shop/client", &format!("http://{address}:8080")).await.unwrap();
    assert_eq!(same.status, None, "{same:?}");
    one.stop().await.unwrap();
    assert_eq!(two.get("shop/client", "http://web").await.unwrap().status, Some(200));
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dual_stack_pods_have_both_families() {
    let directory = mesh();
    let dual = SHOP.replace(
        "selector: {app: web}, ports: [{name",
        "ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{name",
    );
    fs::write(directory.path().join("shop.yaml"), dual).unwrap();
    let options = LabOptions { dual_stack: true, ..LabOptions::without_controller(directory.path()) };
    let lab = Lab::start(options).await.unwrap();
    let addresses = lab.pod("shop/web-1").await.unwrap().addresses;
    assert!(addresses[0].is_ipv4() && addresses[1].is_ipv6(), "{addresses:?}");
    let direct = lab.get("shop/client", &format!("http://[{}]:8080", addresses[1])).await.unwrap();
    assert_eq!(direct.pod(), Some("web-1"), "{direct:?}");
    let hosts = lab.exec("shop/client", &["cat", "/etc/hosts"]).await.unwrap().stdout;
    let v6 = hosts.lines().find(|line| line.starts_with("fd00:10:96::") && line.ends_with(" web")).unwrap();
    let virtual_ip = v6.split_whitespace().next().unwrap();
    let through =
        lab.fetch("shop/client", &["--url", &format!("http://[{virtual_ip}]/"), "--count", "20"]).await;
    assert_eq!(pods(&through.unwrap()), ["web-1", "web-2"]);
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impossible_lab_fails_with_one_line() {
    let missing = Lab::start(LabOptions::without_controller("/nowhere")).await.unwrap_err();
    assert!(missing.chain().contains("/nowhere"), "{}", missing.chain());
    let name = Some("Not A Name".to_owned());
    let invalid = Lab::start(LabOptions { name, ..LabOptions::without_controller("/") }).await.unwrap_err();
    assert!(matches!(invalid, LabError::Directory(DirectoryError::Name(_))), "{invalid:?}");
    let directory = mesh();
    let broken = web("web-1").replace("command: [smc-lab, echo,", "args: [");
    fs::write(directory.path().join("web-1.yaml"), broken).unwrap();
    let ready_timeout = Duration::from_secs(2);
    let options = LabOptions { ready_timeout, ..LabOptions::without_controller(directory.path()) };
    let error = Lab::start(options).await.unwrap_err().chain();
    assert!(error.contains("shop/web-1"), "{error}");
    let meshed = SHOP
        .replace("{name: shop}\n---", "{name: shop, labels: {openservicemesh.io/monitored-by: smc}}\n---");
    fs::write(directory.path().join("shop.yaml"), meshed).unwrap();
    let options = LabOptions { ready_timeout, ..LabOptions::without_controller(directory.path()) };
    let error = Lab::start(options).await.unwrap_err().chain();
    assert!(error.contains("without a controller"), "{error}");
}

#[test]
fn every_program_exits_with_64_for_bad_usage_and_0_for_help() {
    let lab = Path::new(env!("CARGO_BIN_EXE_smc-lab"));
    for (program, args, code) in [
        ("smc", &["--frobnicate"][..], 64),
        ("smc", &[], 64),
        ("smc", &["controller", "--data-dir", "d", "--kek-file", "k"], 64),
        (
            "smc",
            &[
                "controller",
                "--mesh-dir",
                "m",
                "--data-dir",
                "d",
                "--kek-file",
                "k",
                "--release-grace",
                "soon",
            ],
            64,
        ),
        ("smc", &["proxy", "bootstrap", "no-slash", "--admin-socket", "s"], 64),
        ("smc", &["--help"], 0),
        ("smc", &["proxy", "list", "--admin-socket", "/nowhere"], 1),
        ("smc-lab", &["--frobnicate"], 64),
        ("smc-lab", &["exec", "a/b"], 64),
        ("smc-lab", &["--help"], 0),
        ("smc-demo", &["--frobnicate"], 64),
        ("smc-demo", &["--help"], 0),
        ("smc-bookstore", &["--frobnicate"], 64),
        ("smc-bookstore", &["--help"], 0),
    ] {
        let output = Command::new(lab.with_file_name(program)).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{program} {args:?}: {output:?}");
    }
}

#[test]
fn the_inner_programs_refuse_to_run_outside_of_a_lab() {
    // The path does not exist, so that nothing happens even if the check fails.
    for (args, reason) in
        [(&["pid1", "/nowhere"][..], "first process"), (&["supervise"], "/run/smc-lab/state/config.json")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_smc-lab")).args(args).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(reason), "{args:?}: {message}");
    }
}

#[test]
fn nothing_is_left_after_the_owner_is_killed() {
    for victim in [Victim::Owner, Victim::Unshare, Victim::FirstProcess] {
        let directory = mesh();
        let name = format!("kill-{}-{}", std::process::id(), victim as u8);
        let mut owner = KillOnDrop(
            Command::new(env!("CARGO_BIN_EXE_smc-lab"))
                .args(["up", "--no-controller", "--name", &name])
                .arg(directory.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let state = std::env::temp_dir().join(format!("smc-lab-{}/{name}", nix::unistd::getuid()));
        assert!(eventually(|| all_pods_are_ready(&name)), "the lab did not come up");
        let unshare = children(owner.0.id())[0];
        let first = children(unshare)[0];
        let namespace = namespace(first, "pid").unwrap();
        let inside = || processes_in(&namespace);
        assert!(inside().len() > 5, "{:?}", inside());
        let pid = match victim {
            Victim::Owner => owner.0.id(),
            Victim::Unshare => unshare,
            Victim::FirstProcess => first,
        };
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(eventually(|| inside().is_empty()), "{victim:?}: {:?}", inside());
        owner.0.wait().unwrap();
        // The kernel ends network namespaces with their last process. After the owner's death the
        // first process removes the state directory, since no process is left outside.
        assert!(eventually(|| !state.exists()), "{victim:?}: {} is left", state.display());
    }
}

/// A child that is killed when the test ends, however it ends.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Owner,
    Unshare,
    FirstProcess,
}

fn all_pods_are_ready(name: &str) -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_smc-lab")).args(["pods", "--name", name]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().count() == 3 && text.lines().all(|line| line.contains(" ready "))
}

fn eventually(condition: impl Fn() -> bool) -> bool {
    // A minute, measured with `sleep`: this test is not async.
    (0..600).any(|_| {
        condition() || !Command::new("sleep").arg("0.1").status().is_ok_and(|status| status.success())
    })
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let parent_of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    processes().into_iter().filter(|pid| parent_of(pid) == Some(parent)).collect()
}

fn namespace(pid: u32, kind: &str) -> Option<String> {
    let link = fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns").join(kind)).ok()?;
    Some(link.to_string_lossy().into_owned())
}

fn processes_in(pid_namespace: &str) -> Vec<u32> {
    processes().into_iter().filter(|pid| namespace(*pid, "pid").as_deref() == Some(pid_namespace)).collect()
}
