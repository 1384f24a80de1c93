//! The rules of `smc check`.
//!
//! Owns what is a failure, and what only a warning. A rule looks at [`Facts`] and at nothing else.

use std::collections::BTreeMap;

use serde_json::Value;
use smc_types::ids::{MeshName, MeshNamespace};

use super::facts::{Facts, Group};
use super::key::{Key, missed};
use super::members::some_of;
use super::rights::lost;
use super::stuck::{cannot_use_its_disk, stuck};
use crate::install::apply::{replicas, rollout};
use crate::install::ownership::{helm_release, leads_to, other_mesh};
use crate::install::settings::key_secret;
use crate::names::INJECTOR;

/// The oldest Kubernetes that SMC works with: `preStop.sleep` of the chart, and what the sources list.
const OLDEST: (u64, u64) = (1, 30);

/// The last days of a CA certificate that a person should hear of: two months, as SMC renews long before.
const CA_WARNING_SECONDS: i64 = 60 * 24 * 3600;

/// The answer of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Pass,
    /// It works, and a person should know this.
    Warning(String),
    /// It does not work.
    Failure(String),
}

/// A rule and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What the rule is about.
    pub category: &'static str,
    /// What is so if the rule passes.
    pub sentence: String,
    /// Whether it is so.
    pub verdict: Verdict,
    /// The section of `docs/install.md` that says what to do.
    pub hint: &'static str,
}

fn check(category: &'static str, sentence: &str, hint: &'static str, verdict: Verdict) -> Check {
    Check { category, sentence: sentence.to_owned(), verdict, hint }
}

fn unless(problem: Option<String>) -> Verdict {
    problem.map_or(Verdict::Pass, Verdict::Failure)
}

/// A warning where there is a reason for one.
fn caution(reason: Option<String>) -> Verdict {
    reason.map_or(Verdict::Pass, Verdict::Warning)
}

/// What is so if the mesh is the one that was named.
const NAME: &str = "the mesh has the name that is asked for";

const API: &str = "kubernetes";
const BEFORE: &str = "before the installation";
const CONFIGURATION: &str = "configuration";
const CONTROLLERS: &str = "controllers";
const WEBHOOKS: &str = "webhooks";
const CERTIFICATES: &str = "certificates";
const MESH: &str = "mesh";

/// The rules for a cluster that SMC is to be installed into.
pub fn before(facts: &Facts) -> Vec<Check> {
    let mut checks = kubernetes(facts);
    if facts.version.is_err() {
        return checks;
    }
    let denied = (!facts.denied.is_empty()).then(|| format!("you may not {}", facts.denied.join(", nor ")));
    checks.push(check(BEFORE, "you may create what SMC consists of", "rights", unless(denied)));
    let installed = facts
        .set
        .is_some()
        .then(|| format!("{} has a StatefulSet smc-controller; use smc upgrade", facts.namespace));
    checks.push(check(
        BEFORE,
        "SMC is not installed in this namespace",
        "installed-already",
        unless(installed),
    ));
    let injector = facts.injector.as_ref().ok().and_then(Option::as_ref);
    let taken = injector.and_then(leads_to).filter(|other| *other != facts.namespace);
    let taken = taken.map(|other| {
        format!("the mesh {} is that of the namespace {other}; use another --mesh-name", facts.mesh)
    });
    checks.push(check(BEFORE, "the name of the mesh is free", "two-meshes-in-one-cluster", unless(taken)));
    let storage = match facts.default_storage_class {
        Some(true) => Verdict::Pass,
        Some(false) => {
            Verdict::Warning("there is no default StorageClass: name one with --storage-class".to_owned())
        }
        None => Verdict::Warning("you may not list StorageClasses".to_owned()),
    };
    checks.push(check(BEFORE, "controllers get disks", "storage", storage));
    checks
}

/// The rules for a cluster with SMC.
pub fn after(facts: &Facts) -> Vec<Check> {
    let mut checks = kubernetes(facts);
    if facts.version.is_err() {
        return checks;
    }
    let Some(set) = &facts.set else {
        let missing = format!("the namespace {} has no StatefulSet smc-controller", facts.namespace);
        checks.push(check(CONFIGURATION, "SMC is installed", "not-installed", Verdict::Failure(missing)));
        return checks;
    };
    // Of another mesh, every answer would be about what is not there.
    if let Some(name) = other_mesh(set, &facts.mesh) {
        let problem = format!("the mesh of {} is {name}: smc check --mesh-name {name}", facts.namespace);
        checks.push(check(CONFIGURATION, NAME, "two-meshes-in-one-cluster", Verdict::Failure(problem)));
        return checks;
    }
    checks.push(check(CONFIGURATION, NAME, "two-meshes-in-one-cluster", Verdict::Pass));
    checks.extend(configuration(facts, set));
    checks.extend(controllers(facts, set));
    checks.extend(webhooks(facts, set));
    checks.extend(certificates(facts));
    checks.extend(mesh::mesh(facts));
    checks
}

