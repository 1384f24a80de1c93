//! Controllers over a real API server are restarted under real Envoys with traffic, killed and in order, with
//! and without what they keep on disk: no Envoy removes anything, is sent anything that it has, or fails
//! a request. At last etcd is put back to an older copy: grants are as they were, and no other request fails.
//!
//! The lab runs the Envoys and the controllers, and the API server is beside it. `SMC_ROUNDS` asks for the
//! long run (`make restarts`), in a larger mesh.

mod lab_mesh;
mod mirror;

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use smc_lab::{Calls, FetchResult, Lab, LabOptions};
use smc_test_kubernetes::{Cluster, ClusterOptions, Programs, create_all};
use smc_testkit::envoy_log::{ENVOY_ARGS, line, streams};
use smc_testkit::eventually::{Patience, eventually};
use smc_testkit::setting::setting;
use smc_testkit::shards::ShardsReport;
use tokio::time::Instant;

use crate::shared;
use lab_mesh::{Grant, NEW, OLD, Size};
use mirror::Mirror;

/// The long run has what the issue asks for (issue 28), and the short one a minute.
const SHORT: Size = Size { namespaces: 10, services: 60, sidecars: 3 };
const LONG: Size = Size { namespaces: 50, services: 1_000, sidecars: 6 };

/// Restarts of the short run: twice of each kind.
const SHORT_ROUNDS: usize = 8;

/// How long anything may take, on a machine that may be busy compiling.
const SETTLE: Duration = Duration::from_mins(2);
const PATIENCE: Patience = Patience { limit: SETTLE, pause: Duration::from_millis(50) };

/// How long Envoys are watched after they have resumed: what was missing at first came within a second.
const AFTERWARDS: Duration = Duration::from_millis(1200);

/// What Envoy counts of changes of its configuration, and of updates that it refuses.
const COUNTERS: &str = "^(cluster_manager.cluster_(added|modified|removed)|listener_manager.listener_(added|modified|removed)|\
     .*update_rejected)$";

/// One caller, all the time. Each request has a connection of its own, so that each listener is seen.
const CALLS: [&str; 4] = ["--count", "1000000", "--interval", "20ms"];

/// How a replica ends, and whether it has its disk when it starts again.
#[derive(Debug, Clone, Copy)]
struct Restart {
    replica: u16,
    signal: Signal,
    loses_disk: bool,
}

/// The end of a log, in which each line has a time or an id of its own.
fn end(log: &str) -> String {
    let from = log.len().saturating_sub(1000);
    log.get(log.ceil_char_boundary(from)..).unwrap_or_default().to_owned()
}

/// The lab, its Envoys, and what they have logged before the present round.
struct Stage {
    lab: Lab,
    replicas: u16,
    sidecars: Vec<Sidecar>,
    _mirror: Mirror,
}

struct Sidecar {
    pod: String,
    calls: Calls,
    /// The end of its log as it was read last. The lab forgets the beginnings of long logs.
    read: String,
    counters: String,
}

