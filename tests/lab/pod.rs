//! One Pod, from its namespaces to its last process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smc_mesh::interception::ADMIN_PORT;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::{self, Config};
use super::container::{Container, State};
use super::log_file::LogFile;
use super::names::NamespacedName;
use super::plan::{Check, ContainerPlan, PodPlan, Probe};
use super::state_dir::StateDir;
use super::{LabError, network, process};

/// The user Envoy runs as, which interception leaves alone.
const ENVOY_UID: u32 = 1500;
/// A Pod that could not be set up is tried again after this long.
const RETRY: Duration = Duration::from_secs(2);
/// How often the controller is asked for a bootstrap until it knows the Pod.
const BOOTSTRAP_RETRY: Duration = Duration::from_millis(200);
/// After this long without progress, the Pod says what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Setting up a namespace takes milliseconds, but many at once on few cores take their time.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(20);
/// States wait here while the Pod reports; containers change state a few times a second at most.
const STATES: usize = 16;

/// What Pods share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) state: StateDir,
    pub(super) events: mpsc::Sender<Event>,
    /// Pods set up at the same time; more only slow each other down.
    pub(super) setups: Semaphore,
    /// Names interfaces.
    pub(super) interfaces: AtomicU64,
}

/// Something happened to a Pod.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) pod: NamespacedName,
    /// Which making of the Pod this is about.
    pub(super) incarnation: u64,
    pub(super) change: Change,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Change {
    /// Its namespaces exist, held by this process.
    Sandbox(u32),
    /// Its containers were started.
    Running,
    /// Whether it is ready now.
    Ready(bool),
    /// Something in it ended and will be started again.
    Restarted,
    /// It does not come up, because.
    Problem(String),
    /// Nothing is left of it.
    Ended,
}

/// A Pod to run.
#[derive(Debug)]
pub(super) struct PodTask {
    pub(super) plan: PodPlan,
    pub(super) incarnation: u64,
    /// In the certificate and the bootstrap of its proxy, if it has one.
    pub(super) proxy_uuid: Option<String>,
    pub(super) shared: Arc<Shared>,
    pub(super) cancel: CancellationToken,
}

impl PodTask {
    /// Runs the Pod until it is cancelled, and then until nothing of it is left.
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

