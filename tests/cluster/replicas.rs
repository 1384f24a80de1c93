//! Real controllers as processes, each on a loopback address of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use smc::admin::client::{Client, connect};
use smc_proto::admin::v1 as pb;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

pub(crate) const REPLICAS: u64 = 3;
pub(crate) const PODS: u64 = 100;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A small generator of numbers (SplitMix64), so that a seed gives one schedule.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn seed() -> u64 {
        RandomState::new().build_hasher().finish()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Waits for something.
pub(crate) async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The processes. Dropping it kills them.
pub(crate) struct Replicas {
    directory: TempDir,
    /// The second and third octet of the loopback addresses, so that two runs do not meet.
    net: u64,
    running: Mutex<Vec<Option<Child>>>,
}

impl Replicas {
    pub(crate) async fn start(net: u64) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("mesh")).unwrap();
        let mut mesh = String::from(
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {openservicemesh.io/monitored-by: osm}}\n\
             ---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: buyer, namespace: shop}\n",
        );
        for pod in 0..PODS {
            write!(
                mesh,
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{pod}, namespace: shop}}\n\
                 spec: {{serviceAccountName: buyer, containers: [{{name: app, image: app}}]}}\n"
            )
            .unwrap();
        }
        std::fs::write(directory.path().join("mesh/mesh.yaml"), mesh).unwrap();
        std::fs::write(directory.path().join("kek"), "07".repeat(32)).unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(directory.path().join("kek"), closed).unwrap();
        let running = Mutex::new((0..REPLICAS).map(|_| None).collect());
        let replicas = Self { directory, net, running };
        for replica in 0..REPLICAS {
            replicas.run(replica);
        }
        replicas.settle().await;
        replicas
    }

    fn data(&self, replica: u64) -> PathBuf {
        self.directory.path().join(format!("data-{replica}"))
    }

    fn address(&self, replica: u64) -> String {
        format!("127.{}.{}.{}", 1 + (self.net >> 8) % 250, self.net & 0xff, 1 + replica)
    }

    /// Starts a replica; its log is beside its data.
    pub(crate) fn run(&self, replica: u64) {
        let log = self.directory.path().join(format!("log-{replica}"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_smc-lab")).with_file_name("smc");
        let mut command = Command::new(program);
        command
            .arg("controller")
            .arg("--mesh-dir")
            .arg(self.directory.path().join("mesh"))
            .arg("--data-dir")
            .arg(self.data(replica))
            .arg("--kek-file")
            .arg(self.directory.path().join("kek"))
            .args(["--replica-id", &replica.to_string()])
            .args(["--raft-listen", &format!("{}:15129", self.address(replica))])
            .args(["--xds-listen", &format!("{}:15128", self.address(replica))])
            .stdout(Stdio::null())
            .stderr(log);
        for founder in 0..REPLICAS {
            command.args(["--founder", &format!("{founder}={}:15129", self.address(founder))]);
        }
        let child = command.spawn().unwrap();
        let old = self.running.lock().unwrap()[usize::try_from(replica).unwrap()].replace(child);
        assert!(old.is_none(), "replica {replica} is running already");
    }

    /// `kill -9`.
    pub(crate) fn kill(&self, replica: u64) {
        let child = self.running.lock().unwrap()[usize::try_from(replica).unwrap()].take();
        let mut child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGSTOP, and SIGCONT after `span`.
    pub(crate) async fn pause(&self, replica: u64, span: Duration) {
        let pid = self.running.lock().unwrap()[usize::try_from(replica).unwrap()].as_ref().unwrap().id();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        sleep(span).await;
        kill(pid, Signal::SIGCONT).unwrap();
    }

    pub(crate) fn lose_disk(&self, replica: u64) {
        std::fs::remove_dir_all(self.data(replica)).unwrap();
    }

    async fn client(&self, replica: u64) -> Option<Client> {
        connect(&self.data(replica).join("admin.sock")).await.ok()
    }

    /// One call, which a stopped replica does not answer.
    async fn call<T>(
        &self,
        replica: u64,
        call: impl AsyncFnOnce(Client) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Option<T> {
        let asked = async { Some(call(self.client(replica).await?).await.ok()?.into_inner()) };
        timeout(Duration::from_secs(12), asked).await.ok().flatten()
    }

    /// Asks for a proxy certificate; the answer is its serial number.
    pub(crate) async fn bootstrap(&self, replica: u64, pod: u64) -> Option<String> {
        let workload = format!("shop/pod-{pod}");
        let request = pb::BootstrapRequest { workload, ..Default::default() };
        self.call(replica, async |mut client| client.bootstrap(request).await)
            .await
            .map(|answer| answer.serial)
    }

    pub(crate) async fn ca_status(&self, replica: u64) -> Option<pb::GetCaStatusResponse> {
        self.call(replica, async |mut client| client.get_ca_status(pb::GetCaStatusRequest {}).await).await
    }

    async fn status(&self, replica: u64) -> Option<pb::GetClusterStatusResponse> {
        self.call(replica, async |mut client| client.get_cluster_status(pb::GetClusterStatusRequest {}).await)
            .await
    }

    /// Hands leadership from one to the other; the answer is who leads then.
    pub(crate) async fn transfer(&self, from: u64, to: u64) -> Option<u64> {
        let request = pb::TransferLeadershipRequest { to };
        self.call(from, async |mut client| client.transfer_leadership(request).await).await?;
        self.status(to).await?.leader
    }

    /// The serial numbers of all proxy certificates that a replica knows.
    pub(crate) async fn serials(&self, replica: u64) -> BTreeSet<String> {
        let listed =
            self.call(replica, async |mut client| client.list_proxies(pb::ListProxiesRequest {}).await).await;
        let proxies = listed.unwrap_or_default().proxies;
        proxies.into_iter().flat_map(|proxy| proxy.certificates).map(|c| c.serial).collect()
    }

    /// Who leads, once all agree.
    pub(crate) async fn leader(&self) -> u64 {
        eventually("one leader", async || {
            let mut leaders = BTreeSet::new();
            for replica in 0..REPLICAS {
                leaders.insert(self.status(replica).await?.leader?);
            }
            leaders.first().copied().filter(|_| leaders.len() == 1)
        })
        .await
    }

    /// Waits until all answer, agree on a leader, and vote.
    pub(crate) async fn settle(&self) {
        let leader = self.leader().await;
        eventually("three voters", async || {
            let replicas = self.status(leader).await?.replicas;
            let voters = replicas.iter().filter(|replica| replica.voter).count() as u64;
            (voters == REPLICAS).then_some(())
        })
        .await;
    }

    /// The hash of the state, if it is the same everywhere.
    pub(crate) async fn common_state_hash(&self) -> Option<String> {
        let mut hashes = BTreeSet::new();
        for replica in 0..REPLICAS {
            hashes.insert(self.ca_status(replica).await?.state_hash);
        }
        hashes.pop_first().filter(|_| hashes.is_empty())
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for child in self.running.lock().unwrap().iter_mut().flatten() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for replica in 0..REPLICAS {
                let log = std::fs::read_to_string(self.directory.path().join(format!("log-{replica}")));
                let log = log.unwrap_or_default();
                let tail: Vec<_> = log.lines().rev().take(30).collect();
                eprintln!("--- replica {replica}, latest first:\n{}", tail.join("\n"));
            }
        }
    }
}