impl Stage {
    async fn start(cluster: &Cluster, size: Size, replicas: u16) -> Self {
        let client = cluster.client().await.unwrap();
        let [namespaces, objects] = size.in_the_api();
        create_all(&client, namespaces).await.unwrap();
        create_all(&client, objects).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("mesh.yaml"), size.in_the_lab()).unwrap();
        let options = LabOptions {
            name: Some(format!("restarts-{}", std::process::id())),
            replicas,
            kubeconfig: Some(cluster.kubeconfig()),
            controller_args: vec!["--mesh-namespace=smc-system".to_owned()],
            envoy_args: ENVOY_ARGS.map(str::to_owned).to_vec(),
            ready_timeout: SETTLE,
            ..LabOptions::new(directory.path())
        };
        let name = options.name.clone().unwrap();
        // The Pods wait for the controllers, and these for the API server.
        let lab = async { Lab::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain())) };
        let (lab, mirror) = tokio::join!(lab, Mirror::start(&name, cluster, client));
        let mut sidecars = Vec::new();
        for number in 0..size.sidecars {
            let (pod, url) = size.call(number);
            let arguments = [&["--url", url.as_str()], &CALLS[..]].concat();
            eventually(PATIENCE, &format!("{pod} reaches {url}"), async || {
                let result = lab.get(&pod, &url).await.map_err(|error| error.chain())?;
                if result.status == Some(200) { Ok(()) } else { Err(format!("{result:?}")) }
            })
            .await;
            let mut calls = lab.call(&pod, &arguments);
            calls.more(1, SETTLE).await.unwrap();
            sidecars.push(Sidecar { pod, calls, read: String::new(), counters: String::new() });
        }
        let mut stage = Self { lab, replicas, sidecars, _mirror: mirror };
        stage.settled().await;
        tokio::time::sleep(AFTERWARDS).await;
        for number in 0..stage.sidecars.len() {
            stage.sidecars[number].read = end(&stage.log(number));
            stage.sidecars[number].counters = stage.counters(number).await;
        }
        stage
    }

    fn log(&self, number: usize) -> String {
        self.lab.logs(&self.sidecars[number].pod, "envoy").unwrap()
    }

    async fn counters(&self, number: usize) -> String {
        let path = format!("/stats?filter={}", COUNTERS.replace('|', "%7C"));
        self.lab.envoy_admin(&self.sidecars[number].pod, &path).await.unwrap().body
    }

    /// Waits until every replica is ready, and serves the sidecars that it owns.
    async fn settled(&self) {
        eventually(PATIENCE, "all sidecars served by their owners", async || {
            let output = self.lab.smc(&["cluster", "shards", "-o", "json"]).await;
            let output = output.map_err(|error| error.chain())?;
            let report: ShardsReport =
                serde_json::from_str(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?;
            // The pods that are in the API alone have owners too, and never connect.
            let settled = report.shards.iter().filter(|shard| shard.phase == "ready" && shard.to_move == 0);
            let all =
                settled.count() == usize::from(self.replicas) && report.connected() == self.sidecars.len();
            if all { Ok(()) } else { Err(output.stdout) }
        })
        .await;
    }

    /// What a replica's metrics say of the resources that it has sent since its start.
    async fn sent(&self, replica: u16) -> u64 {
        let url = format!("http://127.0.0.1:{}/metrics", 9091 + replica);
        let fetched = self.lab.exec_on_node(&["smc-lab", "fetch", "--url", &url]).await.unwrap();
        let results: serde_json::Value = serde_json::from_str(&fetched.stdout).unwrap();
        let text = results[0]["body"].as_str().unwrap_or_else(|| panic!("{results}"));
        let samples = text.lines().filter(|line| line.starts_with("smc_xds_pushed_resources_total"));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// The part of a replica's directory that is lost. A replica that is alone keeps its ledger:
    /// without it, it would be another authority.
    fn disk(&self, replica: u16) -> PathBuf {
        let name = if replica == 0 { "controller".to_owned() } else { format!("controller-{replica}") };
        let directory = self.lab.state_dir().path().join(name);
        if self.replicas == 1 { directory.join("last-known-mesh") } else { directory }
    }

    /// Restarts a replica, and asserts that no Envoy has noticed more than the end of a stream.
    async fn restart(&mut self, restart: Restart) {
        let Restart { replica, signal, loses_disk } = restart;
        self.lab.stop_replica(replica, signal).await.unwrap();
        if loses_disk {
            let disk = self.disk(replica);
            let lost =
                if disk.is_dir() { std::fs::remove_dir_all(&disk) } else { std::fs::remove_file(&disk) };
            lost.unwrap_or_else(|error| panic!("{}: {error}", disk.display()));
        }
        self.lab.start_replica(replica).await.unwrap();
        self.settled().await;
        tokio::time::sleep(AFTERWARDS).await;
        for number in 0..self.sidecars.len() {
            let log = self.log(number);
            let (_, new) = log.rsplit_once(&self.sidecars[number].read).expect("a log that is read often");
            let noticed = streams(new.lines().filter_map(line));
            let counters = self.counters(number).await;
            let sidecar = &mut self.sidecars[number];
            assert!(!noticed.is_waiting, "{restart:?}: {} has no stream", sidecar.pod);
            assert_eq!(counters, sidecar.counters, "{restart:?}: {} was changed", sidecar.pod);
            assert_eq!(noticed.resources, 0, "{restart:?}: {} was sent what it had", sidecar.pod);
            sidecar.read = end(&log);
        }
        assert_eq!(self.sent(replica).await, 0, "{restart:?}: the replica has sent what all had");
    }

    /// Waits until a grant is in force, or is not.
    async fn becomes(&self, grant: Grant, granted: bool, when: &str) {
        let (pod, url) = grant.call();
        eventually(PATIENCE, &format!("{when}: {pod} may call {url}: {granted}"), async || {
            let result = self.lab.get(&pod, &url).await.map_err(|error| error.chain())?;
            if (result.status == Some(200)) == granted { Ok(()) } else { Err(format!("{result:?}")) }
        })
        .await;
    }

    /// Puts etcd back to a copy, after which one grant was made and one was taken. Returns how long it took,
    /// from the API server's return, until both were as in the copy.
    async fn put_back(&self, cluster: &Cluster, size: Size) -> Duration {
        self.becomes(OLD, true, "before the copy").await;
        self.becomes(NEW, false, "before the copy").await;
        let copy = cluster.copy_etcd().await.unwrap();
        for (grant, grants) in [(OLD, &[][..]), (NEW, &[NEW])] {
            cluster.apply(&size.target(grant.to, grants).to_string()).await.unwrap();
        }
        self.becomes(OLD, false, "after the copy").await;
        self.becomes(NEW, true, "after the copy").await;
        cluster.put_back(&copy).await.unwrap();
        let back = Instant::now();
        self.becomes(NEW, false, "put back").await;
        self.becomes(OLD, true, "put back").await;
        back.elapsed()
    }

    /// Asserts that all requests were answered. Returns their number.
    async fn finish(self) -> usize {
        let mut count = 0;
        for mut sidecar in self.sidecars {
            sidecar.calls.more(1, SETTLE).await.unwrap();
            let results = sidecar.calls.stop();
            let is_failed = |result: &&FetchResult| result.status != Some(200);
            let failed: Vec<_> = results.iter().filter(is_failed).collect();
            let some = &failed[..failed.len().min(3)];
            assert!(
                failed.is_empty(),
                "{}: {} of {} failed: {some:?}",
                sidecar.pod,
                failed.len(),
                results.len()
            );
            count += results.len();
        }
        self.lab.stop().await.unwrap();
        count
    }
}

/// The API server, in whose place nothing else makes objects.
async fn api_server(programs: Programs) -> Cluster {
    let options = ClusterOptions { controller_manager: false, ..ClusterOptions::api_only(programs) };
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let definitions = std::path::absolute("../../charts/smc-crds/templates").unwrap().display().to_string();
    let applied = cluster.kubectl(&["apply", "--server-side", "-f", &definitions]).await.unwrap();
    assert!(applied.success(), "{}", applied.stderr);
    let established = ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
    assert!(cluster.kubectl(&established).await.unwrap().success());
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_of_controllers_take_nothing_from_any_envoy() {
    let Some(programs) = shared::programs() else { return };
    let rounds = setting("SMC_ROUNDS");
    let size = if rounds.is_some() { LONG } else { SHORT };
    let replicas = setting("SMC_REPLICAS").unwrap_or(1);
    let cluster = api_server(programs).await;
    let mut stage = Stage::start(&cluster, size, replicas).await;
    let rounds = rounds.unwrap_or(SHORT_ROUNDS);
    for round in 0..rounds {
        let replica = u16::try_from(round % usize::from(replicas)).unwrap();
        let signal = if round.is_multiple_of(2) { Signal::SIGKILL } else { Signal::SIGTERM };
        let restart = Restart { replica, signal, loses_disk: round % 4 >= 2 };
        stage.restart(restart).await;
        eprintln!("round {round}: {restart:?}: nothing was noticed");
    }
    let back = stage.put_back(&cluster, size).await;
    let requests = stage.finish().await;
    eprintln!(
        "{rounds} restarts of {replicas} replicas, {size:?}: {requests} requests, all answered; grants were as in \
         a copy of etcd {back:?} after the API server's return"
    );
    cluster.stop().await.unwrap();
}
