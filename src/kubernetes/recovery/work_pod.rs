//! The pod that works on the volume of a controller that is stopped, and the claim of such a volume.
//!
//! Owns what both are made of: the StatefulSet's own template, so that images, rights and places are those
//! of the controllers. The pod has no account: it works on its volume and calls nothing.

use serde_json::{Map, Value, json};
use smc_types::text::truncated;

use crate::install::check::stuck::stuck;
use crate::install::settings::{KEY_VOLUME, OTHER_KEY_VOLUME};

/// Where the controllers have their data and their key.
pub(super) const DATA_DIR: &str = "/var/lib/smc";
/// The file of the key.
pub(super) const KEY_FILE: &str = "/etc/smc/kek/kek";

/// The file of the other key, where one is accepted.
pub(super) const OTHER_KEY_FILE: &str = "/etc/smc/kek-also/kek";

/// What the pod has in place of a controller's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Volume {
    /// The volume of this controller.
    Of(u64),
    /// An empty directory, which goes with the pod.
    Scratch,
}

/// The container of the pod.
pub(super) const CONTAINER: &str = "smc";

/// What of the template's pod decides where a pod runs, and as whom.
const OF_THE_TEMPLATE: [&str; 6] =
    ["securityContext", "imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"];

/// The name of the claim of a controller.
pub(super) fn claim_name(ordinal: u64) -> String {
    format!("data-smc-controller-{ordinal}")
}

/// The claim of a controller as its StatefulSet would make it; `None` where controllers have no volumes.
pub(super) fn claim(set: &Value, ordinal: u64) -> Option<Value> {
    let templates = set.pointer("/spec/volumeClaimTemplates")?.as_array()?;
    let template = templates.iter().find(|claim| claim["metadata"]["name"] == "data")?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(ordinal),
            "namespace": set["metadata"]["namespace"],
            "labels": set.pointer("/spec/selector/matchLabels"),
        },
        "spec": template["spec"],
    }))
}

/// The pod that runs the program with these arguments on a volume. `stdin` says whether it reads from its
/// standard input.
pub(super) fn work_pod(set: &Value, volume: Volume, arguments: &[String], stdin: bool) -> Value {
    let template = set.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let controller = &template["containers"][0];
    let of_keys = |list: &Value| {
        let is_key = |item: &&Value| [KEY_VOLUME, OTHER_KEY_VOLUME].iter().any(|name| item["name"] == *name);
        list.as_array().into_iter().flatten().filter(is_key).cloned().collect::<Vec<_>>()
    };
    let (data, name) = match volume {
        Volume::Of(ordinal) => (
            json!({ "persistentVolumeClaim": { "claimName": claim_name(ordinal) }, "name": "data" }),
            ordinal.to_string(),
        ),
        Volume::Scratch => (json!({ "emptyDir": {}, "name": "data" }), "try".to_owned()),
    };
    let volumes: Vec<_> = [data].into_iter().chain(of_keys(&template["volumes"])).collect();
    let mounts = [json!({ "name": "data", "mountPath": DATA_DIR })];
    let mounts: Vec<_> = mounts.into_iter().chain(of_keys(&controller["volumeMounts"])).collect();
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": CONTAINER,
            "image": controller["image"],
            "imagePullPolicy": controller["imagePullPolicy"],
            "args": arguments,
            "stdin": stdin,
            "stdinOnce": stdin,
            "securityContext": controller["securityContext"],
            "resources": controller["resources"],
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    if let Some(spec) = spec.as_object_mut() {
        let kept = |field: &&str| template.get(*field).map(|value| ((*field).to_owned(), value.clone()));
        spec.extend(OF_THE_TEMPLATE.iter().filter_map(kept).collect::<Map<_, _>>());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("smc-recovery-{name}"),
            "namespace": set["metadata"]["namespace"],
            "labels": { "app.kubernetes.io/part-of": "smc", "app.kubernetes.io/component": "recovery" },
        },
        "spec": spec,
    })
}

