//! The world of a simulation: a network, replicas, Envoys, and the mesh `shop` that they serve.

use std::time::Duration;

use tokio::sync::watch;
use turmoil::{Builder, Sim};

use crate::api_server::ApiServer;
use crate::envoy::Envoy;
use crate::replica::{MeshOf, Replica, Size, host};
use crate::system_clock;
use crate::trace::Trace;

const REPLICAS: u64 = 3;

/// Envoys of the account `buyer`, enough for each replica to serve some.
const BUYERS: usize = 9;

const INITIAL_MESH: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: smc-system}
spec: {traffic: {enablePermissiveTrafficPolicyMode: true}}
";

/// A network with delays of some milliseconds, each of which follows from the seed.
pub fn network(seed: u64) -> Sim<'static> {
    Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_mins(5))
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(4))
        .enable_random_order()
        .build()
}

/// Takes a step of the simulation. Returns whether all clients have ended.
///
/// # Errors
///
/// If a client or a host has ended with an error.
pub fn step(sim: &mut Sim<'_>) -> turmoil::Result<bool> {
    system_clock::at(sim.elapsed(), || sim.step())
}

/// The hosts of one simulation, and the mesh that is declared in it.
pub struct World {
    /// What happens in it.
    pub trace: Trace,
    /// The replicas that found the group.
    pub replicas: Vec<Replica>,
    /// Another one, in a world that grows: no member, and not running.
    pub spare: Option<Replica>,
    /// One Envoy for each pod of the account `buyer`, `shop/buyer-N`.
    pub buyers: Vec<Envoy>,
    /// The API server of each replica, in a world with Kubernetes.
    pub api_servers: Vec<ApiServer>,
    mesh: Mesh,
}

/// The mesh that is declared.
enum Mesh {
    /// All replicas get it from the operator.
    Text(watch::Sender<String>),
    /// As objects of a cluster, which these API servers serve.
    Objects(Vec<ApiServer>),
}

impl Mesh {
    fn declare(&self, text: &str) {
        match self {
            Self::Text(mesh) => mesh.send_modify(|declared| *declared += text),
            Self::Objects(api_servers) => api_servers.iter().for_each(|api| api.apply(text)),
        }
    }
}

impl World {
    /// Adds replicas and Envoys to the network of `sim`; all start at once.
    pub fn new(sim: &mut Sim<'_>, seed: u64, trace: &Trace) -> Self {
        Self::of(sim, REPLICAS, Mesh::Text(watch::Sender::default()), seed, trace)
    }

    /// As [`Self::new`], with Kubernetes: each replica watches an API server of its own.
    pub fn with_kubernetes(sim: &mut Sim<'_>, seed: u64, trace: &Trace) -> Self {
        let api = |sim: &mut Sim<'_>, number| ApiServer::new(sim, number, seed.wrapping_add(number));
        let api_servers = (0..REPLICAS).map(|number| api(sim, number)).collect();
        Self::of(sim, REPLICAS, Mesh::Objects(api_servers), seed, trace)
    }

    /// As [`Self::new`], with a spare replica.
    pub fn growing(sim: &mut Sim<'_>, seed: u64, trace: &Trace) -> Self {
        Self::of(sim, REPLICAS + 1, Mesh::Text(watch::Sender::default()), seed, trace)
    }

    fn of(sim: &mut Sim<'_>, most: u64, mesh: Mesh, seed: u64, trace: &Trace) -> Self {
        let size = Size { initial: REPLICAS, most };
        let pods: String = (0..BUYERS).map(|n| pod("buyer", n)).collect();
        mesh.declare(&format!("{INITIAL_MESH}{}{pods}", account("buyer")));
        let replica = |id: u64| {
            let read = match &mesh {
                Mesh::Text(mesh) => MeshOf::Operator(mesh.subscribe()),
                Mesh::Objects(api_servers) => {
                    let id = usize::try_from(id).expect("few replicas");
                    MeshOf::ApiServer(api_servers[id].clone())
                }
            };
            Replica::new(id, size, seed, read, trace.clone())
        };
        let replicas: Vec<_> = (0..size.initial).map(replica).collect();
        let spare = (size.initial..size.most).map(replica).next();
        for replica in replicas.iter().chain(&spare) {
            let replica = replica.clone();
            sim.host(host(replica.id()), move || replica.clone().run());
        }
        let buyers: Vec<_> = (0..BUYERS).map(|n| Envoy::new(format!("buyer-{n}"), trace.clone())).collect();
        for envoy in &buyers {
            let envoy = envoy.clone();
            sim.host(envoy.name().to_owned(), move || envoy.clone().run());
        }
        let api_servers =
            if let Mesh::Objects(api_servers) = &mesh { api_servers.clone() } else { Vec::new() };
        Self { trace: trace.clone(), replicas, spare, buyers, api_servers, mesh }
    }

    /// Declares a service account with one pod, `shop/NAME-0`, to every replica.
    pub fn declare(&self, name: &str) {
        self.mesh.declare(&(account(name) + &pod(name, 0)));
    }
}

impl World {
    /// Declares a service of the buyers, which the configuration of every buyer names.
    pub fn declare_service(&self, name: &str) {
        self.mesh.declare(&service(name));
        // Kubernetes' own controller makes it, a moment later.
        self.api_servers.iter().for_each(|api| api.apply(&slice(name)));
    }

    /// Deletes a service of the buyers, in a world with Kubernetes.
    pub fn delete_service(&self, name: &str) {
        self.api_servers.iter().for_each(|api| api.remove(&(service(name) + &slice(name))));
    }

    /// Makes all API servers forget the changes until now, and breaks their connections, so that replicas
    /// must list everything again.
    pub fn compact(&self) {
        self.api_servers.iter().for_each(ApiServer::forget);
    }

    /// Puts etcd back to what it was so many changes ago. What proxies were sent before is as good as what
    /// they are sent afterwards.
    pub fn put_back(&self, changes: usize) {
        self.api_servers.iter().for_each(|api| api.put_back(changes));
        self.buyers.iter().for_each(Envoy::forgive);
    }

    /// Calls `change` for each link of a replica: those to the other replicas, and those to all Envoys.
    pub fn each_link(&self, id: u64, change: impl Fn(&str, &str)) {
        let others =
            self.replicas.iter().chain(&self.spare).map(Replica::id).filter(|other| *other != id).map(host);
        let envoys = self.buyers.iter().map(|envoy| envoy.name().to_owned());
        others.chain(envoys).for_each(|other| change(&host(id), &other));
    }
}

fn service(name: &str) -> String {
    let number: usize = name.bytes().map(usize::from).sum();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{clusterIP: 10.96.{}.{}, selector: {{app: buyer}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}\n",
        number / 200,
        1 + number % 200,
    )
}

/// The endpoints of a service of the buyers.
fn slice(name: &str) -> String {
    let endpoint = |n| {
        format!(
            "{{addresses: [{}], targetRef: {{kind: Pod, name: buyer-{n}, namespace: shop}}}}",
            ip("buyer", n)
        )
    };
    let endpoints: Vec<_> = (0..BUYERS).map(endpoint).collect();
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{}]\n",
        endpoints.join(", "),
    )
}

fn account(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n")
}

fn pod(account: &str, n: usize) -> String {
    let ip = ip(account, n);
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {account}-{n}, namespace: shop, labels: {{app: {account}}}}}\n\
         spec: {{serviceAccountName: {account}, containers: [{{name: app}}]}}\n\
         status: {{podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: \"True\"}}]}}\n"
    )
}

fn ip(account: &str, n: usize) -> String {
    format!("10.0.0.{}", account.len() * 10 + n)
}
