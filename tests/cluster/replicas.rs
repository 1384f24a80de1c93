//! Owns the controller processes of a test, each with its own loopback address.

mod measured;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use smc_host::env::Env;
use smc_host::env::fixed::SeededEntropy;
use smc_proto::admin::v1 as pb;
use smc_server::admin::client::{Client, connect};
use smc_testkit::eventually::{self, Patience};
use smc_testkit::shop;
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::api_server::ApiServer;
use crate::linearizable::State;
use crate::probe::probe;
use crate::proxy;
use crate::relay::{Link, OwnerOf, Relays};
use crate::small_disk::SmallDisk;

pub(crate) const PODS: u64 = 100;

/// Time limit of every wait, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Random numbers below a bound: a seed determines the schedule.
pub(crate) struct Random(SeededEntropy);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    pub(crate) fn seed() -> u64 {
        RandomState::new().build_hasher().finish()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.draw() % bound
    }
}

/// The loopback address of a replica.
fn address(net: u64, replica: u64) -> String {
    format!("127.{}.{}.{}", 1 + (net >> 8) % 250, net & 0xff, 1 + replica)
}

/// Finds the running replica that has a socket open.
fn owner_among(running: Running) -> OwnerOf {
    Arc::new(move |inode| {
        let socket = PathBuf::from(format!("socket:[{inode}]"));
        let has_it = |child: &Child| {
            let open = std::fs::read_dir(format!("/proc/{}/fd", child.id()));
            open.is_ok_and(|mut open| {
                open.any(|file| {
                    file.is_ok_and(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == socket))
                })
            })
        };
        let running = running.lock().unwrap();
        (0..).zip(running.iter()).find(|(_, child)| child.as_ref().is_some_and(has_it)).map(|(id, _)| id)
    })
}

/// Waits until `attempt` returns a value.
pub(crate) async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(50);
    eventually::eventually(Patience { limit: PATIENCE, pause }, what, attempt).await
}

/// An issued proxy certificate.
pub(crate) struct Issued {
    pub(crate) serial: String,
    pub(crate) bootstrap: Value,
}

/// The output of a command: standard output, or standard error if it failed.
pub(crate) type CommandOutput = Result<String, String>;

pub(crate) fn program() -> PathBuf {
    smc_lab::beside("smc").unwrap()
}

/// Writes a key-encryption key that repeats one byte, given in hexadecimal.
fn key_file(directory: &Path, name: &str, byte: &str) -> PathBuf {
    let file = directory.join(name);
    shop::key_file(&file, byte.repeat(32));
    file
}

type Running = Arc<Mutex<Vec<Option<Child>>>>;

/// The processes of a group. Dropping it kills them.
pub(crate) struct Replicas {
    pub(crate) count: u64,
    directory: TempDir,
    /// The files with the key-encryption keys: first the one to seal with, then the others.
    keys: Mutex<Vec<PathBuf>>,
    /// Selects the second and third byte of the loopback addresses, so that concurrent runs do not
    /// collide.
    net: u64,
    running: Running,
    /// The relays between the replicas.
    relays: Relays,
    /// Whether the replicas' clocks can be set.
    clocks: bool,
    /// The kubeconfig of the API server that the mesh is read from, instead of a directory.
    kubeconfig: Option<PathBuf>,
    /// Further flags of each replica.
    flags: Vec<String>,
    /// Whether the test passed, so that the logs are not printed.
    pub(crate) passed: AtomicBool,
}

impl Replicas {
    pub(crate) async fn start(count: u64, net: u64) -> Self {
        Self::start_as(count, net, false, &[], None).await
    }

    /// Starts a replica with further flags that reads the mesh from an API server, and has webhooks.
    pub(crate) async fn start_in_cluster(net: u64, api: &ApiServer, flags: &[&str]) -> Self {
        Self::start_as(1, net, false, flags, Some(api.kubeconfig.clone())).await
    }

    /// Starts replicas whose clocks can be set.
    pub(crate) async fn start_with_clocks(count: u64, net: u64) -> Self {
        Self::start_as(count, net, true, &[], None).await
    }

    /// Starts replicas with further flags.
    pub(crate) async fn start_with_flags(count: u64, net: u64, flags: &[&str]) -> Self {
        Self::start_as(count, net, false, flags, None).await
    }

