//! A hostile namespace beside an honest one, in the mesh of a real controller: whatever the hostile one
//! declares, the other's changes arrive, the memory stays within a bound, and the controller ends when it is
//! asked to.
//!
//! `SMC_SEED` names the first mesh, and `SMC_SECONDS` says for how long to draw more (`make fuzz-cost`).

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smc_testkit::ads::{Credentials, DeltaStream, ack, subscribe};
use smc_testkit::setting::setting;
use smc_xds::resource::ResourceType;
use tokio::time::{Instant, timeout};

use crate::hostile_objects::{SHAPES, files, ordinary};
use crate::replicas::{PODS, Random, Replicas, eventually};

/// How long a run in CI draws meshes.
const SECONDS: u64 = 60;

/// Changes of the neighbour while the controller has each of them, at least.
const CHANGES: usize = 4;

/// The processor time that the controller may take for a change of the neighbour: a time on a clock would
/// measure what else the machine does. It takes 5.6 s at most on quiet cores, and up to three times that on
/// slow ones, so that it may also take so many times what it takes beside an ordinary mesh, some second.
const CHANGE: Duration = Duration::from_secs(10);
const ORDINARY: u32 = 10;

/// How long a change may take on a clock. A controller that waits takes no processor time.
const NEVER: Duration = Duration::from_mins(1);

/// How long the controller may take to end: it has nothing to hand over.
const END: Duration = Duration::from_secs(20);

/// The most memory of the controller, in KiB.
const MEMORY: u64 = 1 << 20;

/// The most bytes that a command may print of a mesh.
const PRINTED: usize = 17 << 20;

/// What a person asks of the mesh, whose answers repeat what is declared.
const QUESTIONS: [&[&str]; 4] =
    [&["mesh", "policy"], &["mesh", "services"], &["mesh", "problems"], &["proxy", "list"]];

/// The neighbour: a caller, a server, and the grant between them, or none.
fn neighbour(granted: bool) -> String {
    let mut mesh = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: pod-{PODS}, namespace: shop}}, spec: {{serviceAccountName: \
         caller, containers: [{{name: app, image: app}}]}}}}\n---\n\
         {{apiVersion: v1, kind: Pod, metadata: {{name: server, namespace: shop, labels: {{app: server}}}}, spec: \
         {{serviceAccountName: server, containers: [{{name: app, image: app}}]}}, status: {{phase: Running, podIP: \
         10.254.0.1, conditions: [{{type: Ready, status: 'True'}}]}}}}\n---\n\
         {{apiVersion: v1, kind: Service, metadata: {{name: server, namespace: shop}}, spec: {{clusterIP: 10.254.1.1, \
         selector: {{app: server}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}}}\n---\n\
         {{apiVersion: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, metadata: {{name: any, namespace: shop}}, \
         spec: {{matches: [{{name: any, methods: ['*']}}]}}}}\n"
    );
    if granted {
        mesh += "---\n{apiVersion: access.smi-spec.io/v1alpha3, kind: TrafficTarget, metadata: {name: t, namespace: \
                 shop}, spec: {destination: {kind: ServiceAccount, name: server, namespace: shop}, sources: [{kind: \
                 ServiceAccount, name: caller, namespace: shop}], rules: [{kind: HTTPRouteGroup, name: any}]}}\n";
    }
    mesh
}

/// Files appear whole in the mesh directory.
fn write(directory: &Path, name: &str, text: &str) {
    let partial = directory.join("partial");
    fs::write(&partial, text).unwrap();
    fs::rename(partial, directory.join("mesh").join(name)).unwrap();
}

/// Gives the neighbour's caller the grant, or takes it back. Returns the processor time and the time until
/// the caller has been sent it, beside such a mesh.
async fn change(replicas: &Replicas, caller: &mut Caller, beside: &str) -> (Duration, Duration) {
    let granted = !caller.granted;
    let (asked, before) = (Instant::now(), replicas.processor_time(0));
    write(replicas.directory(), "neighbour.yaml", &neighbour(granted));
    let arrived = timeout(NEVER, caller.until(granted)).await;
    let took = replicas.processor_time(0).saturating_sub(before);
    assert!(arrived.is_ok(), "beside {beside}, a change has not arrived after {took:?} of a processor");
    (took, asked.elapsed())
}