/// Whether a person has to act.
pub fn failed(checks: &[Check]) -> bool {
    checks.iter().any(|check| matches!(check.verdict, Verdict::Failure(_)))
}

/// Whether a controller is to vote that does not vote yet: one that is new to its group, or comes back,
/// catches up first. A warning says so, and is gone soon.
pub fn settling(facts: &Facts) -> bool {
    let replicas = facts.set.as_ref().map_or(0, replicas);
    facts.group.as_ref().is_ok_and(|group| (0..replicas).any(|id| !group.voters.contains(&id)))
}

fn kubernetes(facts: &Facts) -> Vec<Check> {
    let sentence = "the API server answers";
    let version = match &facts.version {
        Ok(version) => version,
        Err(problem) => return vec![check(API, sentence, "no-cluster", Verdict::Failure(problem.clone()))],
    };
    let verdict = match minor(version) {
        Some(found) if found < OLDEST => {
            Verdict::Failure(format!("it is {version}; SMC needs {}.{} or newer", OLDEST.0, OLDEST.1))
        }
        Some(_) => Verdict::Pass,
        None => Verdict::Warning(format!("its version {version:?} cannot be read")),
    };
    vec![
        check(API, sentence, "no-cluster", Verdict::Pass),
        check(API, "its version is known to work", "versions", verdict),
    ]
}

/// `v1.34.4` as 1 and 34; also with a suffix, as of managed clusters (`1.30+`, `v1.30.1-gke.5`).
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    Some((digits(parts.next()?)?, digits(parts.next()?)?))
}

/// The flag that names the mesh, where it is needed.
fn mesh_flag(facts: &Facts) -> String {
    if facts.mesh == MeshName::default().as_str() {
        return String::new();
    }
    format!(" --mesh-name {}", facts.mesh)
}

/// The command that makes the objects of this installation again as they were.
fn remedy(facts: &Facts, set: &Value) -> String {
    if let Some(release) = helm_release(set) {
        return format!("helm upgrade {release} charts/smc -n {}", facts.namespace);
    }
    let namespace = match facts.namespace.as_str() {
        default if default == MeshNamespace::default().as_str() => String::new(),
        other => format!(" --mesh-namespace {other}"),
    };
    format!("smc upgrade{}{namespace}", mesh_flag(facts))
}

/// The command that takes back an image that does not start: the former one is that of the pods that run.
fn way_back(facts: &Facts, set: &Value) -> Option<String> {
    let stuck = |pod: &Value| stuck(pod, |_| true);
    let (tried, why) = facts.pods.iter().find_map(|pod| Some((image(pod)?, stuck(pod)?)))?;
    let others = facts.pods.iter().filter(|pod| stuck(pod).is_none()).filter_map(image);
    let former = others.into_iter().find(|other| *other != tried);
    let (release, upgrade) = (helm_release(set), remedy(facts, set));
    match (former, release) {
        (Some(former), None) => Some(format!("to go back: {upgrade} --image {former}")),
        (Some(former), Some(release)) => {
            Some(format!("to go back to {former}: helm rollback {release} -n {}", facts.namespace))
        }
        // The kubelet's reasons that are about images name them so.
        (None, None) if why.contains("Image") => Some(format!("to name another: {upgrade} --image IMAGE")),
        (None, _) => None,
    }
}

/// The image of the controller in this pod.
fn image(pod: &Value) -> Option<&str> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    containers.iter().find(|container| container["name"] == "controller")?["image"].as_str()
}

/// What is wrong with the images of the controllers, whose version is not this program's.
fn skew(facts: &Facts, set: &Value) -> Option<String> {
    let version = env!("CARGO_PKG_VERSION");
    let mut pods: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pod in &facts.pods {
        let name = pod.pointer("/metadata/name").and_then(Value::as_str);
        if let (Some(image), Some(name)) = (image(pod), name) {
            pods.entry(image).or_default().push(name);
        }
    }
    if pods.is_empty() {
        let asked = set.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
        pods.insert(asked.unwrap_or_default(), vec!["the StatefulSet"]);
    }
    let other = |image: &str| image.rsplit_once(':').is_none_or(|(_, tag)| tag != version);
    let others = pods.iter().filter(|(image, _)| other(image));
    let others: Vec<_> = others.map(|(image, pods)| format!("{} has {image}", pods.join(", "))).collect();
    (!others.is_empty()).then(|| format!("{}; this program is {version}", others.join(", ")))
}

