use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::kind::{Extent, Kind};

use super::*;
use crate::install::settings::{ENVOY_IMAGE, default_image};
use crate::install::{ownership, rights};

fn settings() -> Settings {
    Settings::new(MeshName::default(), MeshNamespace::new("smc-system").unwrap())
}

/// The objects by what names them.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |object: &Value| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    };
    let count = objects.len();
    let named: BTreeMap<_, _> = objects.into_iter().map(|object| (name(&object), object)).collect();
    assert_eq!(named.len(), count, "two objects of one name");
    named
}

#[test]
fn no_marker_is_left_and_what_a_person_chose_is_there() {
    let chosen = Settings {
        mesh: MeshName::new("blue").unwrap(),
        namespace: MeshNamespace::new("blue-system").unwrap(),
        converting: MeshNamespace::new("smc-system").unwrap(),
        trust_domain: "blue.example".to_owned(),
        image: "registry.example/smc@sha256:1".to_owned(),
        envoy_image: "registry.example/envoy:1".to_owned(),
        replicas: Some(2),
        max_replicas: 7,
        disks: Disks::Persistent { size: "5Gi".to_owned(), class: Some("fast".to_owned()) },
        high_availability: true,
        key: "smc-kek-3".to_owned(),
        other_key: Some("smc-kek-2".to_owned()),
    };
    let text = to_yaml(&all_objects(&chosen).unwrap()).unwrap();
    assert!(!text.contains("marker"), "a marker is left");
    assert!(!text.contains("4242"), "a marker is left");
    let definitions = all_objects(&chosen).unwrap();
    let converting: Vec<_> = definitions.iter().filter_map(super::super::settings::converting).collect();
    assert_eq!(converting, std::slice::from_ref(&chosen.converting), "the conversion is another mesh's");
    let objects = by_name(chart_objects(&chosen).unwrap());
    let set = &objects["StatefulSet blue-system/smc-controller"];
    assert_eq!(set.pointer("/spec/replicas").unwrap(), 2);
    let claim = set.pointer("/spec/volumeClaimTemplates/0/spec").unwrap();
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(claim["resources"]["requests"]["storage"], "5Gi");
    let container = set.pointer("/spec/template/spec/containers/0").unwrap();
    assert_eq!(container["image"], "registry.example/smc@sha256:1");
    let init = set.pointer("/spec/template/spec/initContainers/0/args").unwrap().as_array().unwrap();
    assert!(init.contains(&json!("--secret=smc-kek-3")), "{init:?}");
    for argument in [
        "--also-kek-file=/etc/smc/kek-also/kek",
        "--mesh-name=blue",
        "--trust-domain=blue.example",
        "--max-replicas=7",
        "--init-image=registry.example/smc@sha256:1",
        "--envoy-image=registry.example/envoy:1",
    ] {
        assert!(container["args"].as_array().unwrap().iter().any(|found| found == argument), "{argument}");
    }
    let kept: Vec<_> = objects.iter().filter(|(_, object)| is_kept(object)).map(|(name, _)| name).collect();
    let services: Vec<_> = (0..7).map(|id| format!("Service blue-system/smc-controller-{id}")).collect();
    assert_eq!(kept, services.iter().collect::<Vec<_>>(), "one for each replica that there may be");
    let injector = &objects["MutatingWebhookConfiguration /smc-injector-blue"];
    assert_eq!(injector["webhooks"][0]["failurePolicy"], "Fail");
    assert_eq!(injector["webhooks"][0]["clientConfig"]["service"]["namespace"], "blue-system");
    let ephemeral = Settings { disks: Disks::Ephemeral, ..chosen };
    let set = &by_name(chart_objects(&ephemeral).unwrap())["StatefulSet blue-system/smc-controller"];
    assert!(set["spec"].get("volumeClaimTemplates").is_none());
}

/// Otherwise every upgrade would take away what the leader writes.
#[test]
fn no_webhook_has_a_ca_bundle_and_every_one_excludes_the_control_plane() {
    for high_availability in [false, true] {
        let objects = chart_objects(&Settings { high_availability, ..settings() }).unwrap();
        let configurations = objects.iter().filter(|object| object["webhooks"].is_array());
        let mut count = 0;
        for webhook in configurations.flat_map(|object| object["webhooks"].as_array().unwrap()) {
            count += 1;
            assert!(webhook["clientConfig"].get("caBundle").is_none(), "{webhook}");
            let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
            let excluded = json!({
                "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "smc-system"],
            });
            assert!(expressions.contains(&excluded), "{webhook}");
            let policy = if high_availability { "Fail" } else { "Ignore" };
            assert_eq!(webhook["failurePolicy"], policy);
        }
        assert_eq!(count, 2);
    }
}