/// The sidecar of the neighbour's caller.
struct Caller {
    stream: DeltaStream,
    /// Whether it may call the server, as far as it was sent.
    granted: bool,
}

impl Caller {
    async fn connect(replicas: &Replicas) -> Self {
        let issued = eventually("a certificate", async || replicas.bootstrap(0, PODS).await).await;
        let own = Credentials::read(&issued.bootstrap.to_string()).unwrap();
        let channel = own.connect(replicas.xds_address(0)).await.unwrap();
        let all = [ResourceType::Cluster, ResourceType::Listener].map(|kind| subscribe(&own, kind, &[]));
        Self { stream: DeltaStream::open(channel, all).await.unwrap(), granted: false }
    }

    /// Returns once the caller has been sent what it may call.
    async fn until(&mut self, granted: bool) {
        const SERVER: &str = "shop/server";
        while self.granted != granted {
            let response = self.stream.next().await.unwrap().expect("the stream goes on");
            if response.type_url == ResourceType::Cluster.url() {
                self.granted |= response.resources.iter().any(|resource| resource.name.contains(SERVER));
                self.granted &= !response.removed_resources.iter().any(|name| name.contains(SERVER));
            }
            self.stream.send(ack(&response)).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_namespace_costs_its_neighbour_little() {
    let seed = setting("SMC_SEED").unwrap_or_else(|| Random::seed() >> 32);
    let limit = Duration::from_secs(setting("SMC_SECONDS").unwrap_or(SECONDS));
    let replicas = Replicas::start(1, Random::seed() & 0xffff).await;
    let directory = replicas.directory().to_owned();
    write(&directory, "neighbour.yaml", &neighbour(false));
    let mut caller = Caller::connect(&replicas).await;
    write(&directory, "evil-0.yaml", &ordinary());
    let (usual, _) = change(&replicas, &mut caller, "an ordinary mesh").await;
    let most = CHANGE.max(usual * ORDINARY);
    let (begun, mut longest, mut largest) = (Instant::now(), (Duration::ZERO, Duration::ZERO), 0);
    let mut most_printed = 0;
    let mut drawn = 0;
    // The seed names the shape as well, so that one mesh is drawn again alone.
    let skip = usize::try_from(seed % SHAPES.len() as u64).unwrap();
    for (seed, shape) in (seed..).zip(SHAPES.iter().copied().cycle().skip(skip)) {
        if begun.elapsed() > limit {
            break;
        }
        drawn += 1;
        let mut random = Random::new(seed);
        let files = files(shape, &mut random);
        let bytes: usize = files.iter().map(String::len).sum();
        let mut times = Vec::new();
        // The mesh comes in parts, with changes of the neighbour in between.
        for number in 0..CHANGES.max(files.len()) {
            if let Some(file) = files.get(number) {
                write(&directory, &format!("evil-{number}.yaml"), file);
            }
            let beside = format!("SMC_SEED={seed} {shape:?}");
            let (took, waited) = change(&replicas, &mut caller, &beside).await;
            assert!(took <= most, "{beside}: a change takes {took:?} of a processor, after {times:?}");
            times.push((took, waited));
        }
        let memory = replicas.memory(0);
        eprintln!("SMC_SEED={seed} {shape:?}: {bytes} bytes, {} MiB, {times:?}", memory >> 10);
        assert!(memory <= MEMORY, "SMC_SEED={seed} {shape:?}: {memory} KiB");
        for question in QUESTIONS {
            let printed = replicas.print(0, question).await;
            assert!(printed.len() <= PRINTED, "SMC_SEED={seed} {shape:?} {question:?}: {}", printed.len());
            most_printed = most_printed.max(printed.len());
        }
        longest = longest.max(times.into_iter().max().unwrap_or_default());
        largest = largest.max(memory);
        // Half of the meshes stay beside the next one of another shape.
        if random.below(2) == 0 {
            (0..files.len())
                .for_each(|n| fs::remove_file(directory.join(format!("mesh/evil-{n}.yaml"))).unwrap());
        }
    }
    let asked = Instant::now();
    replicas.terminate(0);
    replicas.ended(0, END).await;
    eprintln!(
        "{drawn} meshes: a change took {longest:?} of {most:?}, {} MiB at most, the end {:?}; {most_printed} bytes \
         printed",
        largest >> 10,
        asked.elapsed()
    );
    replicas.passed.store(true, Ordering::Relaxed);
}
