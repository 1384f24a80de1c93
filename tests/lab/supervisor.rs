//! Owns the lab's kubelet and kube-proxy: follows the mesh directory, keeps its Pods running, and
//! keeps names, virtual IPs and the controller's directory up to date.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use smc_types::ids::NamespacedName;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::LabError;
use super::addresses::Pool;
use super::config::{self, Config};
use super::controllers::Controllers;
use super::kube_proxy;
use super::lab_pod::{self, LabPod};
use super::mesh_files::{Ending, Files, MeshFiles, PodStatus};
use super::plan::{self, PodPlan};
use super::pod::{Change, Event, PodTask, Shared};
use super::publication::Publication;
use super::reports::PodInfo;
use super::server::Command;
use super::settled::Expected;
use super::state_dir::StateDir;
use super::{enter, network, process, server, virtual_ips};

/// Interval at which the mesh directory is read. A change counts once two readings agree, because
/// editors replace files non-atomically.
const POLL: Duration = Duration::from_millis(300);
/// Limit of Pods on one machine; each Pod in the mesh has an Envoy of 50 MB or more.
const MAX_PODS: usize = 500;
/// Limit of files in a mesh directory. Running the lab on a home directory fails with a clear
/// error.
const MAX_FILES: usize = 10_000;
/// Capacity of the event and command channels; writing rules and files takes milliseconds.
const QUEUE: usize = 256;
/// Limit of Pods that are set up concurrently.
const SETUPS: usize = 4;

struct Supervisor {
    shared: Arc<Shared>,
    /// The directory as last applied, and as last read.
    applied: Files,
    last_read: Files,
    mesh: MeshFiles,
    pods: BTreeMap<NamespacedName, LabPod>,
    /// Declared Pods that cannot run, with the reason.
    refused: BTreeMap<NamespacedName, String>,
    pod_addresses: Pool,
    service_addresses: Pool,
    virtual_ips: BTreeMap<NamespacedName, Vec<IpAddr>>,
    incarnations: u64,
    tasks: JoinSet<()>,
    /// Pods that wait for the controller to be ready; `None` once it is.
    waiting: Option<Vec<PodTask>>,
    /// The check of the Pods that became ready last.
    settling: Option<AbortOnDropHandle<()>>,
    publication: Publication,
    /// The error of the last publication, if it failed. It is tried again.
    publish_error: Option<String>,
    printed_up: bool,
    started: Instant,
}

/// Runs the lab until SIGTERM or `Down`. Prints messages for the user on standard output. The
/// configuration has a path that exists only inside a lab, so that running this by hand does not
/// change the machine's own network.
pub async fn run() -> Result<ExitCode, LabError> {
    let state = StateDir::at(config::STATE);
    let config = Config::read(&state.config())?;
    let (events, event_queue) = mpsc::channel(QUEUE);
    let shared = Arc::new(Shared {
        config,
        state: state.clone(),
        events,
        setups: Semaphore::new(SETUPS),
        interfaces: AtomicU64::new(0),
    });
    set_up_node(shared.config.dual_stack).await?;
    let controllers = Arc::new(Controllers::new(&shared.config, &state)?);
    let mut supervisor = Supervisor::new(shared);
    supervisor.last_read = read_source(Path::new(config::SOURCE))?;
    // The controller starts with the Pods' final addresses and proxy UUIDs. An error now fails the
    // start; an error after a later change leaves the lab running.
    supervisor.change().await?;
    let (commands, command_queue) = mpsc::channel(QUEUE);
    let server = server::serve(&state, commands, Arc::clone(&controllers));
    let work = supervisor.run(event_queue, command_queue, &controllers);
    tokio::select! {
        result = server => result?,
        result = work => result?,
    }
    // The controller shuts down in order, so that its store is closed; everything else ends with
    // the pid namespace.
    controllers.stop_all().await;
    Ok(ExitCode::SUCCESS)
}

async fn set_up_node(dual_stack: bool) -> Result<(), LabError> {
    process::run(process::command("ip", &["-batch", "-"]), &network::node(dual_stack)).await?;
    for (setting, value) in network::NODE_SETTINGS {
        enter::write_setting(setting, value)?;
    }
    Ok(())
}

/// Reads all files of the directory that are not hidden, without subdirectories.
fn read_source(directory: &Path) -> Result<Files, LabError> {
    let mut files = Files::new();
    for entry in fs::read_dir(directory).map_err(LabError::file("read", directory))? {
        let path = entry.map_err(LabError::file("read", directory))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        // The file may have been removed since it was listed.
        if let Ok(bytes) = fs::read(&path) {
            files.insert(name.to_owned(), bytes);
        }
        if files.len() > MAX_FILES {
            let text = format!("more than {MAX_FILES} files");
            return Err(LabError::Invalid { what: "mesh directory", text });
        }
    }
    Ok(files)
}