fn configuration(facts: &Facts, set: &Value) -> Vec<Check> {
    let missing = facts.definitions.iter().filter(|(_, found)| matches!(found, Ok(None)));
    let missing: Vec<_> = missing.map(|(name, _)| name.clone()).collect();
    let unseen = facts.definitions.values().find_map(|found| found.as_ref().err());
    let defined = if missing.is_empty() {
        caution(unseen.map(|reason| format!("unknown: {reason}")))
    } else {
        Verdict::Failure(format!(
            "there is no CustomResourceDefinition {}: smc crds | kubectl apply --server-side -f -",
            missing.join(", ")
        ))
    };
    let not_served: Vec<_> = facts
        .definitions
        .iter()
        .filter_map(|(name, found)| {
            let conditions = found.as_ref().ok()?.as_ref()?.pointer("/status/conditions")?.as_array()?;
            let established =
                |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
            (!conditions.iter().any(established)).then(|| name.clone())
        })
        .collect();
    let not_served =
        (!not_served.is_empty()).then(|| format!("{} is not established", not_served.join(", ")));
    let secret = format!("{}/{}", facts.namespace, key_secret(set));
    let restore = format!(
        "restore your copy of it (kubectl replace --force -f {}.yaml), and do not restart the controllers before, nor \
         upgrade: none would start",
        key_secret(set)
    );
    let founded =
        !facts.sealed_with.is_empty() || facts.group.as_ref().is_ok_and(|group| !group.id.is_empty());
    let key = match &facts.key {
        Key::Unread | Key::Id(_) => Verdict::Pass,
        Key::Missing if founded => Verdict::Failure(format!("the Secret {secret} is missing: {restore}")),
        Key::Missing => Verdict::Failure(format!(
            "the Secret {secret} is missing: kubectl logs smc-controller-0 -c kek -n {} says why",
            facts.namespace
        )),
        Key::Malformed => {
            Verdict::Failure(format!("the Secret {secret} holds no key in its field `kek`: {restore}"))
        }
        Key::Unknown => Verdict::Warning("you may not see the Secrets of the control plane".to_owned()),
    };
    let keys: Vec<_> = [Some(&facts.key), facts.other_key.as_ref()].into_iter().flatten().collect();
    let missed = missed(&keys, &facts.sealed_with).filter(|_| matches!(facts.key, Key::Id(_)));
    let other = missed.map(|id| {
        format!(
            "the mesh's keys are sealed with the key {id}, which the Secret {secret} does not hold: controllers that \
             restart cannot open them; {restore}"
        )
    });
    vec![
        check(CONFIGURATION, "the custom resources are defined", "custom-resources", defined),
        check(CONFIGURATION, "the custom resources are served", "custom-resources", unless(not_served)),
        check(CONFIGURATION, "there is a key-encryption key", "key-encryption-key", key),
        check(CONFIGURATION, "it opens what the mesh has sealed", "key-encryption-key", unless(other)),
        check(CONFIGURATION, "the controllers have their rights", "rights", rights(facts, set)),
        check(CONFIGURATION, "there is a MeshConfig", "allow-traffic-first-then-close", mesh_config(facts)),
    ]
}

/// Whether roles, bindings and the admission policy are those of the installation.
fn rights(facts: &Facts, set: &Value) -> Verdict {
    let problems: Vec<_> = facts.rights.iter().filter_map(lost).collect();
    if !problems.is_empty() {
        return Verdict::Failure(format!("{}: {}", some_of(&problems), remedy(facts, set)));
    }
    let unseen = facts.rights.iter().find_map(|right| right.found.as_ref().err());
    caution(unseen.map(|reason| format!("unknown: {reason}")))
}

fn mesh_config(facts: &Facts) -> Verdict {
    match &facts.config {
        Ok(Some(_)) => Verdict::Pass,
        Ok(None) => Verdict::Warning(format!(
            "the MeshConfig osm-mesh-config in {} is missing, so the defaults hold: sidecars refuse calls that no \
             TrafficTarget allows, and connections out of the mesh. kubectl apply one",
            facts.namespace
        )),
        Err(reason) => Verdict::Warning(format!("unknown: {reason}")),
    }
}