#[test]
fn an_upgrade_finds_the_choices_of_the_installation() {
    let chosen = Settings {
        trust_domain: "blue.example".to_owned(),
        replicas: Some(4),
        max_replicas: 6,
        disks: Disks::Persistent { size: "5Gi".to_owned(), class: Some("fast".to_owned()) },
        high_availability: true,
        image: default_image().replace("smc:", "registry.example:5000/smc:"),
        envoy_image: ENVOY_IMAGE.replace("docker.io", "registry.example:5000"),
        ..settings()
    };
    let keys = Settings { key: "new".to_owned(), other_key: Some("smc-kek".to_owned()), ..chosen.clone() };
    for chosen in
        [chosen.clone(), keys, Settings { disks: Disks::Ephemeral, high_availability: false, ..chosen }]
    {
        let objects = by_name(chart_objects(&chosen).unwrap());
        let set = &objects["StatefulSet smc-system/smc-controller"];
        assert_eq!(settings().continued(set), chosen);
    }
}

#[test]
fn an_installation_of_another_mesh_or_of_helms_is_left_alone() {
    let set = &by_name(chart_objects(&settings()).unwrap())["StatefulSet smc-system/smc-controller"];
    let refusal = |set: &Value, mesh: &str| {
        let Settings { namespace, .. } = settings();
        let checked = ownership::check(set, &MeshName::new(mesh).unwrap(), &namespace, "upgrade");
        checked.err().map(|error| error.to_string())
    };
    assert_eq!(refusal(set, "smc"), None);
    let other = "the mesh in smc-system is smc: use --mesh-name smc";
    assert_eq!(refusal(set, "blue").as_deref(), Some(other));
    let mut helms = set.clone();
    helms["metadata"]["annotations"] = json!({ "meta.helm.sh/release-name": "mesh" });
    let helm = "helm installed SMC in smc-system, as the release mesh: use `helm upgrade mesh`";
    assert_eq!(refusal(&helms, "smc").as_deref(), Some(helm));
}

/// The verbs that a role grants for resources of the groups of kinds, by group and resource.
fn granted(role: &Value) -> BTreeMap<(String, String), BTreeSet<String>> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    let mut granted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                granted.entry((group.clone(), resource)).or_default().extend(texts(&rule["verbs"]));
            }
        }
    }
    granted
}

/// After a change of the kinds: `make generate`.
#[test]
fn the_chart_has_the_rights_that_follow_from_the_kinds() {
    let path = Path::new("../../charts/smc/templates/_kinds.tpl");
    let kinds: Vec<_> = Kind::ALL.iter().map(|kind| kind.spec()).collect();
    let text = rights::helm_template(&kinds);
    if variable("SMC_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text, "write it with `make generate`");
}

#[test]
fn the_roles_and_the_validator_are_those_of_the_kinds() {
    let objects = by_name(chart_objects(&settings()).unwrap());
    let roles = [
        ("ClusterRole /smc-controller-smc", [Extent::Cluster, Extent::Mesh, Extent::MeshAndOwn].as_slice()),
        ("Role smc-system/smc-controller", &[Extent::Own]),
    ];
    for (name, extents) in roles {
        let granted = granted(&objects[name]);
        let (mut groups, mut resources) = (BTreeSet::new(), BTreeSet::new());
        for spec in Kind::ALL.iter().map(|kind| kind.spec()) {
            let (read, status) = (spec.plural.to_owned(), format!("{}/status", spec.plural));
            let verbs = |resource: &str| {
                granted.get(&(spec.group.to_owned(), resource.to_owned())).cloned().unwrap_or_default()
            };
            if spec.custom {
                groups.insert(spec.group);
            }
            if !extents.contains(&spec.extent) {
                continue;
            }
            let reads = ["list", "watch"].iter().all(|verb| verbs(&read).contains(*verb));
            assert!(reads, "{name} does not grant to list and watch {read} of {:?}", spec.group);
            let writes: Vec<_> = verbs(&status).into_iter().collect();
            assert_eq!(writes, if spec.custom { vec!["patch"] } else { vec![] }, "{name}: {status}");
            resources.extend([(spec.group, read), (spec.group, status)]);
        }
        let others = granted.keys().filter(|(group, resource)| {
            groups.contains(group.as_str()) && !resources.contains(&(group.as_str(), resource.clone()))
        });
        assert_eq!(others.collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "{name} grants more");
    }
    let groups: BTreeSet<&str> =
        Kind::ALL.iter().map(|kind| kind.spec()).filter(|of| of.custom).map(|of| of.group).collect();
    let validator = &objects["ValidatingWebhookConfiguration /smc-validator-smc"];
    let rule = validator.pointer("/webhooks/0/rules/0/apiGroups").and_then(Value::as_array).unwrap();
    assert_eq!(rule.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>(), groups);
}

fn read(yaml: &str) -> Vec<Value> {
    split(yaml).map(|document| serde_saphyr::from_str(document.text).unwrap()).collect()
}

/// What `smc install --dry-run` prints goes to `kubectl`, which applies it from the top.
#[test]
fn the_printed_manifests_are_the_objects_and_what_others_need_comes_first() {
    for high_availability in [false, true] {
        let objects = all_objects(&Settings { high_availability, ..settings() }).unwrap();
        assert_eq!(read(&to_yaml(&objects).unwrap()), objects);
        let count = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).count();
        let defined = Kind::ALL.iter().filter(|kind| kind.spec().custom).count();
        assert_eq!([count("Namespace"), count("CustomResourceDefinition")], [1, defined]);
        assert_eq!(objects[0]["kind"], "Namespace");
        assert!(objects[1..=defined].iter().all(|object| object["kind"] == "CustomResourceDefinition"));
        by_name(objects);
    }
}

