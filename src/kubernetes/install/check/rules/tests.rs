use serde_json::json;
use smc_types::ids::{MeshName, MeshNamespace};

use super::mesh::connection;
use super::*;
use crate::install::check::facts::{Found, Granted};
use crate::install::check::members::{Members, Stray};
use crate::install::check::rights::{Right, expected};
use crate::install::manifests::chart_objects;
use crate::install::settings::Settings;
use crate::stateful_set::CONFIRMATION;

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
    let rights = expected(&settings.mesh, &settings.namespace, &set).unwrap();
    let right = |expected: Value| Right { found: Ok(Some(expected.clone())), expected };
    let group = Group {
        id: "a".to_owned(),
        groups: vec!["a".to_owned()],
        leader: Some(0),
        voters: vec![0],
        authorities: vec![("the root 01".to_owned(), 1_000_000_000)],
        sealed_with: vec!["k".to_owned()],
        ..Group::default()
    };
    Facts {
        mesh: "smc".to_owned(),
        namespace: "smc-system".to_owned(),
        version: Ok("v1.34.4".to_owned()),
        denied: Vec::new(),
        default_storage_class: Some(true),
        definitions: [("traffictargets.access.smi-spec.io".to_owned(), Ok(Some(established)))].into(),
        set: Some(set),
        injector: Ok(Some(injector)),
        validator: Ok(Some(validator)),
        rights: rights.into_iter().map(right).collect(),
        pods: Vec::new(),
        key: Key::Id("k".to_owned()),
        other_key: None,
        sealed_with: vec!["k".to_owned()],
        group: Ok(group),
        members: Members {
            namespaces: vec!["bookstore".to_owned()],
            with_sidecar: vec![("bookstore/buyer".to_owned(), "u".to_owned())],
            any_rule: Some(true),
            any_ingress: Some(false),
            ..Members::default()
        },
        proxies: Ok([("u".to_owned(), true)].into()),
        problems: Ok(Vec::new()),
        granted: Ok(Granted { any: true, open_ports: 0 }),
        config: Ok(Some(json!({ "spec": {} }))),
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

fn there(found: &mut Found) -> &mut Value {
    found.as_mut().unwrap().as_mut().unwrap()
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
    assert_eq!(changed(|f| f.problems = Ok(vec!["a split: b".into()])), ["‼ it has no problems"]);
    assert_eq!(changed(|f| f.key = Key::Missing), ["× there is a key-encryption key"]);
    assert_eq!(changed(|f| f.key = Key::Malformed), ["× there is a key-encryption key"]);
    assert_eq!(changed(|f| f.key = Key::Unknown), ["‼ there is a key-encryption key"]);
    assert_eq!(changed(|f| f.key = Key::Unread), Vec::<String>::new());
    assert_eq!(changed(|f| f.key = Key::Id("other".into())), ["× it opens what the mesh has sealed"]);
    let other = |id: &str| Some(Key::Id(id.to_owned()));
    let new = |f: &mut Facts, other_key| (f.key, f.other_key) = (Key::Id("new".into()), other_key);
    assert_eq!(changed(|f| new(f, other("k"))), Vec::<String>::new(), "before smc ca rekey");
    assert_eq!(changed(|f| new(f, other("x"))), ["× it opens what the mesh has sealed"]);
    assert_eq!(changed(|f| new(f, Some(Key::Missing))), ["× it opens what the mesh has sealed"]);
    assert_eq!(changed(|f| new(f, Some(Key::Unread))), Vec::<String>::new());
    assert_eq!(group(|group| group.groups.push("b".into())), ["× they belong to one group"]);
    assert_eq!(changed(|f| f.mesh = "blue".into()), ["× the mesh has the name that is asked for"]);
    assert_eq!(
        changed(|f| drop(f.definitions.insert("x".into(), Err("forbidden".into())))),
        ["‼ the custom resources are defined"]
    );
    assert_eq!(
        changed(|f| drop(f.definitions.insert("x".into(), Ok(None)))),
        ["× the custom resources are defined"]
    );
    assert_eq!(
        changed(|f| drop(
            f.definitions.insert("x".into(), Ok(Some(json!({ "status": { "conditions": [] } }))))
        )),
        ["× the custom resources are served"]
    );
    assert_eq!(
        changed(|f| f.set.as_mut().unwrap()["status"]["readyReplicas"] = json!(0)),
        ["× all controllers run and are ready"]
    );
    assert_eq!(changed(|f| f.group = Err("no".into())), ["× the administration answers"]);
    assert_eq!(group(|g| g.leader = None), ["× their group has a leader"]);
    assert_eq!(group(|g| g.voters = vec![0, 1]), ["‼ every controller votes"]);
    assert_eq!(group(|g| g.silent = vec![0]), ["‼ all members of their group answer"]);
    let older = ["× their disks are as far as their group was"];
    assert_eq!(group(|g| g.waits_for = Some(format!("{CONFIRMATION}: it was further"))), older);
    assert_eq!(group(|g| g.clock_problem = Some("an hour off".into())), ["× their clocks agree"]);
    assert_eq!(group(|g| g.warnings = vec!["w".into()]), ["‼ the certificate authority has no warnings"]);
    assert_eq!(group(|g| g.authorities[0].1 = 59 * 86_400), ["‼ no certificate authority ends soon"]);
    assert_eq!(changed(|f| f.injector = Ok(None)), ["× pods are injected"]);
    assert_eq!(
        changed(|f| there(&mut f.validator)["webhooks"][0]["clientConfig"]["caBundle"] = json!("")),
        ["× the validator's certificate is known"]
    );
    assert_eq!(
        changed(|f| there(&mut f.injector)["webhooks"][0]["failurePolicy"] = json!("Fail")),
        ["‼ their failure policy fits the number of controllers"]
    );
    assert_eq!(changed(|f| f.members = Members::default()), ["‼ namespaces take part"]);
    assert_eq!(
        changed(|f| f.members.without_sidecar = vec!["bookstore/old".into()]),
        ["‼ their pods have sidecars"]
    );
    let restarted =
        json!({ "metadata": { "name": "a" }, "status": { "containerStatuses": [{ "restartCount": 2 }] } });
    assert_eq!(changed(|f| f.pods = vec![restarted]), ["‼ they do not restart"]);
}

#[test]
fn sidecars_that_are_not_connected_are_named() {
    let pods =
        |count: usize| (0..count).map(|number| (format!("shop/{number}"), format!("u{number}"))).collect();
    let connection = |count: usize, connected: &[&str]| {
        let pods: Vec<_> = pods(count);
        connection(&pods, &connected.iter().map(|&uuid| (uuid.to_owned(), true)).collect())
    };
    assert_eq!(connection(0, &[]), Verdict::Pass);
    assert_eq!(connection(2, &["u0", "u1", "of another mesh"]), Verdict::Pass);
    let some = "1 of 2 are connected; not those of shop/1".to_owned();
    assert_eq!(connection(2, &["u0"]), Verdict::Warning(some));
    let none =
        "0 of 7 are connected; not those of shop/0, shop/1, shop/2, shop/3, shop/4 and 2 more".to_owned();
    assert_eq!(connection(7, &[]), Verdict::Failure(none));
    assert_eq!(
        changed(|f| f.proxies = Ok([("u".to_owned(), false)].into())),
        ["× their sidecars are connected"]
    );
}

/// The problem of the check with this sentence.
fn problem(facts: &Facts, sentence: &str) -> String {
    let found = after(facts).into_iter().find(|check| check.sentence == sentence).unwrap();
    match found.verdict {
        Verdict::Pass => String::new(),
        Verdict::Warning(problem) | Verdict::Failure(problem) => problem,
    }
}

#[test]
fn a_mesh_that_refuses_every_call_is_found() {
    let (silent, unseen) = (|| Err("no answer".to_owned()), || Err("forbidden".to_owned()));
    let config = |permissive: bool| {
        Ok(Some(json!({ "spec": { "traffic": { "enablePermissiveTrafficPolicyMode": permissive } } })))
    };
    let (yes, no) = (Some(true), Some(false));
    let found = ["‼ some traffic is allowed"];
    for (when, granted, config, any_rule, any_ingress, finds) in [
        ("the controllers allow nothing", Ok(false), config(false), no, no, true),
        ("a TrafficTarget allows nothing", Ok(false), config(false), yes, no, true),
        ("the controllers allow something", Ok(true), config(false), no, no, false),
        ("calls from outside are allowed", Ok(false), config(false), no, yes, false),
        ("nothing is declared", silent(), config(false), no, no, true),
        ("all is declared open", silent(), config(true), no, no, false),
        ("a TrafficTarget is declared", silent(), config(false), yes, no, false),
        ("a person may not see MeshConfig", silent(), unseen(), no, no, true),
        ("a person may not see the rules", silent(), config(false), None, None, true),
        ("a person sees one that allows", silent(), unseen(), yes, None, false),
    ] {
        let seen = config.is_ok();
        let granted = granted.map(|any| Granted { any, open_ports: 0 });
        let mut facts = Facts { granted, config, ..healthy() };
        (facts.members.any_rule, facts.members.any_ingress) = (any_rule, any_ingress);
        // Before the pods have their sidecars, and in the first minute of these, nothing is allowed either.
        for with_sidecar in [facts.members.with_sidecar.clone(), vec![]] {
            facts.members.with_sidecar = with_sidecar;
            let mut findings = findings(&after(&facts));
            findings.retain(|finding| seen || finding != "‼ there is a MeshConfig");
            assert_eq!(findings, if finds { &found[..] } else { &[] }, "{when}");
        }
    }
    let closed = Facts { granted: Ok(Granted { any: false, open_ports: 0 }), ..healthy() };
    let said = problem(&closed, "some traffic is allowed");
    assert!(said.contains("smc namespace add bookstore --permissive opens"), "{said}");
    let none = Facts { config: Ok(None), ..closed };
    assert_eq!(findings(&after(&none)), ["‼ there is a MeshConfig", "‼ some traffic is allowed"]);
}

#[test]
fn what_sidecars_hold_in_permissive_mode_is_mentioned_where_it_is_much() {
    let sentence = "sidecars hold what their pods call";
    let said = |sidecars: usize, open_ports: usize| {
        let proxies = (0..sidecars).map(|number| (number.to_string(), true)).collect();
        let granted = Ok(Granted { any: true, open_ports });
        problem(&Facts { proxies: Ok(proxies), granted, ..healthy() }, sentence)
    };
    assert_eq!([said(1000, 0), said(10, 1000), said(1000, 40)], ["", "", ""]);
    assert!(said(400, 900).contains("each of 400 sidecars holds 900 ports of services, some 87 MiB, 34 GiB"));
    assert_eq!(said(10, usize::MAX), "", "more than can be counted is no figure");
}

#[test]
fn rights_that_were_lost_are_named_with_what_gives_them_back() {
    let sentence = "the controllers have their rights";
    let of_kind = |kind: &str, found: Found| {
        let mut facts = healthy();
        let right = facts.rights.iter_mut().find(|right| right.expected["kind"] == kind).unwrap();
        right.found = found;
        facts
    };
    let lost = of_kind("ClusterRoleBinding", Ok(None));
    assert_eq!(findings(&after(&lost)), [format!("× {sentence}")]);
    assert_eq!(problem(&lost, sentence), "the ClusterRoleBinding smc-controller-smc is missing: smc upgrade");
    let unseen = of_kind("ClusterRole", Err("cannot read ClusterRole smc-controller-smc".to_owned()));
    assert_eq!(findings(&after(&unseen)), [format!("‼ {sentence}")]);
    assert_eq!(problem(&unseen, sentence), "unknown: cannot read ClusterRole smc-controller-smc");
    let mut helm = lost;
    helm.set.as_mut().unwrap()["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("mesh");
    let said = problem(&helm, sentence);
    assert!(said.ends_with(": helm upgrade mesh charts/smc -n smc-system"), "{said}");
}

#[test]
fn a_namespace_of_no_mesh_and_one_that_leaves_are_found() {
    let stray = |sidecars| {
        let mut facts = healthy();
        let (namespace, mesh) = ("bookstore".to_owned(), "smcc".to_owned());
        facts.members.strays = vec![Stray { namespace, mesh, sidecars }];
        facts
    };
    let sentence = "every namespace names a mesh that is there";
    assert_eq!(findings(&after(&stray(0))), [format!("‼ {sentence}")]);
    assert_eq!(findings(&after(&stray(2))), [format!("× {sentence}")], "its calls fail");
    let mut beside_others = stray(2);
    beside_others.members.other_meshes = true;
    assert_eq!(findings(&after(&beside_others)), [format!("‼ {sentence}")], "it may be another's");
    let said = problem(&stray(2), sentence);
    for named in
        ["bookstore for smcc", "kubectl label namespace bookstore openservicemesh.io/monitored-by=smc "]
    {
        assert!(said.contains(named), "{said}");
    }
    let mut facts = healthy();
    facts.members.leaving = vec![("bookstore".to_owned(), 2)];
    assert_eq!(findings(&after(&facts)), ["‼ no namespace is about to leave"]);
    let said = problem(&facts, "no namespace is about to leave");
    for named in
        ["bookstore (2)", "rollout restart", "smc namespace remove bookstore", "smc namespace add bookstore"]
    {
        assert!(said.contains(named), "{said}");
    }
    let unseen = changed(|facts| facts.members = Members { unseen: Some("f".into()), ..Members::default() });
    assert_eq!(unseen, ["‼ namespaces take part"]);
}

/// Where the finding leads nowhere else, it names what to type.
#[test]
fn a_webhook_that_is_lost_and_a_key_that_is_lost_name_the_way_back() {
    let elsewhere = |facts: &mut Facts| {
        there(&mut facts.injector)["webhooks"][0]["clientConfig"]["service"]["namespace"] =
            json!("other-system");
    };
    let mut facts = healthy();
    elsewhere(&mut facts);
    let expected =
        "the MutatingWebhookConfiguration smc-injector-smc leads to the namespace other-system: smc upgrade";
    assert_eq!(problem(&facts, "pods are injected"), expected);
    let missing = Facts { validator: Ok(None), mesh: "smc".into(), ..healthy() };
    let expected = "the ValidatingWebhookConfiguration smc-validator-smc is missing: smc upgrade";
    assert_eq!(problem(&missing, "objects are validated"), expected);
    let unseen = Facts { validator: Err("forbidden".into()), ..healthy() };
    assert_eq!(findings(&after(&unseen)), ["‼ objects are validated"]);
    let lost = problem(&Facts { key: Key::Missing, ..healthy() }, "there is a key-encryption key");
    for named in ["Secret smc-system/smc-kek", "kubectl replace --force -f", "do not restart the controllers"]
    {
        assert!(lost.contains(named), "{lost}");
    }
    let new = Facts { key: Key::Missing, sealed_with: vec![], group: Err("none".into()), ..healthy() };
    let said = problem(&new, "there is a key-encryption key");
    assert!(said.contains("-c kek") && !said.contains("copy"), "{said}");
}

#[test]
fn a_mesh_of_another_name_is_the_one_finding() {
    let checks = after(&Facts { mesh: "smcc".into(), ..healthy() });
    assert_eq!(checks.last().unwrap().sentence, NAME);
    let expected = "the mesh of smc-system is smc: smc check --mesh-name smc";
    assert_eq!(checks.last().unwrap().verdict, Verdict::Failure(expected.to_owned()));
}

#[test]
fn an_image_that_cannot_be_pulled_is_the_reason_that_is_shown() {
    let pod = |ordinal: u64, image: &str, state: Value| {
        json!({ "metadata": { "name": format!("smc-controller-{ordinal}") },
            "spec": { "containers": [{ "name": "controller", "image": image }] },
            "status": { "containerStatuses": [{ "name": "controller", "state": state }] } })
    };
    let version = env!("CARGO_PKG_VERSION");
    let (former, wrong) = (format!("smc:{version}"), "registry.example/smc:9");
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff" } });
    let runs = || json!({ "running": {} });
    let mut facts = Facts { pods: vec![pod(0, &former, waiting.clone())], ..healthy() };
    facts.set.as_mut().unwrap()["status"]["readyReplicas"] = json!(0);
    let sentence = "all controllers run and are ready";
    let alone = "0 of 1 controllers are ready; smc-controller-0: controller: ImagePullBackOff; to name another: smc \
                 upgrade --image IMAGE";
    assert_eq!(problem(&facts, sentence), alone);
    // An upgrade to an image that is nowhere: only the pod that was made last has it.
    facts.pods = vec![pod(0, &former, runs()), pod(1, &former, runs()), pod(2, wrong, waiting)];
    let set = facts.set.as_mut().unwrap();
    (set["spec"]["replicas"], set["spec"]["template"]["spec"]["containers"][0]["image"]) =
        (json!(3), json!(wrong));
    set["status"] =
        json!({ "updatedReplicas": 1, "readyReplicas": 2, "currentRevision": "a", "updateRevision": "b" });
    let expected = format!(
        "the change has reached 1 of 3 controllers, and 2 of all are ready; smc-controller-2: controller: \
         ImagePullBackOff; to go back: smc upgrade --image {former}"
    );
    assert_eq!(problem(&facts, sentence), expected);
    let expected = format!("smc-controller-2 has {wrong}; this program is {version}");
    assert_eq!(problem(&facts, "they are of this program's version"), expected);
    let stuck = changed(|f| f.members.stuck_sidecars = vec!["shop/web: envoy: ErrImagePull".into()]);
    assert_eq!(stuck, ["× their sidecars start"]);
    let left = |uuid: &str| changed(|f| f.members.left_sidecars = vec![("former/web".into(), uuid.into())]);
    assert_eq!(left("u"), ["× no sidecar is left behind"]);
    assert_eq!(left("of another mesh"), Vec::<String>::new());
}

/// Volumes outlive an installation, and with them the group that is on them.
#[test]
fn controllers_that_are_too_few_for_the_group_on_their_disks_are_found() {
    let command = |voters: &[u64], leader, replicas| {
        let group = Group { leader, voters: voters.to_vec(), ..Group::default() };
        let found = too_few(&group, "smc-system", replicas)?;
        found.rsplit_once(": ").map(|(_, command)| command.to_owned())
    };
    let to = |replicas: u64| {
        Some(format!("kubectl scale statefulset smc-controller -n smc-system --replicas={replicas}"))
    };
    assert_eq!(command(&[0, 1, 2], None, 1), to(3));
    assert_eq!(command(&[0, 1, 2, 3, 4], None, 2), to(5));
    assert_eq!(command(&[1, 2, 4], None, 2), to(5));
    assert_eq!(command(&[0, 1, 2], None, 2), None, "two of three are a majority");
    assert_eq!(command(&[0, 1, 2], Some(0), 1), None, "a group with a leader becomes smaller by itself");
    assert_eq!(command(&[], None, 1), None, "no group yet");
    let waiting = changed(|facts| {
        let group = facts.group.as_mut().unwrap();
        (group.leader, group.voters, group.silent) = (None, vec![0, 1, 2], vec![1, 2]);
    });
    let expected = [
        "× their group has a leader",
        "× enough of their group is asked for",
        "‼ all members of their group answer",
        "‼ every controller votes",
    ];
    assert_eq!(waiting, expected);
}

#[test]
fn a_disk_that_cannot_be_used_is_exchanged_where_there_is_a_leader() {
    let former =
        "smc: a person restored or recovered the group 02 in place of 01, which this replica belongs to";
    let other = "smc: the ledger's files are those of replica 1, and this is replica 2";
    let command =
        "kubectl delete -n smc-system persistentvolumeclaim/data-smc-controller-2 pod/smc-controller-2";
    for (words, state, ready, leader, found) in [
        (former, "state", false, Some(0), true),
        (former, "lastState", false, Some(0), true),
        (other, "lastState", false, Some(0), true),
        (former, "lastState", true, Some(0), false),
        (other, "lastState", false, None, false),
        ("smc: the clock is wrong", "lastState", false, Some(0), false),
    ] {
        let container =
            json!({"name": "controller", "ready": ready, state: {"terminated": {"message": words}}});
        let status = json!({"containerStatuses": [container]});
        let pod = json!({"metadata": {"name": "smc-controller-2"}, "status": status});
        let mut facts = Facts { pods: vec![pod], ..healthy() };
        facts.group.as_mut().unwrap().leader = leader;
        let said = after(&facts).into_iter().find_map(|check| match check.verdict {
            Verdict::Failure(text) if check.hint == "disks-of-others" => Some(text),
            _ => None,
        });
        assert_eq!(
            said.is_some_and(|said| said.ends_with(command)),
            found,
            "{words}, {state}, {ready}, {leader:?}"
        );
    }
}

#[test]
fn an_empty_cluster_can_take_an_installation_and_a_taken_one_cannot() {
    let empty = || Facts { set: None, injector: Ok(None), ..healthy() };
    assert_eq!(findings(&before(&empty())), Vec::<String>::new());
    let denied = Facts { denied: vec!["create clusterroles".into()], ..empty() };
    assert_eq!(findings(&before(&denied)), ["× you may create what SMC consists of"]);
    assert_eq!(findings(&before(&healthy())), ["× SMC is not installed in this namespace"]);
    let elsewhere = Facts { set: None, namespace: "blue-system".into(), ..healthy() };
    assert_eq!(findings(&before(&elsewhere)), ["× the name of the mesh is free"]);
    let diskless = Facts { default_storage_class: Some(false), ..empty() };
    assert_eq!(findings(&before(&diskless)), ["‼ controllers get disks"]);
}

/// One that comes back has a warning until it has caught up, and with a warning a check passes.
#[test]
fn a_check_that_waits_waits_for_each_controller_to_vote() {
    let settles = |replicas: u64, voters: &[u64]| {
        let mut facts = healthy();
        facts.set.as_mut().unwrap()["spec"]["replicas"] = replicas.into();
        facts.group.as_mut().unwrap().voters = voters.to_vec();
        settling(&facts)
    };
    assert!(!settles(1, &[0]) && !settles(3, &[0, 1, 2]));
    assert!(settles(3, &[1, 2]) && settles(3, &[0]) && settles(2, &[1, 2]));
    // Fewer than there are is what a person chose.
    assert!(!settles(1, &[0, 1, 2]) && !settles(0, &[0]));
    assert!(!settling(&Facts { group: Err("refused".to_owned()), ..healthy() }), "that is a failure");
}

#[test]
fn a_group_without_a_leader_learns_its_last_resort() {
    let said = |voters: &[u64], silent: &[u64]| {
        let (voters, silent) = (voters.to_vec(), silent.to_vec());
        let group = Group { voters, silent, waits_for: Some("a leader".to_owned()), ..Group::default() };
        let checks = after(&Facts { group: Ok(group), ..healthy() });
        let leader = checks.into_iter().find(|check| check.hint == "no-leader").unwrap();
        let Verdict::Failure(text) = leader.verdict else { panic!("{leader:?}") };
        text
    };
    for (sentence, voters, silent, command) in [
        ("an election", vec![0, 1, 2], vec![2], None),
        ("the majority is lost", vec![0, 1, 2], vec![0, 1], Some("smc cluster recover")),
        ("all are lost", vec![], vec![], Some("smc cluster restore")),
    ] {
        let text = said(&voters, &silent);
        for known in ["smc cluster recover", "smc cluster restore"] {
            assert_eq!(text.contains(known), command == Some(known), "{sentence}: {text}");
        }
    }
}