fn controllers(facts: &Facts, set: &Value) -> Vec<Check> {
    let restarts: Vec<_> = facts.pods.iter().filter_map(restarted).collect();
    let restarts = (!restarts.is_empty()).then(|| restarts.join(", "));
    let unready = rollout(set).map(|missing| {
        let stuck = facts.pods.iter().filter_map(|pod| stuck(pod, |_| true));
        [missing].into_iter().chain(stuck).chain(way_back(facts, set)).collect::<Vec<_>>().join("; ")
    });
    let mut checks = vec![
        check(CONTROLLERS, "all controllers run and are ready", "not-ready", unless(unready)),
        check(CONTROLLERS, "they do not restart", "restarts", caution(restarts)),
        check(CONTROLLERS, "they can use their disks", "disks-of-others", unless(foreign_disks(facts))),
        check(CONTROLLERS, "they are of this program's version", "versions", caution(skew(facts, set))),
    ];
    match &facts.group {
        Err(problem) => {
            checks.push(check(
                CONTROLLERS,
                "the administration answers",
                "administration",
                Verdict::Failure(problem.clone()),
            ));
        }
        Ok(group) => checks.extend(group_of(group, &facts.namespace, replicas(set))),
    }
    checks
}

/// The controllers that cannot use their disks, and what to type. Without a leader a disk may be needed where
/// it belongs.
fn foreign_disks(facts: &Facts) -> Option<String> {
    facts.group.as_ref().ok()?.leader?;
    let pods = facts.pods.iter().filter(|pod| cannot_use_its_disk(pod));
    let names: Vec<_> = pods.filter_map(|pod| pod.pointer("/metadata/name")?.as_str()).collect();
    let objects: Vec<_> =
        names.iter().map(|name| format!("persistentvolumeclaim/data-{name} pod/{name}")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "those of {} are of another controller, or of a group that was replaced; if the group that works is the \
             right one, these join it with new disks: kubectl delete -n {} {}",
            names.join(", "),
            facts.namespace,
            objects.join(" ")
        )
    })
}

fn restarted(pod: &Value) -> Option<String> {
    let containers = pod.pointer("/status/containerStatuses")?.as_array()?;
    let restarts: u64 = containers.iter().filter_map(|container| container["restartCount"].as_u64()).sum();
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    (restarts > 0).then(|| format!("{name} restarted {restarts} times"))
}

/// Why so many controllers in `namespace` can never have a leader, and what to type: their disks are those
/// of a group of more, as after an installation in place of a larger one.
pub fn too_few(group: &Group, namespace: &str, replicas: u64) -> Option<String> {
    let asked_for = group.voters.iter().filter(|voter| **voter < replicas).count();
    let last =
        group.voters.last().filter(|_| group.leader.is_none() && asked_for < group.voters.len() / 2 + 1)?;
    let all: Vec<_> = group.voters.iter().map(ToString::to_string).collect();
    Some(format!(
        "the group on their disks has the controllers {}, and {replicas} is asked for; make them as many, and fewer \
         afterwards if you like: kubectl scale statefulset smc-controller -n {namespace} --replicas={}",
        all.join(", "),
        last + 1
    ))
}

fn group_of(group: &Group, namespace: &str, replicas: u64) -> Vec<Check> {
    let leader = group.leader.is_none().then(|| {
        let waits_for = group.waits_for.as_ref().map(|what| format!(": the controller waits for {what}"));
        let missing = group.silent.iter().filter(|id| group.voters.contains(id)).count();
        let last_resort = if group.voters.is_empty() {
            "; if no volume of their group is left, `smc cluster restore BACKUP` makes a new one"
        } else if group.voters.len() - missing <= group.voters.len() / 2 {
            "; if their volumes are lost for good, `smc cluster recover` makes a new group of what is left"
        } else {
            ""
        };
        let waits_for = waits_for.unwrap_or_default();
        format!("nothing can be issued, renewed or released{waits_for}{last_resort}")
    });
    let silent: Vec<_> = group.silent.iter().map(ToString::to_string).collect();
    let silent =
        (!silent.is_empty()).then(|| format!("nothing is heard of the controllers {}", silent.join(", ")));
    let expected: Vec<u64> = (0..replicas).collect();
    let members = (group.voters != expected)
        .then(|| format!("the voters are {:?}, and {replicas} controllers are asked for", group.voters));
    let even = (replicas > 0 && replicas.is_multiple_of(2))
        .then(|| format!("{replicas} controllers survive the loss of no more than {} do", replicas - 1));
    let several = (group.groups.len() > 1).then(|| {
        format!("they are of the groups {}, each of which issues certificates", group.groups.join(", "))
    });
    vec![
        check(CONTROLLERS, "they belong to one group", "two-groups", unless(several)),
        check(
            CONTROLLERS,
            "their disks are as far as their group was",
            "older-disks",
            unless(group.waits_for_older_disks().map(|what| format!("they wait for {what}"))),
        ),
        check(CONTROLLERS, "their group has a leader", "no-leader", unless(leader)),
        check(
            CONTROLLERS,
            "enough of their group is asked for",
            "a-group-of-more",
            unless(too_few(group, namespace, replicas)),
        ),
        check(CONTROLLERS, "all members of their group answer", "members", caution(silent)),
        check(CONTROLLERS, "every controller votes", "members", caution(members)),
        check(CONTROLLERS, "their number is odd", "members", caution(even)),
        check(CONTROLLERS, "their clocks agree", "clocks", unless(group.clock_problem.clone())),
    ]
}