#[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// The helm to compare with, if this machine has one: the named one, that of the test cluster, or one in
/// PATH.
fn helm() -> Option<PathBuf> {
    let of_the_cluster = || {
        let directories = variable("SMC_KUBERNETES")?;
        std::env::split_paths(&directories)
            .map(|directory| directory.join("helm"))
            .find(|helm| helm.is_file())
    };
    let named = variable("SMC_HELM").map(PathBuf::from);
    named
        .or_else(of_the_cluster)
        .or_else(|| Command::new("helm").arg("version").output().is_ok().then(|| "helm".into()))
}

fn rendered(helm: &Path, arguments: &[&str]) -> BTreeMap<String, Value> {
    let fixed = ["template", "smc", "../../charts/smc", "--kube-version", "1.34.0", "--no-hooks"];
    let output = Command::new(helm).args(fixed).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    by_name(read(&String::from_utf8(output.stdout).unwrap()))
}

#[test]
fn helm_makes_the_same_objects_where_there_is_one() {
    let Some(helm) = helm() else { return };
    let plain = settings();
    let image = |tag: &str| format!("registry.example/smc:{tag}");
    for (arguments, settings) in [
        (vec!["-n", "smc-system"], plain.clone()),
        (
            vec!["-n", "smc-system", "-f", "../../charts/smc/values-ha.yaml"],
            Settings { high_availability: true, ..plain.clone() },
        ),
        (
            vec![
                "-n",
                "blue-system",
                "--set",
                "meshName=blue,trustDomain=blue.example,replicas=2,maxReplicas=3",
                "--set",
                "image.repository=registry.example/smc,image.tag=v7,envoy.image=envoy:x",
                "--set",
                "persistence.size=3Gi,persistence.storageClassName=fast",
            ],
            Settings {
                mesh: MeshName::new("blue").unwrap(),
                namespace: MeshNamespace::new("blue-system").unwrap(),
                trust_domain: "blue.example".to_owned(),
                replicas: Some(2),
                max_replicas: 3,
                image: image("v7"),
                envoy_image: "envoy:x".to_owned(),
                disks: Disks::Persistent { size: "3Gi".to_owned(), class: Some("fast".to_owned()) },
                ..plain.clone()
            },
        ),
        (
            vec!["-n", "smc-system", "--set", "persistence.enabled=false"],
            Settings { disks: Disks::Ephemeral, ..plain },
        ),
    ] {
        let (theirs, ours) = (rendered(&helm, &arguments), by_name(chart_objects(&settings).unwrap()));
        assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
        for (name, theirs) in theirs {
            assert_eq!(theirs, ours[&name], "{arguments:?}: {name}");
        }
    }
}
