//! The rules of `smc check`.
//!
//! Owns what is a failure, and what only a warning. A rule looks at [`Facts`] and at nothing else.

use std::collections::BTreeMap;

use serde_json::Value;

use super::facts::{Facts, Group};
use super::key::Key;
use super::members::Members;
use super::stuck::{cannot_use_its_disk, stuck};
use crate::install::apply::rollout;
use crate::install::ownership::other_mesh;
use crate::install::settings::key_secret;

/// The oldest Kubernetes that SMC works with: `preStop.sleep` of the chart, and what the sources list.
const OLDEST: (u64, u64) = (1, 30);

/// The last days of a CA certificate that a person should hear of: two months, as SMC renews long before.
const CA_WARNING_SECONDS: i64 = 60 * 24 * 3600;

/// How many names a problem shows.
const SHOWN: usize = 5;

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
    let taken = facts.injector.as_ref().and_then(service_namespace).filter(|other| *other != facts.namespace);
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
    checks.extend(configuration(facts, set));
    checks.extend(controllers(facts, set));
    checks.extend(webhooks(facts, set));
    checks.extend(certificates(facts));
    checks.extend(mesh(facts));
    checks
}

/// Whether a person has to act.
pub fn failed(checks: &[Check]) -> bool {
    checks.iter().any(|check| matches!(check.verdict, Verdict::Failure(_)))
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

fn service_namespace(configuration: &Value) -> Option<String> {
    configuration.pointer("/webhooks/0/clientConfig/service/namespace")?.as_str().map(str::to_owned)
}

fn configuration(facts: &Facts, set: &Value) -> Vec<Check> {
    let missing: Vec<_> =
        facts.definitions.iter().filter(|(_, found)| found.is_none()).map(|(name, _)| name.clone()).collect();
    let missing =
        (!missing.is_empty()).then(|| format!("there is no CustomResourceDefinition {}", missing.join(", ")));
    let not_served: Vec<_> = facts
        .definitions
        .iter()
        .filter_map(|(name, found)| {
            let conditions = found.as_ref()?.pointer("/status/conditions")?.as_array()?;
            let established =
                |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
            (!conditions.iter().any(established)).then(|| name.clone())
        })
        .collect();
    let not_served =
        (!not_served.is_empty()).then(|| format!("{} is not established", not_served.join(", ")));
    let secret = format!("{}/{}", facts.namespace, key_secret(set));
    let key = match &facts.key {
        Key::Unread | Key::Id(_) => Verdict::Pass,
        Key::Missing => Verdict::Failure(format!("the Secret {secret} is missing")),
        Key::Malformed => Verdict::Failure(format!("the Secret {secret} holds no key in its field `kek`")),
        Key::Unknown => Verdict::Warning("you may not see the Secrets of the control plane".to_owned()),
    };
    let keys: Option<Vec<_>> = [Some(&facts.key), facts.other_key.as_ref()]
        .into_iter()
        .flatten()
        .map(|key| match key {
            Key::Id(id) => Some(Some(id)),
            Key::Missing | Key::Malformed => Some(None),
            // What cannot be seen may be right.
            Key::Unknown | Key::Unread => None,
        })
        .collect();
    let other = keys.and_then(|keys| {
        let keys: Vec<_> = keys.into_iter().flatten().collect();
        let sealed = facts.sealed_with.iter().find(|sealed| !keys.contains(sealed))?;
        Some(format!(
            "the mesh's keys are sealed with the key {sealed}, which the Secret {secret} does not hold: controllers that \
             restart cannot open them. Put that key back"
        ))
    });
    let other = other.filter(|_| matches!(facts.key, Key::Id(_)));
    let mesh = other_mesh(set, &facts.mesh);
    let mesh = mesh.map(|name| format!("the mesh of {} is {name}; use --mesh-name {name}", facts.namespace));
    vec![
        check(CONFIGURATION, "the custom resources are defined", "custom-resources", unless(missing)),
        check(CONFIGURATION, "the custom resources are served", "custom-resources", unless(not_served)),
        check(CONFIGURATION, "there is a key-encryption key", "key-encryption-key", key),
        check(CONFIGURATION, "it opens what the mesh has sealed", "key-encryption-key", unless(other)),
        check(
            CONFIGURATION,
            "the mesh has the name that is asked for",
            "two-meshes-in-one-cluster",
            unless(mesh),
        ),
    ]
}

fn controllers(facts: &Facts, set: &Value) -> Vec<Check> {
    let version = env!("CARGO_PKG_VERSION");
    let image =
        set.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default();
    let skew = image.rsplit_once(':').is_none_or(|(_, tag)| tag != version);
    let skew = skew.then(|| format!("controllers run {image}, this program is {version}"));
    let restarts: Vec<_> = facts.pods.iter().filter_map(restarted).collect();
    let restarts = (!restarts.is_empty()).then(|| restarts.join(", "));
    let unready = rollout(set).map(|missing| {
        let stuck = facts.pods.iter().filter_map(|pod| stuck(pod, |_| true));
        [missing].into_iter().chain(stuck).collect::<Vec<_>>().join("; ")
    });
    let mut checks = vec![
        check(CONTROLLERS, "all controllers run and are ready", "not-ready", unless(unready)),
        check(CONTROLLERS, "they do not restart", "restarts", caution(restarts)),
        check(CONTROLLERS, "they can use their disks", "disks-of-others", unless(foreign_disks(facts))),
        check(CONTROLLERS, "they are of this program's version", "versions", caution(skew)),
    ];
    let replicas = set.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    match &facts.group {
        Err(problem) => {
            checks.push(check(
                CONTROLLERS,
                "the administration answers",
                "administration",
                Verdict::Failure(problem.clone()),
            ));
        }
        Ok(group) => checks.extend(group_of(group, &facts.namespace, replicas)),
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
    let replicas = set.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    let mut checks = Vec::new();
    for (sentence, signed, found) in [
        ("pods are injected", "the injector's certificate is known", &facts.injector),
        ("objects are validated", "the validator's certificate is known", &facts.validator),
    ] {
        let Some(configuration) = found else {
            checks.push(check(
                WEBHOOKS,
                sentence,
                "webhooks",
                Verdict::Failure("the configuration is missing".to_owned()),
            ));
            continue;
        };
        let elsewhere = service_namespace(configuration).filter(|namespace| *namespace != facts.namespace);
        let elsewhere =
            elsewhere.map(|namespace| format!("the configuration leads to the namespace {namespace}"));
        checks.push(check(WEBHOOKS, sentence, "webhooks", unless(elsewhere)));
        let bundle = configuration.pointer("/webhooks/0/clientConfig/caBundle").and_then(Value::as_str);
        let unsigned =
            bundle.is_none_or(str::is_empty).then(|| "the leader has not filled in caBundle yet".to_owned());
        checks.push(check(WEBHOOKS, signed, "webhooks", unless(unsigned)));
    }
    let policy = |found: &Option<Value>| {
        found
            .as_ref()
            .and_then(|found| found.pointer("/webhooks/0/failurePolicy")?.as_str().map(str::to_owned))
    };
    let policy = policy(&facts.injector);
    let verdict = match policy.as_deref() {
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

fn mesh(facts: &Facts) -> Vec<Check> {
    let Members { namespaces, without_sidecar, with_sidecar, left_sidecars, stuck_sidecars, any_rule } =
        &facts.members;
    let none = namespaces.is_empty().then(|| {
        format!("no namespace is in the mesh yet: smc namespace add NAMESPACE --mesh-name {}", facts.mesh)
    });
    let without = (!without_sidecar.is_empty())
        .then(|| format!("{} pods started without one: {}", without_sidecar.len(), some_of(without_sidecar)));
    let not_started = (!stuck_sidecars.is_empty())
        .then(|| format!("{} do not: {}", stuck_sidecars.len(), some_of(stuck_sidecars)));
    let closed = (!with_sidecar.is_empty() && facts.permissive == Some(false) && *any_rule == Some(false)).then(|| {
        "no TrafficTarget and no IngressBackend allows a call, and the mesh is not permissive: the sidecars refuse \
         every one"
            .to_owned()
    });
    let mut checks = vec![
        check(MESH, "namespaces take part", "namespaces", caution(none)),
        check(MESH, "their pods have sidecars", "without-sidecar", caution(without)),
        check(MESH, "their sidecars start", "sidecars-that-do-not-start", unless(not_started)),
    ];
    let connection = match &facts.proxies {
        Ok(proxies) => connection(with_sidecar, proxies),
        Err(problem) => Verdict::Warning(format!("unknown: {problem}")),
    };
    checks.push(check(MESH, "their sidecars are connected", "not-connected", connection));
    if let Ok(proxies) = &facts.proxies {
        let ours = left_sidecars.iter().filter(|(_, uuid)| proxies.contains_key(uuid));
        let left: Vec<_> = ours.map(|(pod, _)| pod.clone()).collect();
        let left = (!left.is_empty())
            .then(|| format!("{} pods have one in namespaces of no mesh: {}", left.len(), some_of(&left)));
        checks.push(check(MESH, "no sidecar is left behind", "left-behind", unless(left)));
    }
    let problems = match &facts.problems {
        Ok(problems) if problems.is_empty() => None,
        Ok(problems) => Some(format!("{} problems: {}", problems.len(), some_of(problems))),
        Err(problem) => Some(format!("unknown: {problem}")),
    };
    checks.push(check(MESH, "it has no problems", "problems", caution(problems)));
    let closed = caution(closed);
    checks.push(check(MESH, "some traffic is allowed", "allow-traffic-first-then-close", closed));
    checks
}

/// Whether the sidecars that run are connected. Where none is, their certificates are of another mesh, or
/// nothing leads to the controllers; they go on with what they know until their certificates end.
fn connection(sidecars: &[(String, String)], proxies: &BTreeMap<String, bool>) -> Verdict {
    let connected = |uuid: &String| proxies.get(uuid).copied().unwrap_or_default();
    let missing = sidecars.iter().filter(|(_, uuid)| !connected(uuid));
    let missing: Vec<_> = missing.map(|(pod, _)| pod.clone()).collect();
    let all = sidecars.len();
    let text = format!("{} of {all} are connected; not those of {}", all - missing.len(), some_of(&missing));
    match missing.len() {
        0 => Verdict::Pass,
        some if some < all => Verdict::Warning(text),
        _ => Verdict::Failure(text),
    }
}

/// The first names, and how many more there are.
fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
