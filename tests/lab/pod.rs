//! Owns the life of one Pod, from its namespaces to its last process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smc_sidecar::interception::PROXY_UID;
use smc_types::ids::NamespacedName;
use smc_types::ports::ADMIN_PORT;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::{self, Config};
use super::container::{Container, State};
use super::log_file::LogFile;
use super::plan::{Check, ContainerPlan, PodPlan, Probe};
use super::state_dir::StateDir;
use super::{LabError, network, process};

/// Wait before a failed setup is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Interval of bootstrap requests until the controller knows the Pod.
const BOOTSTRAP_RETRY: Duration = Duration::from_millis(200);
/// After this long without progress, the Pod reports a problem.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// Creating namespaces takes milliseconds, but longer when many Pods start on few cores.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a Pod that ends waits at most for the word that it is no endpoint any more: the lab may be unable
/// to write it.
const WITHDRAWAL: Duration = Duration::from_secs(5);
/// Capacity of the state channel; containers change state a few times a second at most.
const STATES: usize = 16;

/// Shared by all Pods.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) state: StateDir,
    pub(super) events: mpsc::Sender<Event>,
    /// Limits concurrent setups; more of them only slow each other down.
    pub(super) setups: Semaphore,
    /// Number of the next interface.
    pub(super) interfaces: AtomicU64,
}

/// A change of a Pod.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) pod: NamespacedName,
    /// The incarnation of the Pod that changed.
    pub(super) incarnation: u64,
    pub(super) change: Change,
}

/// Kind of change.
#[derive(Debug)]
pub(super) enum Change {
    /// The namespaces exist; this process holds them.
    Sandbox(u32),
    /// The containers were started.
    Running,
    /// The Pod became ready or not ready.
    Ready(bool),
    /// The mesh knows the Pod.
    Settled,
    /// A container or the proxy ended, for this reason, and will be restarted.
    Restarted(String),
    /// The Pod does not start, for this reason.
    Problem(String),
    /// Namespaces and processes are gone.
    Ended,
}

/// A Pod to run.
#[derive(Debug)]
pub(super) struct PodTask {
    pub(super) plan: PodPlan,
    pub(super) incarnation: u64,
    /// UUID in the certificate and the bootstrap of its proxy, if it has one.
    pub(super) proxy_uuid: Option<String>,
    pub(super) shared: Arc<Shared>,
    pub(super) cancel: CancellationToken,
    /// After `cancel`: the Pod is no endpoint any more, for the controller nor for the node.
    pub(super) withdrawn: CancellationToken,
}

