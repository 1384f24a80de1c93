//! The world of a simulation: a network, replicas, Envoys, and the mesh `shop` that they serve.

use std::time::Duration;

use tokio::sync::watch;
use turmoil::{Builder, Sim};

use crate::envoy::Envoy;
use crate::replica::{Replica, Size, host};
use crate::trace::Trace;

/// Replicas.
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
    mesh: watch::Sender<String>,
}

impl World {
    /// Adds replicas and Envoys to the network of `sim`; all start at once.
    pub fn new(sim: &mut Sim<'_>, seed: u64, trace: &Trace) -> Self {
        Self::of(sim, Size { initial: REPLICAS, most: REPLICAS }, seed, trace)
    }

    /// As [`Self::new`], with a spare replica.
    pub fn growing(sim: &mut Sim<'_>, seed: u64, trace: &Trace) -> Self {
        Self::of(sim, Size { initial: REPLICAS, most: REPLICAS + 1 }, seed, trace)
    }

    fn of(sim: &mut Sim<'_>, size: Size, seed: u64, trace: &Trace) -> Self {
        let pods: String = (0..BUYERS).map(|n| pod("buyer", n)).collect();
        let mesh = watch::Sender::new(format!("{INITIAL_MESH}{}{pods}", account("buyer")));
        let replica = |id| Replica::new(id, size, seed, mesh.subscribe(), trace.clone());
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
        Self { trace: trace.clone(), replicas, spare, buyers, mesh }
    }

    /// Declares a service account with one pod, `shop/NAME-0`, to every replica.
    pub fn declare(&self, name: &str) {
        self.mesh.send_modify(|text| *text += &(account(name) + &pod(name, 0)));
    }
}

impl World {
    /// Declares a service of the buyers, which the configuration of every buyer names.
    pub fn declare_service(&self, name: &str) {
        self.mesh.send_modify(|text| *text += &service(name));
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

fn account(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n")
}

fn pod(account: &str, n: usize) -> String {
    let last = account.len() * 10 + n;
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {account}-{n}, namespace: shop, labels: {{app: {account}}}}}\n\
         spec: {{serviceAccountName: {account}, containers: [{{name: app}}]}}\n\
         status: {{podIPs: [{{ip: 10.0.0.{last}}}], conditions: [{{type: Ready, status: \"True\"}}]}}\n"
    )
}
