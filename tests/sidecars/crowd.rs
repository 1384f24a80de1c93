//! Owns a mesh of many sidecars, and constant traffic through all of them.

use std::time::Duration;

use smc_lab::{Calls, FetchResult, Lab, LabHandle, LabOptions};
use smc_testkit::envoy_log::ENVOY_ARGS;
use smc_testkit::eventually::{Patience, eventually};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Servers; all other sidecars are those of callers.
const SERVERS: usize = 2;

/// The pause between two requests, and between two lines, of a caller.
const INTERVAL: Duration = Duration::from_millis(200);

/// How long Envoys may take to start, and a change to be everywhere, on a busy machine.
const SETTLE: Duration = Duration::from_mins(2);
const PATIENCE: Patience = Patience { limit: SETTLE, pause: Duration::from_millis(200) };

/// A server for HTTP and TCP, and callers that may use both.
fn mesh(sidecars: usize) -> String {
    let namespace = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: \
             {{openservicemesh.io/monitored-by: smc}}\n"
        )
    };
    let pods = |namespace: &str, name: &str, replicas: usize| {
        format!(
            "---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: {namespace}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      serviceAccountName: {name}
      containers:
        - name: echo
          command: [smc-lab, echo, --http, '8080', --tcp, '7000', --name, {name}]
          readinessProbe: {{tcpSocket: {{port: 8080}}}}
"
        )
    };
    let policy = "---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: any, namespace: servers}
spec:
  matches:
    - {name: any, pathRegex: '.*', methods: ['*']}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: lines, namespace: servers}
spec:
  matches: {ports: [7000]}
";
    // A target with both kinds would limit the requests to the port of the lines.
    let target = |name: &str, kind: &str, rule: &str| {
        format!(
            "---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {{name: {name}, namespace: servers}}
spec:
  destination: {{kind: ServiceAccount, name: web, namespace: servers}}
  sources: [{{kind: ServiceAccount, name: caller, namespace: clients}}]
  rules: [{{kind: {kind}, name: {rule}}}]
"
        )
    };
    [
        namespace("clients"),
        namespace("servers"),
        pods("servers", "web", SERVERS),
        pods("clients", "caller", sidecars - SERVERS),
        service("web"),
        policy.to_owned(),
        target("requests", "HTTPRouteGroup", "any"),
        target("lines", "TCPRoute", "lines"),
    ]
    .concat()
}

/// A service of this name for the servers.
pub(crate) fn service(name: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: servers}}
spec:
  selector: {{app: web}}
  ports:
    - {{name: http, port: 80, targetPort: 8080}}
    - {{name: tcp-lines, port: 7000}}
"
    )
}

/// Starts a lab with so many sidecars, and three replicas of four.
pub(crate) async fn start(sidecars: usize) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mesh.yaml"), mesh(sidecars)).unwrap();
    let mut options = LabOptions::new(directory.path());
    options.replicas = 3;
    options.absent_replicas = 1;
    options.ready_timeout = SETTLE;
    options.envoy_args = ENVOY_ARGS.map(str::to_owned).to_vec();
    Lab::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// All pods with a sidecar, in the order of their names.
pub(crate) async fn sidecars(lab: &LabHandle) -> Vec<String> {
    let pods = lab.pods().await.unwrap().into_iter();
    pods.filter(|pod| pod.in_mesh).map(|pod| pod.pod).collect()
}

/// Waits until all callers reach a service by its name.
pub(crate) async fn all_reach(lab: &LabHandle, service: &str) {
    let url = format!("http://{service}.servers/");
    for caller in callers(lab).await {
        eventually(PATIENCE, &format!("{caller} reaches {url}"), async || {
            let result = lab.get(&caller, &url).await.map_err(|error| error.chain())?;
            if result.status == Some(200) { Ok(()) } else { Err(format!("{result:?}")) }
        })
        .await;
    }
}

async fn callers(lab: &LabHandle) -> Vec<String> {
    sidecars(lab).await.into_iter().filter(|pod| pod.starts_with("clients/")).collect()
}

/// What every caller does all the time: requests over one connection, and lines over another.
pub(crate) struct Traffic {
    requests: Vec<(String, Calls)>,
    lines: JoinSet<usize>,
    stop: watch::Sender<bool>,
}

impl Traffic {
    pub(crate) async fn start(lab: &LabHandle) -> Self {
        let interval = format!("{}ms", INTERVAL.as_millis());
        let args =
            ["--url", "http://web.servers/", "--keep-alive", "--count", "100000", "--interval", &interval];
        let stop = watch::Sender::new(false);
        let mut traffic = Self { requests: Vec::new(), lines: JoinSet::new(), stop };
        for caller in callers(lab).await {
            traffic.lines.spawn(lines(lab.clone(), caller.clone(), traffic.stop.subscribe()));
            let mut calls = lab.call(&caller, &args);
            calls.more(1, SETTLE).await.unwrap();
            traffic.requests.push((caller, calls));
        }
        traffic
    }

    /// Waits for one more request of each caller, then checks that all since the start were answered, over
    /// the first connection. Returns how many requests and lines there were.
    pub(crate) async fn assert_undisturbed(mut self) -> (usize, usize) {
        let mut requests = 0;
        for (caller, mut calls) in self.requests {
            calls.more(1, SETTLE).await.unwrap();
            let results = calls.stop();
            let good = |result: &FetchResult| result.status == Some(200) && result.connection == 1;
            let failed: Vec<_> = results.iter().filter(|result| !good(result)).take(3).collect();
            assert!(failed.is_empty(), "{caller}: {failed:?}");
            requests += results.len();
        }
        self.stop.send_replace(true);
        let mut lines = 0;
        while let Some(answered) = self.lines.join_next().await {
            lines += answered.unwrap();
        }
        (requests, lines)
    }
}

/// Sends lines over one connection until it should stop, and checks every answer. Returns how many it sent.
async fn lines(lab: LabHandle, caller: String, stop: watch::Receiver<bool>) -> usize {
    let mut connection = lab.connect_tcp(&caller, "web.servers:7000");
    let mut sent = 0;
    while !*stop.borrow() {
        let result = connection.send_line("hello").await.unwrap();
        assert!(result.failure.is_none() && result.reply.is_some(), "{caller}: line {sent}: {result:?}");
        sent += 1;
        sleep(INTERVAL).await;
    }
    sent
}
