//! The lab's kubelet and kube-proxy: follows the mesh directory, keeps the Pods it declares running, and keeps names,
//! virtual IPs and what the controller reads up to date.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::LabError;
use super::addresses::Pool;
use super::config::{self, Config};
use super::controllers::Controllers;
use super::kube_proxy;
use super::mesh_files::{Files, MeshFiles, PodStatus};
use super::names::NamespacedName;
use super::plan::{self, PodPlan};
use super::pod::{Change, Event, PodTask, Shared};
use super::publication::Publication;
use super::reports::PodInfo;
use super::state_dir::StateDir;
use super::{enter, network, process, server, virtual_ips};

/// How often the mesh directory is read. A change counts once two readings agree: editors don't write at once.
const POLL: Duration = Duration::from_millis(300);
/// One machine; each Pod in the mesh is an Envoy of 50 MB and more.
const MAX_PODS: usize = 500;
/// Files of a mesh directory, so that pointing the lab at a home directory ends in a clear line.
const MAX_FILES: usize = 10_000;
/// Events and requests wait here while the supervisor writes rules and files, which takes milliseconds.
const QUEUE: usize = 256;
/// Pods that are set up at once.
const SETUPS: usize = 4;

/// What the server asks of the supervisor.
#[derive(Debug)]
pub(super) enum Command {
    /// Read the mesh directory now, and answer when it is published.
    Sync(oneshot::Sender<Result<(), LabError>>),
    /// All Pods.
    Pods(oneshot::Sender<Vec<PodInfo>>),
    /// The process that holds a Pod's namespaces, and the Pod's user.
    Namespaces(NamespacedName, oneshot::Sender<Option<(u32, (u32, u32))>>),
    /// End the lab.
    Down,
}

struct LabPod {
    plan: PodPlan,
    incarnation: u64,
    proxy_uuid: Option<String>,
    namespaces: Option<u32>,
    running: bool,
    ready: bool,
    restarts: u64,
    problem: Option<String>,
    cancel: CancellationToken,
}

struct Supervisor {
    shared: Arc<Shared>,
    /// The directory as it was last acted upon, and as it was last read.
    acted: Files,
    seen: Files,
    mesh: MeshFiles,
    pods: BTreeMap<NamespacedName, LabPod>,
    /// Declared, but can't run: why.
    refused: BTreeMap<NamespacedName, String>,
    pod_addresses: Pool,
    service_addresses: Pool,
    virtual_ips: BTreeMap<NamespacedName, Vec<IpAddr>>,
    incarnations: u64,
    tasks: JoinSet<()>,
    /// Pods that wait for the controller to be ready; `None` once it is.
    waiting: Option<Vec<PodTask>>,
    publication: Publication,
    /// Why the last publication failed, if it did: it is tried again.
    unpublished: Option<String>,
    announced: bool,
    started: Instant,
}

/// Runs the lab until it is told to end. Standard output is for people. What it is told lies at a path that only the
/// inside of a lab has, so that nobody programs the machine's own network by running this by hand.
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
    supervisor.seen = read_source(Path::new(config::SOURCE))?;
    // The controller finds the Pods as they will be: with their addresses, and their proxies' UUIDs. What fails now
    // failed for whoever starts the lab; what fails later is one change, and no reason to end the rest.
    supervisor.change().await?;
    let (commands, command_queue) = mpsc::channel(QUEUE);
    let server = server::serve(&state, commands, Arc::clone(&controllers));
    let work = supervisor.run(event_queue, command_queue, &controllers);
    tokio::select! {
        result = server => result?,
        result = work => result?,
    }
    // In order, so that its store is closed; everything else ends with the pid namespace.
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