/// What keeps the pod from running, if anything is known to: no node has its volume, as where the node of a
/// local volume is lost, or a container does not start.
pub(super) fn hindrance(pod: &Value) -> Option<String> {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let scheduled = conditions.into_iter().flatten().find(|condition| condition["type"] == "PodScheduled");
    match scheduled {
        Some(unscheduled) if unscheduled["status"] == "False" => {
            let said = unscheduled["message"].as_str().unwrap_or_default();
            Some(format!("no node can run it: {}", truncated(said, 500)))
        }
        _ => stuck(pod, |_| true),
    }
}

#[cfg(test)]
mod tests {
    use smc_types::ids::{MeshName, MeshNamespace};

    use super::*;
    use crate::install::manifests::chart_objects;
    use crate::install::settings::Settings;

    fn set(change: impl FnOnce(&mut Settings)) -> Value {
        let mut settings = Settings::new(MeshName::default(), MeshNamespace::new("smc-system").unwrap());
        change(&mut settings);
        let objects = chart_objects(&settings).unwrap();
        objects.into_iter().find(|object| object["kind"] == "StatefulSet").unwrap()
    }

    #[test]
    fn the_pod_is_one_of_the_controllers_but_without_an_account() {
        let set = set(|settings| settings.other_key = Some("smc-kek-2".to_owned()));
        let pod = work_pod(&set, Volume::Of(2), &["cluster".to_owned()], true);
        let controller = &set["spec"]["template"]["spec"];
        assert_eq!(pod["spec"]["securityContext"], controller["securityContext"]);
        let container = &pod["spec"]["containers"][0];
        for field in ["image", "securityContext", "resources"] {
            assert_eq!(container[field], controller["containers"][0][field], "{field}");
        }
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-smc-controller-2");
        assert_eq!(pod["spec"]["volumes"][1]["secret"]["secretName"], "smc-kek");
        assert_eq!(pod["spec"]["volumes"][2]["secret"]["secretName"], "smc-kek-2");
        let tried = work_pod(&set, Volume::Scratch, &[], true);
        assert_eq!(tried["spec"]["volumes"][0], json!({ "name": "data", "emptyDir": {} }));
        // The controllers' own mounts of all.
        let mounts = controller["containers"][0]["volumeMounts"].as_array().unwrap();
        for mount in container["volumeMounts"].as_array().unwrap() {
            assert!(mounts.contains(mount), "{mount}");
        }
        let selector = &set["spec"]["selector"]["matchLabels"];
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let chosen = selector.as_object().unwrap().iter().all(|(key, value)| labels.get(key) == Some(value));
        assert!(!chosen, "no Service leads to it");
    }

    #[test]
    fn a_pod_without_a_node_or_an_image_says_what_it_waits_for() {
        let scheduled = |status: &str, message: &str| {
            let condition = json!({ "type": "PodScheduled", "status": status, "message": message });
            json!({ "status": { "phase": "Pending", "conditions": [condition] } })
        };
        let lost = hindrance(&scheduled("False", "1 node(s) had volume node affinity conflict")).unwrap();
        assert!(lost.starts_with("no node can run it: 1 node(s) had volume"), "{lost}");
        let mut creating = scheduled("True", "");
        assert_eq!(hindrance(&creating), None);
        creating["status"]["containerStatuses"] =
            json!([{ "name": "smc", "state": { "waiting": { "reason": "ErrImagePull" } } }]);
        assert!(hindrance(&creating).unwrap().contains("smc: ErrImagePull"));
    }

    #[test]
    fn a_claim_is_made_as_the_set_makes_it_and_none_without_volumes() {
        let with = claim(&set(|_| {}), 0).unwrap();
        assert_eq!(with["metadata"]["name"], "data-smc-controller-0");
        assert_eq!(with["spec"]["accessModes"], json!(["ReadWriteOnce"]));
        let without = set(|settings| settings.disks = crate::install::settings::Disks::Ephemeral);
        assert_eq!(claim(&without, 0), None);
    }
}