    async fn start_as(
        count: u64,
        net: u64,
        clocks: bool,
        flags: &[&str],
        kubeconfig: Option<PathBuf>,
    ) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("mesh")).unwrap();
        std::fs::write(directory.path().join("mesh/mesh.yaml"), shop::manifest(PODS)).unwrap();
        let key = key_file(directory.path(), "kek", "07");
        let running: Running = Arc::new(Mutex::new((0..count).map(|_| None).collect()));
        let routes = (0..count).map(|replica| {
            let address = address(net, replica);
            (format!("{address}:15130"), format!("{address}:15129"))
        });
        let relays = Relays::start(routes.collect(), owner_among(Arc::clone(&running))).await;
        let (keys, passed) = (Mutex::new(vec![key]), AtomicBool::new(false));
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let replicas =
            Self { count, directory, keys, net, running, relays, clocks, kubeconfig, flags, passed };
        for replica in 0..count {
            replicas.run(replica);
        }
        replicas.settle().await;
        for replica in 0..count {
            replicas.ready(replica).await;
        }
        replicas
    }

    /// Writes another key-encryption key that repeats this byte; returns its file.
    pub(crate) fn new_key(&self, byte: &str) -> PathBuf {
        key_file(self.directory.path(), &format!("kek-{byte}"), byte)
    }

    /// Sets the key-encryption keys of replicas that start from now on: first the one to seal with,
    /// then the others.
    pub(crate) fn set_keys(&self, keys: &[&Path]) {
        *self.keys.lock().unwrap() = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    /// The key-encryption key to seal with.
    pub(crate) fn key(&self) -> PathBuf {
        self.keys.lock().unwrap()[0].clone()
    }

    /// A directory for a test's own files.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The data directory of a replica.
    pub(crate) fn data(&self, replica: u64) -> PathBuf {
        self.directory.path().join(format!("data-{replica}"))
    }

    fn address(&self, replica: u64) -> String {
        address(self.net, replica)
    }

    /// The address at which the other replicas reach this one.
    pub(crate) fn raft_address(&self, replica: u64) -> String {
        format!("{}:15130", self.address(replica))
    }

    /// The address at which a replica itself listens for others, behind its relay.
    pub(crate) fn raft_listener(&self, replica: u64) -> SocketAddr {
        format!("{}:15129", self.address(replica)).parse().unwrap()
    }

    /// The address of a replica's metrics and health.
    pub(crate) fn metrics(&self, replica: u64) -> SocketAddr {
        format!("{}:15127", self.address(replica)).parse().unwrap()
    }

    /// The address at which a replica answers a kubelet by gRPC.
    pub(crate) fn probes(&self, replica: u64) -> SocketAddr {
        format!("{}:15131", self.address(replica)).parse().unwrap()
    }

    /// The address at which a replica serves webhooks.
    pub(crate) fn webhooks(&self, replica: u64) -> SocketAddr {
        format!("{}:9443", self.address(replica)).parse().unwrap()
    }

    /// The address at which a replica serves proxies.
    pub(crate) fn xds(&self, replica: u64) -> SocketAddr {
        format!("{}:15128", self.address(replica)).parse().unwrap()
    }

    /// The time by the machine's clock.
    pub(crate) fn right_time() -> i64 {
        Env::system().now().0
    }

    fn clock_file(&self, replica: u64) -> PathBuf {
        self.directory.path().join(format!("clock-{replica}"))
    }

    /// Sets a replica's clock so many seconds ahead; from now on it gains so many seconds each second.
    pub(crate) fn set_clock(&self, replica: u64, ahead: i64, gains: i64) {
        let file = self.clock_file(replica);
        let new = file.with_extension("new");
        std::fs::write(&new, format!("{ahead} {gains} {}", Self::right_time())).unwrap();
        std::fs::rename(&new, &file).unwrap();
    }

    fn log(&self, replica: u64) -> PathBuf {
        self.directory.path().join(format!("log-{replica}"))
    }

    /// Starts a replica; its log is beside its data directory.
    pub(crate) fn run(&self, replica: u64) {
        self.run_with(replica, Command::new("setpriv"), &self.members());
    }

    /// Starts a replica with these initial members.
    pub(crate) fn run_with_members(&self, replica: u64, members: &[String]) {
        self.run_with(replica, Command::new("setpriv"), members);
    }

    fn members(&self) -> Vec<String> {
        (0..self.count).map(|member| format!("{member}={}", self.raft_address(member))).collect()
    }

    /// Starts a replica whose ledger is on a disk of its own.
    pub(crate) fn run_on(&self, replica: u64, disk: &SmallDisk) {
        let mut command = disk.command();
        command.arg("setpriv");
        self.run_with(replica, command, &self.members());
    }

    /// `setpriv` kills the program when the calling thread ends, however that ends. So a test must
    /// call this itself, not from a task.
    fn run_with(&self, replica: u64, mut setpriv: Command, members: &[String]) {
        let log = File::options().create(true).append(true).open(self.log(replica)).unwrap();
        let command = setpriv
            .args(["--pdeathsig", "KILL"])
            .arg(if self.clocks { smc_lab::beside("smc-wrong-clock").unwrap() } else { program() })
            .env("SMC_TEST_CLOCK", self.clock_file(replica))
            .arg("controller")
            .arg("--data-dir")
            .arg(self.data(replica))
            .args(["--replica-id", &replica.to_string()])
            .args(["--raft-listen", &format!("{}:15129", self.address(replica))])
            .args(["--xds-listen", &format!("{}:15128", self.address(replica))])
            .args(["--metrics-listen", &self.metrics(replica).to_string()])
            .args(["--probes-listen", &self.probes(replica).to_string()])
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(log);
        match &self.kubeconfig {
            None => command.arg("--mesh-dir").arg(self.directory.path().join("mesh")),
            Some(kubeconfig) => command
                .args(["--kubernetes", "--webhook-listen", &self.webhooks(replica).to_string()])
                .arg("--kubeconfig")
                .arg(kubeconfig),
        };
        for (number, key) in self.keys.lock().unwrap().iter().enumerate() {
            command.arg(if number == 0 { "--kek-file" } else { "--also-kek-file" }).arg(key);
        }
        for member in members {
            command.args(["--initial-member", member]);
        }
        let child = command.spawn().unwrap();
        let old = self.running.lock().unwrap()[usize::try_from(replica).unwrap()].replace(child);
        assert!(old.is_none(), "replica {replica} is running already");
    }

    /// Sends SIGKILL, and waits for the end.
    pub(crate) fn kill(&self, replica: u64) {
        let child = self.running.lock().unwrap()[usize::try_from(replica).unwrap()].take();
        let mut child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends SIGTERM, and does not wait for the end.
    pub(crate) fn terminate(&self, replica: u64) {
        self.signal(replica, Signal::SIGTERM);
    }

    /// Waits until a replica has ended, and with success.
    pub(crate) async fn ended(&self, replica: u64, limit: Duration) {
        assert!(self.exit_status(replica, limit).await.success(), "the replica failed");
    }

    async fn exit_status(&self, replica: u64, limit: Duration) -> ExitStatus {
        let index = usize::try_from(replica).unwrap();
        let patience = Patience { limit, pause: Duration::from_millis(20) };
        let status = eventually::eventually(patience, "the end of a replica", async || {
            self.running.lock().unwrap()[index].as_mut().unwrap().try_wait().unwrap()
        });
        let status = status.await;
        self.running.lock().unwrap()[index] = None;
        status
    }

    /// Sends SIGSTOP.
    pub(crate) fn pause(&self, replica: u64) {
        self.signal(replica, Signal::SIGSTOP);
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self, replica: u64) {
        self.signal(replica, Signal::SIGCONT);
    }

    fn signal(&self, replica: u64, signal: Signal) {
        let pid = self.running.lock().unwrap()[usize::try_from(replica).unwrap()].as_ref().unwrap().id();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Sets the state of the link between two replicas, in both directions.
    pub(crate) fn link(&self, one: u64, other: u64, link: Link) {
        self.relays.set(one, other, link);
        self.relays.set(other, one, link);
    }

    /// Sets the state of all links to a replica.
    pub(crate) fn link_to(&self, replica: u64, link: Link) {
        for other in (0..self.count).filter(|other| *other != replica) {
            self.relays.set(other, replica, link);
        }
    }

    /// The ledger's directory of a replica.
    pub(crate) fn ledger(&self, replica: u64) -> PathBuf {
        self.data(replica).join("ledger")
    }

    /// Waits until a replica fails by itself, and returns the last line of its log.
    pub(crate) async fn failure(&self, replica: u64) -> String {
        assert!(!self.exit_status(replica, PATIENCE).await.success(), "the replica ended with success");
        let log = std::fs::read_to_string(self.log(replica)).unwrap();
        log.lines().last().unwrap_or_default().to_owned()
    }

    pub(crate) fn lose_disk(&self, replica: u64) {
        std::fs::remove_dir_all(self.data(replica)).unwrap();
    }

    async fn client(&self, replica: u64) -> Option<Client> {
        connect(&self.data(replica).join("admin.sock")).await.ok()
    }

    /// Makes one call; a paused replica does not answer it.
    async fn call<T>(
        &self,
        replica: u64,
        call: impl AsyncFnOnce(Client) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Option<T> {
        let asked = async { Some(call(self.client(replica).await?).await.ok()?.into_inner()) };
        timeout(Duration::from_secs(12), asked).await.ok().flatten()
    }

    /// Requests a proxy certificate.
    pub(crate) async fn bootstrap(&self, replica: u64, pod: u64) -> Option<Issued> {
        self.bootstrap_with(replica, pod, Vec::new()).await
    }

    /// Requests a bootstrap that names all replicas.
    pub(crate) async fn bootstrap_of_all(&self, replica: u64, pod: u64) -> Option<Issued> {
        let controllers = (0..self.count).map(|replica| format!("{replica}={}", self.xds_address(replica)));
        self.bootstrap_with(replica, pod, controllers.collect()).await
    }

    async fn bootstrap_with(&self, replica: u64, pod: u64, controllers: Vec<String>) -> Option<Issued> {
        let workload = format!("shop/pod-{pod}");
        let request = pb::BootstrapRequest { workload, controllers, ..Default::default() };
        let answer = self.call(replica, async |mut client| client.bootstrap(request).await).await?;
        let bootstrap = serde_json::from_str(&answer.bootstrap).unwrap();
        Some(Issued { serial: answer.serial, bootstrap })
    }

    /// Returns true if a replica serves a proxy with this bootstrap. If false, the claim may still
    /// have taken effect.
    pub(crate) async fn is_served(&self, replica: u64, bootstrap: &Value) -> bool {
        proxy::is_served(&self.xds_address(replica), bootstrap).await
    }

    /// Releases all certificates of a pod.
    pub(crate) async fn release(&self, replica: u64, pod: u64) -> Option<()> {
        let request = pb::ReleaseProxyRequest { proxy: format!("shop/pod-{pod}"), ..Default::default() };
        self.call(replica, async |mut client| client.release_proxy(request).await).await.map(drop)
    }

    pub(crate) async fn ca_status(&self, replica: u64) -> Option<pb::GetCaStatusResponse> {
        self.call(replica, async |mut client| client.get_ca_status(pb::GetCaStatusRequest {}).await).await
    }

    /// Begins, cancels or hastens a rotation.
    pub(crate) async fn rotate_ca(
        &self,
        replica: u64,
        request: pb::RotateCaRequest,
    ) -> Option<pb::RotateCaResponse> {
        self.call(replica, async |mut client| client.rotate_ca(request).await).await
    }

    /// The state of the group, as a replica that serves sees it.
    pub(crate) async fn status(&self, replica: u64) -> Option<pb::GetClusterStatusResponse> {
        self.status_at_start(replica).await.filter(|status| status.waits_for.is_empty())
    }

    /// The state of the group, as any replica sees it.
    pub(crate) async fn status_at_start(&self, replica: u64) -> Option<pb::GetClusterStatusResponse> {
        let request = pb::GetClusterStatusRequest {};
        self.call(replica, async |mut client| client.get_cluster_status(request).await).await
    }

    /// Transfers leadership; returns the new leader.
    pub(crate) async fn transfer(&self, from: u64, to: u64) -> Option<u64> {
        let request = pb::TransferLeadershipRequest { to };
        self.call(from, async |mut client| client.transfer_leadership(request).await).await?;
        self.status(to).await?.leader
    }

    /// The state of all proxy certificates that a replica has, by serial number.
    pub(crate) async fn states(&self, replica: u64) -> BTreeMap<String, State> {
        let listed =
            self.call(replica, async |mut client| client.list_proxies(pb::ListProxiesRequest {}).await).await;
        let certificates = listed.unwrap().proxies.into_iter().flat_map(|proxy| proxy.certificates);
        let state = |certificate: &pb::ProxyCertificate| match certificate.state() {
            pb::CertificateState::Unclaimed => State::Unclaimed,
            pb::CertificateState::Claimed => State::Claimed,
            pb::CertificateState::Released => State::Released,
            pb::CertificateState::Unspecified => State::Absent,
        };
        certificates.map(|certificate| (certificate.serial.clone(), state(&certificate))).collect()
    }

    /// The leader and term that each replica knows.
    pub(crate) async fn terms(&self) -> Vec<Option<(Option<u64>, u64)>> {
        let mut terms = Vec::new();
        for replica in 0..self.count {
            terms.push(self.status(replica).await.map(|status| (status.leader, status.term)));
        }
        terms
    }

    /// The address that proxies connect to.
    pub(crate) fn xds_address(&self, replica: u64) -> String {
        format!("{}:15128", self.address(replica))
    }

    /// The proxies that a replica has an open stream of, by UUID.
    pub(crate) async fn connected(&self, replica: u64) -> BTreeSet<String> {
        let answer =
            self.call(replica, async |mut client| client.list_proxies(pb::ListProxiesRequest {}).await).await;
        let proxies = answer.map(|answer| answer.proxies).unwrap_or_default().into_iter();
        proxies.filter(|proxy| !proxy.streams.is_empty()).map(|proxy| proxy.uuid).collect()
    }

    /// Waits until all replicas agree on a leader, and returns it.
    pub(crate) async fn leader(&self) -> u64 {
        eventually("one leader", async || {
            let mut leaders = BTreeSet::new();
            for replica in 0..self.count {
                leaders.insert(self.status(replica).await?.leader?);
            }
            leaders.first().copied().filter(|_| leaders.len() == 1)
        })
        .await
    }

    /// Waits until all replicas answer, agree on a leader, and vote.
    pub(crate) async fn settle(&self) {
        let leader = self.leader().await;
        eventually("all to vote", async || {
            let replicas = self.status(leader).await?.replicas;
            let voters = replicas.iter().filter(|replica| replica.voter).count() as u64;
            (voters == self.count).then_some(())
        })
        .await;
    }

    /// Waits until a replica is ready. A replica that votes may still compile its first mesh; its port for
    /// proxies opens with it.
    pub(crate) async fn ready(&self, replica: u64) {
        eventually("a replica that is ready", async || {
            probe(self.metrics(replica), "/readyz").await.filter(|status| status.contains(" 200 ")).map(drop)
        })
        .await;
    }

    /// Runs `smc cluster`.
    pub(crate) async fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> CommandOutput {
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        let ran = spawn_blocking(move || Command::new(program()).arg("cluster").args(arguments).output());
        let Output { status, stdout, stderr } = ran.await.unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
    }

    /// Runs `smc cluster` against a replica.
    pub(crate) async fn ask(&self, replica: u64, arguments: &[&str]) -> CommandOutput {
        let socket = self.data(replica).join("admin.sock");
        let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        all.extend([OsStr::new("--admin-socket"), socket.as_os_str()]);
        self.command(&all).await
    }

    /// The hash of the state, if it is the same on all replicas.
    pub(crate) async fn common_state_hash(&self) -> Option<String> {
        let mut hashes = BTreeSet::new();
        for replica in 0..self.count {
            hashes.insert(self.ca_status(replica).await?.state_hash);
        }
        hashes.pop_first().filter(|_| hashes.is_empty())
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for child in self.running.lock().unwrap().iter_mut().flatten() {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Also printed when a task of the failed test drops this last.
        if !self.passed.load(Ordering::Relaxed) {
            for replica in 0..self.count {
                let log = std::fs::read_to_string(self.log(replica));
                let log = log.unwrap_or_default();
                let tail: Vec<_> = log.lines().rev().take(30).collect();
                eprintln!("--- replica {replica}, latest first:\n{}", tail.join("\n"));
            }
        }
    }
}