impl Supervisor {
    fn new(shared: Arc<Shared>) -> Self {
        let publication = Publication::new(shared.state.clone(), shared.config.dual_stack);
        Self {
            shared,
            applied: Files::new(),
            last_read: Files::new(),
            mesh: MeshFiles::default(),
            pods: BTreeMap::new(),
            refused: BTreeMap::new(),
            pod_addresses: Pool::of_pods(),
            service_addresses: Pool::of_services(),
            virtual_ips: BTreeMap::new(),
            incarnations: 0,
            tasks: JoinSet::new(),
            waiting: Some(Vec::new()),
            settling: None,
            publication,
            publish_error: None,
            printed_up: false,
            started: Instant::now(),
        }
    }

    async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        mut commands: mpsc::Receiver<Command>,
        controllers: &Controllers,
    ) -> Result<(), LabError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| LabError::Command {
            command: "SIGTERM".to_owned(),
            problem: error.to_string(),
        })?;
        if self.shared.config.replicas > 0 {
            print_line("starting the controller");
            let start = controllers.start_all();
            tokio::select! {
                started = start => started?,
                _ = terminate.recv() => return Ok(()),
            }
            print_line("the controller is ready");
        }
        for task in self.waiting.take().into_iter().flatten() {
            self.tasks.spawn(task.run());
        }
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                Some(event) = events.recv() => {
                    self.handle(event);
                    // Many Pods start at once; one publication may serve several events.
                    while let Ok(event) = events.try_recv() {
                        self.handle(event);
                    }
                    let published = self.publish().await;
                    self.print_failure(&published);
                    self.settle();
                    self.print_when_up();
                }
                Some(command) = commands.recv() => {
                    if matches!(command, Command::Down) {
                        return Ok(());
                    }
                    self.serve(command).await;
                }
                _ = poll.tick() => {
                    for ended in controllers.ended() {
                        print_line(&ended);
                    }
                    while self.tasks.try_join_next().is_some() {}
                    self.settle();
                    let Ok(now) = read_source(Path::new(config::SOURCE)) else { continue };
                    let stable = now == self.last_read;
                    self.last_read = now;
                    let published = if stable && self.last_read != self.applied {
                        self.change().await
                    } else if self.publish_error.is_some() {
                        self.publish().await
                    } else {
                        continue;
                    };
                    self.print_failure(&published);
                }
            }
        }
    }

    fn print_failure(&mut self, published: &Result<(), LabError>) {
        let problem = published.as_ref().err().map(|error| format!("not published: {}", error.chain()));
        if let Some(problem) = problem.as_ref().filter(|problem| self.publish_error.as_ref() != Some(problem))
        {
            print_line(problem);
        }
        self.publish_error = problem;
    }

    async fn serve(&mut self, command: Command) {
        // The client may have disconnected; then the answer is dropped.
        match command {
            Command::Sync(answer) => {
                let read = read_source(Path::new(config::SOURCE));
                let done = match read {
                    Ok(files) => {
                        self.last_read = files;
                        if self.last_read != self.applied {
                            self.change().await
                        } else if self.publish_error.is_some() {
                            self.publish().await
                        } else {
                            Ok(())
                        }
                    }
                    Err(error) => Err(error),
                };
                self.print_failure(&done);
                let _ = answer.send(done);
            }
            Command::Pods(answer) => {
                let _ = answer.send(self.report());
            }
            Command::Namespaces(name, answer) => {
                let found = self.pods.get(&name).and_then(|pod| Some((pod.namespaces?, pod.plan.user())));
                let _ = answer.send(found);
            }
            Command::Down => {}
        }
    }

    async fn change(&mut self) -> Result<(), LabError> {
        self.accept();
        self.reconcile();
        self.publish().await
    }

    /// Applies the files last read as the wanted state.
    fn accept(&mut self) {
        self.applied = self.last_read.clone();
        let mesh = MeshFiles::parse_for(&self.applied, &self.shared.config.mesh_namespace());
        for problem in mesh.problems.iter().filter(|problem| !self.mesh.problems.contains(problem)) {
            print_line(problem);
        }
        self.mesh = mesh;
        let dual_stack = self.shared.config.dual_stack;
        self.virtual_ips = virtual_ips::assign(&mut self.service_addresses, &self.mesh.services, dual_stack);
    }

    /// Starts declared Pods that do not run; ends running Pods that are no longer declared, or
    /// whose plan changed.
    fn reconcile(&mut self) {
        let wanted: Vec<NamespacedName> = self.mesh.pods.keys().cloned().collect();
        for (name, pod) in &self.pods {
            if !self.mesh.pods.contains_key(name) {
                pod.cancel.cancel();
            }
        }
        self.refused.retain(|name, _| self.mesh.pods.contains_key(name));
        for name in wanted {
            let wait = self.must_wait(&name);
            match self.plan(&name) {
                Ok(plan) => {
                    self.refused.remove(&name);
                    match self.pods.get_mut(&name) {
                        Some(running) if running.plan != plan && wait => {}
                        // A Pod that is ending already is started again when it has ended.
                        Some(running) if running.plan != plan => running.cancel.cancel(),
                        Some(running) if running.cancel.is_cancelled() => {}
                        Some(running) => running.declared = self.mesh.declared(&name).cloned(),
                        None => self.start(&name, plan),
                    }
                }
                Err(problem) => {
                    if let Some(running) = self.pods.get(&name) {
                        running.cancel.cancel();
                    }
                    if self.refused.insert(name.clone(), problem.clone()).as_ref() != Some(&problem) {
                        print_line(&format!("{name} can't run: {problem}"));
                    }
                }
            }
        }
    }

    /// Returns true if a ready Pod must not be replaced yet: another one of the same Deployment is not ready.
    /// So a changed Deployment replaces its Pods one after the other.
    fn must_wait(&self, name: &NamespacedName) -> bool {
        let Some(owner) = self.mesh.owners.get(name) else { return false };
        let serves = |name: &NamespacedName| {
            self.pods.get(name).is_some_and(|pod| pod.ready && pod.settled && !pod.cancel.is_cancelled())
        };
        let mut others = self.mesh.owners.iter().filter(|(other, of)| *of == owner && *other != name);
        serves(name) && others.any(|(other, _)| !serves(other))
    }

    fn plan(&mut self, name: &NamespacedName) -> Result<PodPlan, String> {
        let Some(pod) = self.mesh.pods.get(name) else { return Err("it is not declared".to_owned()) };
        if !self.pods.contains_key(name) && self.pods.len() >= MAX_PODS {
            return Err(format!("the lab runs at most {MAX_PODS} pods"));
        }
        let (v4, v6) = self.pod_addresses.get(name).ok_or("no address is left")?;
        let addresses = if self.shared.config.dual_stack { vec![v4, v6] } else { vec![v4] };
        let plan = PodPlan::new(name, pod, &self.mesh, addresses)?;
        if plan.in_mesh && self.shared.config.replicas == 0 {
            return Err("it is in the mesh, but the lab runs without a controller".to_owned());
        }
        Ok(plan)
    }

    fn start(&mut self, name: &NamespacedName, plan: PodPlan) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let (cancel, withdrawn) = (CancellationToken::new(), CancellationToken::new());
        let proxy_uuid = self
            .mesh
            .pods
            .get(name)
            .filter(|_| plan.in_mesh)
            .map(|pod| plan::proxy_uuid(&plan.workload(), pod, incarnation));
        let task = PodTask {
            plan: plan.clone(),
            incarnation,
            proxy_uuid: proxy_uuid.clone(),
            shared: Arc::clone(&self.shared),
            cancel: cancel.clone(),
            withdrawn: withdrawn.clone(),
        };
        let declared = self.mesh.declared(name).cloned();
        let running = LabPod { proxy_uuid, withdrawn, declared, ..LabPod::new(plan, incarnation, cancel) };
        self.pods.insert(name.clone(), running);
        // The Pod's files of `/etc` must exist before it starts.
        let services = kube_proxy::services(&self.mesh, &self.statuses(), &self.virtual_ips);
        let addresses = &task.plan.addresses;
        self.publication.forget(name);
        if let Err(error) = self.publication.hosts(name, addresses, &services) {
            print_line(&format!("{name}: {}", error.chain()));
        }
        match &mut self.waiting {
            Some(waiting) => waiting.push(task),
            None => drop(self.tasks.spawn(task.run())),
        }
    }

    fn handle(&mut self, event: Event) {
        let Event { pod: name, incarnation, change } = event;
        let Some(pod) = self.pods.get_mut(&name).filter(|pod| pod.incarnation == incarnation) else { return };
        match change {
            Change::Sandbox(pid) => pod.namespaces = Some(pid),
            Change::Running => {
                pod.running = true;
                pod.problem = None;
            }
            Change::Ready(ready) => {
                if pod.settled && pod.ready != ready {
                    print_line(&format!("{name} is {}", if ready { "ready" } else { "not ready" }));
                }
                pod.ready = ready;
                if ready {
                    pod.problem = None;
                    self.reconcile();
                }
            }
            Change::Restarted(reason) => {
                pod.restarts += 1;
                if pod.last_end.as_ref() != Some(&reason) {
                    print_line(&format!("{name}: {reason}"));
                }
                pod.last_end = Some(reason);
            }
            Change::Settled => {
                if pod.ready && !pod.settled {
                    print_line(&format!("{name} is ready"));
                }
                pod.settled = true;
                // The next Pod of its Deployment may be replaced now.
                self.reconcile();
            }
            Change::Problem(problem) => {
                if pod.problem.as_ref() != Some(&problem) {
                    print_line(&format!("{name}: {problem}"));
                }
                pod.problem = Some(problem);
            }
            Change::Ended => {
                self.pods.remove(&name);
                self.pod_addresses.release(&name);
                self.publication.forget(&name);
                print_line(&format!("{name} is gone"));
                self.reconcile();
            }
        }
    }

    /// The status of the Pods that run and are wanted.
    fn statuses(&self) -> BTreeMap<NamespacedName, PodStatus> {
        let wanted = self.pods.iter().filter(|(_, pod)| !pod.cancel.is_cancelled());
        wanted.map(|(name, pod)| (name.clone(), pod.status())).collect()
    }

    /// The Pods that are ending.
    fn ending(&self) -> BTreeMap<NamespacedName, Ending> {
        let ending = self.pods.iter().filter(|(_, pod)| pod.cancel.is_cancelled());
        ending
            .filter_map(|(name, pod)| {
                Some((name.clone(), Ending { declared: pod.declared.clone()?, status: pod.status() }))
            })
            .collect()
    }

    /// Updates everything that follows from Pods and files: the controller's directory, names,
    /// rules.
    async fn publish(&mut self) -> Result<(), LabError> {
        let pods = self.statuses();
        let services = kube_proxy::services(&self.mesh, &pods, &self.virtual_ips);
        // A replaced Pod is another Pod. Until the old one is gone, the controller sees that one: it
        // must not take the new declaration for the old Pod, whose proxy has another certificate.
        let ending = self.ending();
        let files = self.mesh.publish(&pods, &ending, &self.virtual_ips, network::NODE_NAME);
        self.publication.files(files)?;
        for (name, pod) in &self.pods {
            self.publication.hosts(name, &pod.plan.addresses, &services)?;
        }
        self.publication.rules(&services).await?;
        for pod in ending.keys().filter_map(|name| self.pods.get(name)) {
            pod.withdrawn.cancel();
        }
        Ok(())
    }

    fn report(&self) -> Vec<PodInfo> {
        let running = self.pods.iter().map(|(name, pod)| pod.info(name));
        let refused = self.refused.iter().filter(|(name, _)| !self.pods.contains_key(*name));
        running.chain(refused.map(|(name, problem)| lab_pod::refused(name, problem))).collect()
    }

    /// Has the Pods that became ready checked: they are announced once their callers know them.
    fn settle(&mut self) {
        if self.settling.as_ref().is_some_and(|check| !check.is_finished()) {
            return;
        }
        let new: Vec<(NamespacedName, u64)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.ready && !pod.settled && !pod.cancel.is_cancelled())
            .map(|(name, pod)| (name.clone(), pod.incarnation))
            .collect();
        if new.is_empty() {
            return;
        }
        let services = kube_proxy::services(&self.mesh, &self.statuses(), &self.virtual_ips);
        let proxied = self.pods.iter().filter(|(_, pod)| pod.plan.in_mesh && pod.ready);
        let proxied = proxied.map(|(_, pod)| (pod.plan.workload(), pod.plan.addresses.clone())).collect();
        let expected = Expected::new(&services, &self.mesh, proxied);
        let (replicas, events) = (self.shared.config.replicas, self.shared.events.clone());
        self.settling = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            expected.reached(replicas).await;
            for (pod, incarnation) in new {
                // The receiver is gone only when the lab ends.
                let _ = events.send(Event { pod, incarnation, change: Change::Settled }).await;
            }
        })));
    }

    fn print_when_up(&mut self) {
        let all = self.mesh.pods.len();
        if !self.printed_up && all > 0 && self.report().iter().filter(|pod| pod.ready).count() == all {
            self.printed_up = true;
            print_line(&format!(
                "up: {all} pods are ready after {:.1} s",
                self.started.elapsed().as_secs_f64()
            ));
        }
    }
}

/// Prints a line for the user.
#[expect(clippy::print_stdout, reason = "standard output is the lab's interface for people")]
pub(super) fn print_line(line: &str) {
    println!("{line}");
}
