use serde_json::json;
use smc_types::ids::{MeshName, MeshNamespace};

use super::*;
use crate::install::manifests::chart_objects;
use crate::install::settings::Settings;

/// The facts of an installation that works.
fn healthy() -> Facts {
    let settings = Settings::new(MeshName::default(), MeshNamespace::new("smc-system").unwrap());
    let objects = chart_objects(&settings).unwrap();
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).cloned().unwrap();
    let mut set = of_kind("StatefulSet");
    set["status"] = json!({ "updatedReplicas": 1, "readyReplicas": 1 });
    let mut injector = of_kind("MutatingWebhookConfiguration");
    let mut validator = of_kind("ValidatingWebhookConfiguration");
    for configuration in [&mut injector, &mut validator] {
        configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!("UEVN");
    }
    let established = json!({ "status": { "conditions": [{ "type": "Established", "status": "True" }] } });
    let group = Group {
        leader: Some(0),
        voters: vec![0],
        clock_problem: None,
        authorities: vec![("the root 01".to_owned(), 1_000_000_000)],
        warnings: Vec::new(),
    };
    Facts {
        mesh: "smc".to_owned(),
        namespace: "smc-system".to_owned(),
        version: Ok("v1.34.4".to_owned()),
        denied: Vec::new(),
        default_storage_class: Some(true),
        definitions: [("traffictargets.access.smi-spec.io".to_owned(), Some(established))].into(),
        set: Some(set),
        injector: Some(injector),
        validator: Some(validator),
        pods: Vec::new(),
        key: Some(true),
        group: Ok(group),
        mesh_namespaces: vec!["bookstore".to_owned()],
        pods_without_sidecar: 0,
        now: 0,
    }
}

/// The sentences that do not pass, with `×` or `‼` before them.
fn findings(checks: &[Check]) -> Vec<String> {
    let finding = |check: &Check| match check.verdict {
        Verdict::Pass => None,
        Verdict::Warning(_) => Some(format!("‼ {}", check.sentence)),
        Verdict::Failure(_) => Some(format!("× {}", check.sentence)),
    };
    checks.iter().filter_map(finding).collect()
}

#[test]
fn a_healthy_installation_has_no_findings() {
    assert_eq!(findings(&after(&healthy())), Vec::<String>::new());
}

/// A hint is the end of an address, and browsers say nothing where it leads to no heading.
#[test]
fn every_hint_is_a_heading_of_the_document() {
    let text = std::fs::read_to_string("../../docs/install.md").unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect::<String>()
    };
    let anchors: Vec<_> = headings.map(anchor).collect();
    let silent = Facts { version: Err("refused".into()), ..healthy() };
    let missing = Facts { set: None, ..healthy() };
    let without_administration = Facts { group: Err("no".into()), ..healthy() };
    let all = [&healthy(), &silent, &missing, &without_administration];
    let checks = all.into_iter().flat_map(|facts| before(facts).into_iter().chain(after(facts)));
    for check in checks {
        assert!(anchors.iter().any(|anchor| anchor == check.hint), "{}: {}", check.sentence, check.hint);
    }
}

fn changed(change: impl FnOnce(&mut Facts)) -> Vec<String> {
    let mut facts = healthy();
    change(&mut facts);
    findings(&after(&facts))
}

#[test]
fn each_failure_is_found_and_named() {
    let group = |change: fn(&mut Group)| changed(|facts| change(facts.group.as_mut().unwrap()));
    assert_eq!(changed(|f| f.version = Err("refused".into())), ["× the API server answers"]);
    assert_eq!(changed(|f| f.version = Ok("v1.29.1".into())), ["× its version is known to work"]);
    assert_eq!(changed(|f| f.version = Ok("1.30+".into())), Vec::<String>::new());
    assert_eq!(changed(|f| f.version = Ok("new".into())), ["‼ its version is known to work"]);
    assert_eq!(changed(|f| f.set = None), ["× SMC is installed"]);
    assert_eq!(changed(|f| f.key = Some(false)), ["× there is a key-encryption key"]);
    assert_eq!(changed(|f| f.key = None), ["‼ there is a key-encryption key"]);
    assert_eq!(changed(|f| f.mesh = "blue".into()), ["× the mesh has the name that is asked for"]);
    assert_eq!(
        changed(|f| drop(f.definitions.insert("x".into(), None))),
        ["× the custom resources are defined"]
    );
    assert_eq!(
        changed(|f| drop(f.definitions.insert("x".into(), Some(json!({ "status": { "conditions": [] } }))))),
        ["× the custom resources are served"]
    );
    assert_eq!(
        changed(|f| f.set.as_mut().unwrap()["status"]["readyReplicas"] = json!(0)),
        ["× all controllers run and are ready"]
    );
    assert_eq!(changed(|f| f.group = Err("no".into())), ["× the administration answers"]);
    assert_eq!(group(|g| g.leader = None), ["× their group has a leader"]);
    assert_eq!(group(|g| g.voters = vec![0, 1]), ["‼ every controller votes"]);
    assert_eq!(group(|g| g.clock_problem = Some("an hour off".into())), ["× their clocks agree"]);
    assert_eq!(group(|g| g.warnings = vec!["w".into()]), ["‼ the certificate authority has no warnings"]);
    assert_eq!(group(|g| g.authorities[0].1 = 59 * 86_400), ["‼ no certificate authority ends soon"]);
    assert_eq!(changed(|f| f.injector = None), ["× pods are injected"]);
    assert_eq!(
        changed(|f| f.validator.as_mut().unwrap()["webhooks"][0]["clientConfig"]["caBundle"] = json!("")),
        ["× the validator's certificate is known"]
    );
    assert_eq!(
        changed(|f| f.injector.as_mut().unwrap()["webhooks"][0]["failurePolicy"] = json!("Fail")),
        ["‼ their failure policy fits the number of controllers"]
    );
    assert_eq!(changed(|f| f.mesh_namespaces.clear()), ["‼ namespaces take part"]);
    assert_eq!(changed(|f| f.pods_without_sidecar = 2), ["‼ their pods have sidecars"]);
    let restarted =
        json!({ "metadata": { "name": "a" }, "status": { "containerStatuses": [{ "restartCount": 2 }] } });
    assert_eq!(changed(|f| f.pods = vec![restarted]), ["‼ they do not restart"]);
}

#[test]
fn an_empty_cluster_can_take_an_installation_and_a_taken_one_cannot() {
    let empty = || Facts { set: None, injector: None, ..healthy() };
    assert_eq!(findings(&before(&empty())), Vec::<String>::new());
    let denied = Facts { denied: vec!["create clusterroles".into()], ..empty() };
    assert_eq!(findings(&before(&denied)), ["× you may create what SMC consists of"]);
    assert_eq!(findings(&before(&healthy())), ["× SMC is not installed in this namespace"]);
    let elsewhere = Facts { set: None, namespace: "blue-system".into(), ..healthy() };
    assert_eq!(findings(&before(&elsewhere)), ["× the name of the mesh is free"]);
    let diskless = Facts { default_storage_class: Some(false), ..empty() };
    assert_eq!(findings(&before(&diskless)), ["‼ controllers get disks"]);
}
