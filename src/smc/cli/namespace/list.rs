//! `smc namespace list`.
//!
//! Owns the table: which namespaces are of a mesh, or have sidecars without being of one, and what a person
//! has to do about those that are neither in nor out.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use smc_decode::core::PERMISSIVE_ANNOTATION;
use smc_kubernetes::install::check::facts::{MONITORED_BY, meshes};
use smc_kubernetes::install::check::members::sidecars_by_namespace;
use smc_types::ids::MeshName;

use super::super::table::Table;
use super::INJECTION;

/// What is known beside the namespaces themselves; `None` is what the person may not see.
struct Seen {
    /// The meshes of the cluster.
    meshes: Option<BTreeSet<String>>,
    /// How many pods have a sidecar, by namespace.
    sidecars: Option<BTreeMap<String, usize>>,
}

/// The namespaces of `mesh`, or of all meshes.
pub(super) async fn listed(client: Client, mesh: Option<&MeshName>) -> Result<String, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labelled = namespaces.list(&ListParams::default().labels(MONITORED_BY)).await?.items;
    let seen =
        Seen { meshes: meshes(&client).await.ok(), sidecars: sidecars_by_namespace(&client).await.ok() };
    Ok(table(&labelled, mesh, &seen))
}

fn table(labelled: &[Namespace], mesh: Option<&MeshName>, seen: &Seen) -> String {
    let mut table = Table::new(["NAMESPACE", "MESH", "SIDECAR INJECTION", "PERMISSIVE", "SIDECARS", "NOTE"]);
    let mut left: BTreeMap<_, _> = seen.sidecars.iter().flatten().collect();
    for namespace in labelled {
        let value = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key).cloned()).unwrap_or_default()
        };
        let metadata = &namespace.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let sidecars = left.remove(&name).copied().unwrap_or_default();
        let of = value(&metadata.labels, MONITORED_BY);
        if mesh.is_some_and(|mesh| mesh.as_str() != of) {
            continue;
        }
        let injection = value(&metadata.annotations, INJECTION);
        let note = match (&seen.meshes, &*injection, sidecars) {
            (Some(meshes), _, _) if !meshes.contains(&of) => "no mesh of this name is in the cluster",
            (_, "disabled", 1..) => "leaves the mesh: restart its pods, then smc namespace remove",
            _ => "",
        };
        let count = seen.sidecars.as_ref().map_or("unknown".to_owned(), |_| sidecars.to_string());
        let permissive = value(&metadata.annotations, PERMISSIVE_ANNOTATION);
        table.row([name, of, injection, permissive, count, note.to_owned()]);
    }
    for (name, sidecars) in left.into_iter().filter(|_| mesh.is_none()) {
        let note = "in no mesh: the calls of its sidecars fail until the pods restart";
        let none = String::new;
        table.row([name.clone(), none(), none(), none(), sidecars.to_string(), note.to_owned()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str, mesh: &str, injection: &str) -> Namespace {
        serde_json::from_value(json!({ "metadata": {
            "name": name, "labels": { MONITORED_BY: mesh }, "annotations": { INJECTION: injection },
        } }))
        .unwrap()
    }

    #[test]
    fn a_namespace_that_is_neither_in_nor_out_says_what_to_do() {
        let labelled = [
            namespace("in", "smc", "enabled"),
            namespace("leaving", "smc", "disabled"),
            namespace("bare", "smc", "disabled"),
            namespace("stray", "osm", "enabled"),
        ];
        let sidecars = [("in", 3), ("leaving", 2), ("stray", 1), ("left", 4)];
        let sidecars: BTreeMap<_, _> = sidecars.map(|(name, count)| (name.to_owned(), count)).into();
        let seen = Seen { meshes: Some(["smc".to_owned()].into()), sidecars: Some(sidecars) };
        let rows = |mesh: Option<&str>, seen: &Seen| {
            let mesh = mesh.map(|mesh| MeshName::new(mesh).unwrap());
            let text = table(&labelled, mesh.as_ref(), seen);
            let columns = |line: &str| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            text.lines().skip(1).map(columns).collect::<Vec<_>>()
        };
        assert_eq!(
            rows(None, &seen),
            [
                vec!["in", "smc", "enabled", "-", "3", "-"],
                vec![
                    "leaving",
                    "smc",
                    "disabled",
                    "-",
                    "2",
                    "leaves the mesh: restart its pods, then smc namespace remove"
                ],
                vec!["bare", "smc", "disabled", "-", "0", "-"],
                vec!["stray", "osm", "enabled", "-", "1", "no mesh of this name is in the cluster"],
                vec![
                    "left",
                    "-",
                    "-",
                    "-",
                    "4",
                    "in no mesh: the calls of its sidecars fail until the pods restart"
                ],
            ]
        );
        assert_eq!(rows(Some("smc"), &seen).len(), 3);
        let nothing = rows(None, &Seen { meshes: None, sidecars: None });
        assert_eq!(nothing.len(), 4);
        assert!(nothing.iter().all(|row| row[4] == "unknown" && row[5] == "-"), "{nothing:?}");
    }
}
