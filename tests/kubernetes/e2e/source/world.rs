//! Owns worlds that a seed draws: namespaces of the mesh and others, with objects of all kinds.

use std::collections::BTreeSet;

use kube::Client;
use serde_json::{Value, json};
use smc_host::env::fixed::SeededEntropy;
use smc_test_kubernetes::create_all;

use super::every_kind::{in_mesh, in_namespaces, mesh_config, namespace, object, reference};

/// The most objects of one kind in one namespace.
const MOST: u64 = 2;

/// A world that grows.
pub(super) struct World {
    draws: SeededEntropy,
    namespaces: usize,
    /// What is of the mesh.
    pub(super) objects: BTreeSet<String>,
}

impl World {
    /// A world without a namespace but that of the control plane, which is not in the mesh.
    pub(super) async fn new(client: &Client, seed: u64) -> Self {
        create_all(client, vec![namespace("own", json!({}))]).await.unwrap();
        create_all(client, vec![mesh_config()]).await.unwrap();
        let objects = BTreeSet::from(["MeshConfig own/osm-mesh-config".to_owned()]);
        Self { draws: SeededEntropy::new(seed), namespaces: 0, objects }
    }

    /// Adds namespaces until there are so many, beside that of the control plane.
    pub(super) async fn grow(&mut self, client: &Client, namespaces: usize) {
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        while self.namespaces < namespaces {
            let name = format!("n{}", self.namespaces);
            let (is_in_mesh, labels) = self.labels();
            first.push(namespace(&name, labels));
            if is_in_mesh {
                self.objects.insert(format!("Namespace {name}"));
            }
            for kind in in_namespaces() {
                for number in 0..self.draws.draw() % (MOST + 1) {
                    let object_name = format!("x{number}");
                    rest.push(object(kind, &name, &object_name));
                    if is_in_mesh {
                        self.objects.insert(reference(kind, &name, &object_name));
                    }
                }
            }
            self.namespaces += 1;
        }
        create_all(client, first).await.unwrap();
        create_all(client, rest).await.unwrap();
    }

    /// Whether the next namespace is in the mesh, and its labels. The first one is, and most others are.
    fn labels(&self) -> (bool, Value) {
        let outside = match self.draws.draw() % 8 {
            _ if self.namespaces == 0 => None,
            0 => Some(json!({})),
            1 => Some(json!({"openservicemesh.io/monitored-by": "osm"})),
            2 => Some(json!({"openservicemesh.io/monitored-by": "smc", "openservicemesh.io/ignore": "true"})),
            _ => None,
        };
        outside.map_or_else(|| (true, in_mesh()), |labels| (false, labels))
    }
}