    /// Sets the Pod up, runs it, and clears away what is left. Returns when cancelled or when it can't be set up.
    async fn attempt(&self) -> Result<(), LabError> {
        let interface = self.shared.interfaces.fetch_add(1, Ordering::Relaxed);
        let mut pause = self.pause()?;
        let Some(pid) = pause.id() else { return Ok(()) };
        let result = tokio::select! {
            // Setting up stops where it is; running is cancelled in order, inside.
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
        // The interface ends with the namespace anyway, a little later.
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

    /// From empty namespaces to intercepted traffic.
    async fn set_up(&self, pause: &mut Child, pid: u32, interface: u64) -> Result<(), LabError> {
        // Closed only when the lab ends, and then it does not matter.
        let _permit = self.shared.setups.acquire().await;
        let mut line = String::new();
        if let Some(stdout) = pause.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            // Late or not at all is the same: the line is not there.
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
        if !self.plan.in_mesh {
            return Ok(());
        }
        let mut argv = vec![config::SMC, "init"];
        argv.extend(self.plan.init_flags.iter().map(String::as_str));
        let outcome = process::run(process::command_in_pod(pid, &argv), "").await;
        let mut log = self.log("init");
        match &outcome {
            Ok(printed) => log.note(&format!("smc init succeeded {}", printed.trim())).await,
            Err(error) => log.note(&error.chain()).await,
        }
        outcome.map(drop)
    }

    /// Proxy first, then the init containers one by one, then the containers; at the end the other way round.
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
                let envoy = container(0, &self.envoy().await?);
                watch.states.insert(0, State::Ended);
                proxy.spawn(envoy.run(stop_proxy.clone()));
                watch.until_ready(0, "Envoy").await;
            }
            for init in &plan.init_containers {
                while !container(usize::MAX, init).run_once(&self.cancel).await {
                    self.report(Change::Problem(format!("init container {} failed", init.name))).await;
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
                watch.states.insert(number, State::Ended);
                containers.spawn(container(number, container_plan).run(stop_containers.clone()));
            }
            self.report(Change::Running).await;
            tokio::select! {
                () = self.cancel.cancelled() => {}
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

    /// Gets the bootstrap from the controller, however long that takes.
    async fn envoy(&self) -> Result<ContainerPlan, LabError> {
        let PodPlan { name, service_account, .. } = &self.plan;
        let file = self.shared.state.pod(name).join("bootstrap.json");
        let path = file.to_string_lossy().into_owned();
        let started = Instant::now();
        let mut complained = false;
        // Whichever replica answers: one may be down.
        for replica in (0..self.shared.config.replicas).cycle() {
            let admin_socket = config::admin_socket(replica);
            let pod = name.to_string();
            let variant = self.shared.config.variant.as_str();
            let command = process::command(
                config::SMC,
                &[
                    "proxy",
                    "bootstrap",
                    &pod,
                    "--output",
                    &path,
                    "--variant",
                    variant,
                    "--admin-socket",
                    &admin_socket,
                ],
            );
            match process::run(command, "").await {
                Ok(_) if self.is_for_this_proxy(&file) => break,
                Err(error) if started.elapsed() > PATIENCE && !complained => {
                    complained = true;
                    self.report(Change::Problem(format!("no bootstrap yet: {}", error.chain()))).await;
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(BOOTSTRAP_RETRY).await;
        }
        // It holds the proxy's key: for Envoy's user only.
        let uid = nix::unistd::Uid::from_raw(ENVOY_UID);
        let gid = nix::unistd::Gid::from_raw(ENVOY_UID);
        nix::unistd::chown(&file, Some(uid), Some(gid))
            .map_err(|errno| LabError::file("change the owner of", &file)(errno.into()))?;
        let cluster = format!("{service_account}.{}", name.namespace);
        let mut argv: Vec<String> = [
            config::ENVOY,
            "--config-path",
            &path,
            "--service-cluster",
            &cluster,
            "--log-level",
            "info",
            // Each Pod's Envoy is the only one it can see, and it shares no memory with the others.
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
            uid: ENVOY_UID,
            gid: ENVOY_UID,
            probe: Some(Probe {
                check: Check::Http { port: ADMIN_PORT, path: "/ready".to_owned() },
                initial_delay: Duration::ZERO,
                period: Duration::from_secs(1),
                timeout: Duration::from_secs(2),
                failure_threshold: 3,
            }),
        })
    }

    /// The controller may not have seen yet that a Pod was made anew, and then answers for the one before.
    fn is_for_this_proxy(&self, bootstrap: &Path) -> bool {
        let Some(uuid) = &self.proxy_uuid else { return false };
        std::fs::read_to_string(bootstrap).is_ok_and(|text| text.contains(uuid.as_str()))
    }

    fn log(&self, container: &str) -> LogFile {
        LogFile::new(self.shared.state.pod_log(&self.plan.name, container))
    }

    async fn report(&self, change: Change) {
        let event = Event { pod: self.plan.name.clone(), incarnation: self.incarnation, change };
        // Nobody listens any more only when the lab is ending.
        let _ = self.shared.events.send(event).await;
    }
}

/// The states of a Pod's proxy (0) and containers (from 1), and whether that makes the Pod ready.
struct Watch<'a> {
    task: &'a PodTask,
    states: BTreeMap<usize, State>,
    receiver: mpsc::Receiver<(usize, State)>,
}

impl Watch<'_> {
    /// Follows all states and reports what follows from them.
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

    /// Waits until one of them is ready, and says so if that takes long.
    async fn until_ready(&mut self, number: usize, what: &str) {
        let started = Instant::now();
        let mut complained = false;
        while self.states.get(&number) != Some(&State::Ready) {
            let silent = tokio::time::timeout(PATIENCE, self.next()).await.is_err();
            if (silent || started.elapsed() > PATIENCE) && !complained {
                complained = true;
                self.task.report(Change::Problem(format!("{what} is not ready yet: see its log"))).await;
            }
        }
    }

    async fn next(&mut self) -> bool {
        let Some((number, state)) = self.receiver.recv().await else { return false };
        self.states.insert(number, state);
        if state == State::Ended {
            self.task.report(Change::Restarted).await;
        }
        true
    }
}