fn webhooks(facts: &Facts, set: &Value) -> Vec<Check> {
    let replicas = replicas(set);
    let mut checks = Vec::new();
    let injector = format!("MutatingWebhookConfiguration {INJECTOR}{}", facts.mesh);
    let validator = format!("ValidatingWebhookConfiguration smc-validator-{}", facts.mesh);
    let remedy = remedy(facts, set);
    for (sentence, signed, name, found) in [
        ("pods are injected", "the injector's certificate is known", injector, &facts.injector),
        ("objects are validated", "the validator's certificate is known", validator, &facts.validator),
    ] {
        let verdict = match found {
            Err(reason) => Verdict::Warning(format!("unknown: {reason}")),
            Ok(None) => Verdict::Failure(format!("the {name} is missing: {remedy}")),
            Ok(Some(configuration)) => {
                let elsewhere = leads_to(configuration).filter(|other| *other != facts.namespace);
                unless(elsewhere.map(|other| format!("the {name} leads to the namespace {other}: {remedy}")))
            }
        };
        checks.push(check(WEBHOOKS, sentence, "webhooks", verdict));
        let Ok(Some(configuration)) = found else { continue };
        let bundle = configuration.pointer("/webhooks/0/clientConfig/caBundle").and_then(Value::as_str);
        let unsigned = bundle.is_none_or(str::is_empty).then(|| {
            format!(
                "the leader has not filled in caBundle of the {name}: kubectl logs -n {} -l \
                 app.kubernetes.io/component=controller says why, if it does not pass",
                facts.namespace
            )
        });
        checks.push(check(WEBHOOKS, signed, "webhooks", unless(unsigned)));
    }
    let injector = facts.injector.as_ref().ok().and_then(Option::as_ref);
    let policy = injector.and_then(|found| found.pointer("/webhooks/0/failurePolicy")?.as_str());
    let verdict = match policy {
        Some("Ignore") if replicas > 1 => Verdict::Warning(
            "with several controllers it can be Fail, so that no pod starts without its sidecar".to_owned(),
        ),
        Some("Fail") if replicas < 2 => {
            Verdict::Warning("with one controller, no pod of the mesh can start while it restarts".to_owned())
        }
        _ => Verdict::Pass,
    };
    checks.push(check(
        WEBHOOKS,
        "their failure policy fits the number of controllers",
        "failure-policy",
        verdict,
    ));
    checks
}

fn certificates(facts: &Facts) -> Vec<Check> {
    // A controller that does not serve cannot say.
    let Some(group) = facts.group.as_ref().ok().filter(|group| group.waits_for.is_none()) else {
        return Vec::new();
    };
    let soon: Vec<_> = group
        .authorities
        .iter()
        .filter(|(_, end)| *end < facts.now + CA_WARNING_SECONDS)
        .map(|(name, end)| {
            let days = (end - facts.now).max(0) / (24 * 3600);
            format!("{name} ends in {days} days")
        })
        .collect();
    let soon = (!soon.is_empty()).then(|| soon.join(", "));
    let warnings = (!group.warnings.is_empty()).then(|| group.warnings.join("; "));
    vec![
        check(CERTIFICATES, "no certificate authority ends soon", "certificates", caution(soon)),
        check(CERTIFICATES, "the certificate authority has no warnings", "certificates", caution(warnings)),
    ]
}

mod mesh;
#[cfg(test)]
mod tests;