/// All files of the directory itself that are not hidden.
fn read_source(directory: &Path) -> Result<Files, LabError> {
    let mut files = Files::new();
    for entry in fs::read_dir(directory).map_err(LabError::file("read", directory))? {
        let path = entry.map_err(LabError::file("read", directory))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        // A file that was removed since it was listed is simply not there.
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
            acted: Files::new(),
            seen: Files::new(),
            mesh: MeshFiles::default(),
            pods: BTreeMap::new(),
            refused: BTreeMap::new(),
            pod_addresses: Pool::of_pods(),
            service_addresses: Pool::of_services(),
            virtual_ips: BTreeMap::new(),
            incarnations: 0,
            tasks: JoinSet::new(),
            waiting: Some(Vec::new()),
            publication,
            unpublished: None,
            announced: false,
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
            say("starting the controller");
            let start = controllers.start_all();
            tokio::select! {
                started = start => started?,
                _ = terminate.recv() => return Ok(()),
            }
            say("the controller is ready");
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
                    self.note(event);
                    // Many Pods start at once; one publication may serve several events.
                    while let Ok(event) = events.try_recv() {
                        self.note(event);
                    }
                    let published = self.publish().await;
                    self.say_if_failed(&published);
                    self.announce();
                }
                Some(command) = commands.recv() => {
                    if matches!(command, Command::Down) {
                        return Ok(());
                    }
                    self.serve(command).await;
                }
                _ = poll.tick() => {
                    for ended in controllers.ended() {
                        say(&ended);
                    }
                    while self.tasks.try_join_next().is_some() {}
                    let Ok(now) = read_source(Path::new(config::SOURCE)) else { continue };
                    let settled = now == self.seen;
                    self.seen = now;
                    let published = if settled && self.seen != self.acted {
                        self.change().await
                    } else if self.unpublished.is_some() {
                        self.publish().await
                    } else {
                        continue;
                    };
                    self.say_if_failed(&published);
                }
            }
        }
    }

    fn say_if_failed(&mut self, published: &Result<(), LabError>) {
        let problem = published.as_ref().err().map(|error| format!("not published: {}", error.chain()));
        if let Some(problem) = problem.as_ref().filter(|problem| self.unpublished.as_ref() != Some(problem)) {
            say(problem);
        }
        self.unpublished = problem;
    }

    async fn serve(&mut self, command: Command) {
        // Whoever asked may have gone; the answer is then nobody's.
        match command {
            Command::Sync(answer) => {
                let read = read_source(Path::new(config::SOURCE));
                let done = match read {
                    Ok(files) => {
                        self.seen = files;
                        if self.seen != self.acted {
                            self.change().await
                        } else if self.unpublished.is_some() {
                            self.publish().await
                        } else {
                            Ok(())
                        }
                    }
                    Err(error) => Err(error),
                };
                self.say_if_failed(&done);
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

    /// Takes the directory as last read for what is wanted from now on.
    fn accept(&mut self) {
        self.acted = self.seen.clone();
        let mesh = MeshFiles::parse(&self.acted);
        for problem in mesh.problems.iter().filter(|problem| !self.mesh.problems.contains(problem)) {
            say(problem);
        }
        self.mesh = mesh;
        let dual_stack = self.shared.config.dual_stack;
        self.virtual_ips = virtual_ips::assign(&mut self.service_addresses, &self.mesh.services, dual_stack);
    }

    /// Starts what is declared and does not run; ends what runs and is not declared, or not like this any more.
    fn reconcile(&mut self) {
        let wanted: Vec<NamespacedName> = self.mesh.pods.keys().cloned().collect();
        for (name, pod) in &self.pods {
            if !self.mesh.pods.contains_key(name) {
                pod.cancel.cancel();
            }
        }
        self.refused.retain(|name, _| self.mesh.pods.contains_key(name));
        for name in wanted {
            match self.plan(&name) {
                Ok(plan) => {
                    self.refused.remove(&name);
                    match self.pods.get(&name) {
                        // One that ends already is started again when it has ended.
                        Some(running) if running.plan != plan => running.cancel.cancel(),
                        Some(_) => {}
                        None => self.start(&name, plan),
                    }
                }
                Err(problem) => {
                    if let Some(running) = self.pods.get(&name) {
                        running.cancel.cancel();
                    }
                    if self.refused.insert(name.clone(), problem.clone()).as_ref() != Some(&problem) {
                        say(&format!("{name} can't run: {problem}"));
                    }
                }
            }
        }
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
        let cancel = CancellationToken::new();
        let proxy_uuid = self
            .mesh
            .pods
            .get(name)
            .filter(|_| plan.in_mesh)
            .map(|pod| plan::proxy_uuid(name, pod, incarnation));
        let task = PodTask {
            plan: plan.clone(),
            incarnation,
            proxy_uuid: proxy_uuid.clone(),
            shared: Arc::clone(&self.shared),
            cancel: cancel.clone(),
        };
        let running = LabPod {
            plan,
            incarnation,
            proxy_uuid,
            namespaces: None,
            running: false,
            ready: false,
            restarts: 0,
            problem: None,
            cancel,
        };
        self.pods.insert(name.clone(), running);
        // Its files must be there before it starts.
        let services = kube_proxy::services(&self.mesh, &self.statuses(), &self.virtual_ips);
        let addresses = &task.plan.addresses;
        self.publication.forget(name);
        if let Err(error) = self.publication.hosts(name, addresses, &services) {
            say(&format!("{name}: {}", error.chain()));
        }
        match &mut self.waiting {
            Some(waiting) => waiting.push(task),
            None => drop(self.tasks.spawn(task.run())),
        }
    }

    fn note(&mut self, event: Event) {
        let Event { pod: name, incarnation, change } = event;
        let Some(pod) = self.pods.get_mut(&name).filter(|pod| pod.incarnation == incarnation) else { return };
        match change {
            Change::Sandbox(pid) => pod.namespaces = Some(pid),
            Change::Running => {
                pod.running = true;
                pod.problem = None;
            }
            Change::Ready(ready) => {
                if pod.ready != ready {
                    say(&format!("{name} is {}", if ready { "ready" } else { "not ready" }));
                }
                pod.ready = ready;
                if ready {
                    pod.problem = None;
                }
            }
            Change::Restarted => pod.restarts += 1,
            Change::Problem(problem) => {
                if pod.problem.as_ref() != Some(&problem) {
                    say(&format!("{name}: {problem}"));
                }
                pod.problem = Some(problem);
            }
            Change::Ended => {
                self.pods.remove(&name);
                self.pod_addresses.release(&name);
                self.publication.forget(&name);
                say(&format!("{name} is gone"));
                self.reconcile();
            }
        }
    }

    /// What the kubelet says about the Pods that run and are wanted.
    fn statuses(&self) -> BTreeMap<NamespacedName, PodStatus> {
        self.pods
            .iter()
            .filter(|(_, pod)| !pod.cancel.is_cancelled())
            .map(|(name, pod)| {
                let status = PodStatus {
                    addresses: pod.plan.addresses.clone(),
                    running: pod.running,
                    ready: pod.ready,
                    proxy_uuid: pod.proxy_uuid.clone(),
                };
                (name.clone(), status)
            })
            .collect()
    }

    /// Brings everything that follows from Pods and files up to date: the controller's directory, names, rules.
    async fn publish(&mut self) -> Result<(), LabError> {
        let pods = self.statuses();
        let services = kube_proxy::services(&self.mesh, &pods, &self.virtual_ips);
        // A Pod that is made anew is another Pod: until the old one is gone, the controller sees neither. It must not
        // take the new one's declaration for the old one, whose proxy has another certificate.
        let ending = self.pods.iter().filter(|(_, pod)| pod.cancel.is_cancelled());
        let ending = ending.map(|(name, _)| name.clone()).collect();
        let files = self.mesh.publish(&pods, &ending, &self.virtual_ips, network::NODE_NAME);
        self.publication.files(files)?;
        for (name, pod) in &self.pods {
            self.publication.hosts(name, &pod.plan.addresses, &services)?;
        }
        self.publication.rules(&services).await
    }

    fn report(&self) -> Vec<PodInfo> {
        let running = self.pods.iter().map(|(name, pod)| PodInfo {
            pod: name.to_string(),
            addresses: pod.plan.addresses.clone(),
            in_mesh: pod.plan.in_mesh,
            running: pod.running,
            ready: pod.ready && !pod.cancel.is_cancelled(),
            restarts: pod.restarts,
            problem: pod.problem.clone(),
        });
        let refused = self.refused.iter().filter(|(name, _)| !self.pods.contains_key(*name));
        let refused = refused.map(|(name, problem)| PodInfo {
            pod: name.to_string(),
            addresses: Vec::new(),
            in_mesh: false,
            running: false,
            ready: false,
            restarts: 0,
            problem: Some(problem.clone()),
        });
        running.chain(refused).collect()
    }

    fn announce(&mut self) {
        let all = self.mesh.pods.len();
        if !self.announced && all > 0 && self.statuses().values().filter(|pod| pod.ready).count() == all {
            self.announced = true;
            say(&format!("up: {all} pods are ready after {:.1} s", self.started.elapsed().as_secs_f64()));
        }
    }
}

/// Tells the person who watches.
#[expect(clippy::print_stdout, reason = "standard output is the lab's interface for people")]
pub(super) fn say(line: &str) {
    println!("{line}");
}