impl PodTask {
    /// Runs the Pod until it is cancelled, and then until its processes are gone.
    pub(super) async fn run(self) {
        while !self.cancel.is_cancelled() {
            if let Err(error) = self.attempt().await {
                self.report(Change::Ready(false)).await;
                self.report(Change::Problem(error.chain())).await;
                tokio::select! {
                    () = self.cancel.cancelled() => {}
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
        self.report(Change::Ended).await;
    }

    /// Sets the Pod up, runs it, and cleans up. Returns when cancelled, or when the setup fails.
    async fn attempt(&self) -> Result<(), LabError> {
        let interface = self.shared.interfaces.fetch_add(1, Ordering::Relaxed);
        let mut pause = self.pause()?;
        let Some(pid) = pause.id() else { return Ok(()) };
        let result = tokio::select! {
            // Cancellation aborts the setup here; `serve` shuts down in order itself.
            () = self.cancel.cancelled() => Ok(()),
            result = self.set_up(&mut pause, pid, interface) => result,
        };
        let result = match result {
            Ok(()) if !self.cancel.is_cancelled() => self.serve(pid).await,
            result => result,
        };
        process::kill_namespace(pid);
        drop(pause.stdin.take());
        process::Group::of(&pause).terminate(&mut pause, RETRY).await;
        let detach = process::command("ip", &["-batch", "-"]);
        // The kernel removes the interface with the namespace, but a little later.
        let _ = process::run(detach, &network::detach(interface)).await;
        result
    }

    fn pause(&self) -> Result<Child, LabError> {
        let etc = self.shared.state.pod(&self.plan.name);
        let mut command = process::command(config::LAB, &["pause", "--etc"]);
        command.arg(etc).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map_err(|error| LabError::Command {
            command: "smc-lab pause".to_owned(),
            problem: error.to_string(),
        })
    }

    /// Connects the namespaces and programs interception.
    async fn set_up(&self, pause: &mut Child, pid: u32, interface: u64) -> Result<(), LabError> {
        // The semaphore is closed only when the lab ends; then the error does not matter.
        let _permit = self.shared.setups.acquire().await;
        let mut line = String::new();
        if let Some(stdout) = pause.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            // After a timeout the line is missing; the check below reports it.
            let _ = tokio::time::timeout(PAUSE_TIMEOUT, stdout.read_line(&mut line)).await;
        }
        if line.trim() != "ready" {
            return Err(LabError::Command {
                command: "smc-lab pause".to_owned(),
                problem: "ended before the namespaces were ready".to_owned(),
            });
        }
        let attach = network::attach(interface, pid, &self.plan.addresses);
        process::run(process::command("ip", &["-batch", "-"]), &attach).await?;
        let inside = process::command_in_pod(pid, &["ip", "-batch", "-"]);
        process::run(inside, &network::pod(&self.plan.addresses)).await?;
        self.report(Change::Sandbox(pid)).await;
        // A machine's flags come with its bootstrap.
        if !self.plan.in_mesh || self.plan.machine {
            return Ok(());
        }
        self.intercept(pid, self.plan.init_flags.iter().map(String::as_str)).await
    }

    /// Programs interception.
    async fn intercept<'a>(&self, pid: u32, flags: impl Iterator<Item = &'a str>) -> Result<(), LabError> {
        let argv: Vec<&str> = [config::SMC, "init"].into_iter().chain(flags).collect();
        let outcome = process::run(process::command_in_pod(pid, &argv), "").await;
        let mut log = self.log("init");
        match &outcome {
            Ok(printed) => log.append_line(&format!("smc init succeeded {}", printed.trim())).await,
            Err(error) => log.append_line(&error.chain()).await,
        }
        outcome.map(drop)
    }

    /// Starts the proxy, then the init containers one by one, then the containers. Stops them in
    /// reverse order, after their callers have turned to other Pods.
    async fn serve(&self, pause: u32) -> Result<(), LabError> {
        let plan = &self.plan;
        let (reports, receiver) = mpsc::channel(STATES);
        let mut watch = Watch { task: self, states: BTreeMap::new(), receiver };
        let container = |number: usize, plan: &ContainerPlan| Container {
            pause,
            plan: plan.clone(),
            log: self.log(&plan.name),
            grace: self.plan.grace,
            reports: (number, reports.clone()),
        };
        let (stop_proxy, stop_containers) = (CancellationToken::new(), CancellationToken::new());
        let mut proxy = JoinSet::new();
        let mut containers = JoinSet::new();
        let started = async {
            if plan.in_mesh {
                let envoy = container(0, &self.envoy(pause).await?);
                watch.states.insert(0, State::Waiting);
                proxy.spawn(envoy.run(stop_proxy.clone()));
                watch.until_ready(0, "Envoy").await;
            }
            for init in &plan.init_containers {
                while let Err(reason) = container(usize::MAX, init).run_once(&self.cancel).await {
                    let problem = format!("init container {} failed: {reason}", init.name);
                    self.report(Change::Problem(problem)).await;
                    tokio::time::sleep(RETRY).await;
                }
            }
            Ok(())
        };
        let started = tokio::select! {
            () = self.cancel.cancelled() => Ok(()),
            started = started => started,
        };
        if started.is_ok() && !self.cancel.is_cancelled() {
            for (number, container_plan) in (1..).zip(&plan.containers) {
                watch.states.insert(number, State::Waiting);
                containers.spawn(container(number, container_plan).run(stop_containers.clone()));
            }
            self.report(Change::Running).await;
            tokio::select! {
                () = self.drained() => {}
                () = watch.forever() => {}
            }
        }
        drop(watch);
        stop_containers.cancel();
        while containers.join_next().await.is_some() {}
        stop_proxy.cancel();
        while proxy.join_next().await.is_some() {}
        started
    }

    /// Waits for the end of the Pod, and then until its callers have turned to other Pods.
    async fn drained(&self) {
        self.cancel.cancelled().await;
        if !self.plan.drain.is_zero() {
            let _ = tokio::time::timeout(WITHDRAWAL, self.withdrawn.cancelled()).await;
            tokio::time::sleep(self.plan.drain).await;
        }
    }

    /// Gets the bootstrap from the controller, by the command that a person would use; retries until it
    /// succeeds. Returns the bootstrap.
    async fn bootstrap(&self) -> PathBuf {
        let PodPlan { name, machine, .. } = &self.plan;
        let directory = self.shared.state.pod(name);
        // `smc vm bootstrap` writes a directory.
        let (command, output, file) = if *machine {
            let output = directory.join("machine");
            (["vm", "bootstrap"], output.clone(), output.join("envoy.json"))
        } else {
            let file = directory.join("bootstrap.json");
            (["proxy", "bootstrap"], file.clone(), file)
        };
        let output = output.to_string_lossy().into_owned();
        let started = Instant::now();
        let mut reported = false;
        // Asks the replicas in turn: one may be down.
        for replica in (0..self.shared.config.replicas).cycle() {
            let admin_socket = config::admin_socket(replica);
            let pod = name.to_string();
            let variant = self.shared.config.variant.as_str();
            let flags = [&pod, "--output", &output, "--variant", variant, "--admin-socket", &admin_socket];
            let asked = process::command(config::SMC, &[&command[..], &flags].concat());
            match process::run(asked, "").await {
                Ok(_) if self.is_for_this_proxy(&file) => break,
                Err(error) if started.elapsed() > REPORT_AFTER && !reported => {
                    reported = true;
                    self.report(Change::Problem(format!("no bootstrap yet: {}", error.chain()))).await;
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(BOOTSTRAP_RETRY).await;
        }
        file
    }

    /// Gets the bootstrap, and of a machine the flags of its interception; returns the proxy to run.
    async fn envoy(&self, pid: u32) -> Result<ContainerPlan, LabError> {
        let PodPlan { name, service_account, .. } = &self.plan;
        let file = self.bootstrap().await;
        let path = file.to_string_lossy().into_owned();
        // The bootstrap holds the proxy's key, so only Envoy's user may read it.
        let uid = nix::unistd::Uid::from_raw(PROXY_UID);
        let gid = nix::unistd::Gid::from_raw(PROXY_UID);
        let directory = file.parent().filter(|_| self.plan.machine);
        for private in directory.into_iter().chain([file.as_path()]) {
            nix::unistd::chown(private, Some(uid), Some(gid))
                .map_err(|errno| LabError::file("change the owner of", private)(errno.into()))?;
        }
        if let Some(directory) = directory {
            let environment = directory.join("smc.env");
            let text = std::fs::read_to_string(&environment).map_err(LabError::file("read", &environment))?;
            let flags =
                text.lines().find_map(|line| line.strip_prefix("SMC_INIT_FLAGS=")).unwrap_or_default();
            self.intercept(pid, flags.split_whitespace()).await?;
        }
        let cluster = format!("{service_account}.{}", name.namespace());
        let mut argv: Vec<String> = [
            config::ENVOY,
            "--config-path",
            &path,
            "--service-cluster",
            &cluster,
            "--log-level",
            "info",
            // No hot restart: Envoys share the machine, and would share its memory region.
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--drain-time-s",
            "5",
        ]
        .map(str::to_owned)
        .to_vec();
        argv.extend(self.shared.config.envoy_args.iter().cloned());
        Ok(ContainerPlan {
            name: "envoy".to_owned(),
            argv,
            env: BTreeMap::from([("PATH".to_owned(), config::PATH.to_owned())]),
            uid: PROXY_UID,
            gid: PROXY_UID,
            probe: Some(Probe {
                check: Check::Http { port: ADMIN_PORT, path: "/ready".to_owned() },
                initial_delay: Duration::ZERO,
                period: Duration::from_secs(1),
                timeout: Duration::from_secs(2),
                failure_threshold: 3,
            }),
        })
    }

    /// The controller may not have seen yet that the Pod was replaced, and then answers for the
    /// previous incarnation.
    fn is_for_this_proxy(&self, bootstrap: &Path) -> bool {
        let Some(uuid) = &self.proxy_uuid else { return false };
        std::fs::read_to_string(bootstrap).is_ok_and(|text| text.contains(uuid.as_str()))
    }

    fn log(&self, container: &str) -> LogFile {
        LogFile::new(self.shared.state.pod_log(&self.plan.name, container))
    }

    async fn report(&self, change: Change) {
        let event = Event { pod: self.plan.name.clone(), incarnation: self.incarnation, change };
        // The receiver is gone only when the lab ends.
        let _ = self.shared.events.send(event).await;
    }
}

/// The states of a Pod's proxy (0) and containers (from 1), and the Pod's readiness that follows
/// from them.
struct Watch<'a> {
    task: &'a PodTask,
    states: BTreeMap<usize, State>,
    receiver: mpsc::Receiver<(usize, State)>,
}

impl Watch<'_> {
    /// Follows all states, and reports changes of the Pod's readiness.
    async fn forever(&mut self) {
        let mut ready = false;
        loop {
            let now = self.states.values().all(|state| *state == State::Ready);
            if now != ready {
                ready = now;
                self.task.report(Change::Ready(now)).await;
            }
            if !self.next().await {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until one container is ready; reports a problem if that takes long.
    async fn until_ready(&mut self, number: usize, what: &str) {
        let started = Instant::now();
        let mut reported = false;
        while self.states.get(&number) != Some(&State::Ready) {
            let timed_out = tokio::time::timeout(REPORT_AFTER, self.next()).await.is_err();
            if (timed_out || started.elapsed() > REPORT_AFTER) && !reported {
                reported = true;
                self.task.report(Change::Problem(format!("{what} is not ready yet: see its log"))).await;
            }
        }
    }

    async fn next(&mut self) -> bool {
        let Some((number, state)) = self.receiver.recv().await else { return false };
        if let State::Ended(reason) = &state {
            self.task.report(Change::Restarted(reason.clone())).await;
        }
        self.states.insert(number, state);
        true
    }
}
