use super::*;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec: {containers: []}\n";

fn files(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

fn documents(yaml: &[u8]) -> Vec<&str> {
    split(std::str::from_utf8(yaml).unwrap()).map(|document| document.text).collect()
}

fn status(ready: bool) -> BTreeMap<NamespacedName, PodStatus> {
    BTreeMap::from([(
        NamespacedName::new("shop", "a").unwrap(),
        PodStatus {
            addresses: vec!["10.244.0.2".parse().unwrap()],
            running: ready,
            ready,
            proxy_uuid: Some("u-1".to_owned()),
        },
    )])
}

#[test]
fn a_pod_gets_its_status_and_other_documents_stay_unchanged() {
    let broken = "kind: [unclosed\n";
    let input = files(&[("a.yaml", &format!("# top\n---\n{POD}---\n{broken}"))]);
    let published =
        MeshFiles::parse(&input).publish(&status(true), &BTreeMap::new(), &BTreeMap::new(), "node");
    let documents = documents(&published["a.yaml"]);
    assert_eq!(documents.len(), 2, "{documents:?}");
    let pod: Value = serde_saphyr::from_str(documents[0]).unwrap();
    assert_eq!(pod["status"]["podIP"], "10.244.0.2");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["metadata"]["labels"]["osm-proxy-uuid"], "u-1");
    assert_eq!(documents[1], format!("---\n{broken}"));
}

#[test]
fn a_service_gets_its_addresses_and_a_headless_one_stays_headless() {
    let service = |name: &str, ip: &str| {
        let spec = format!("spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}");
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n{spec}\n")
    };
    let text = format!("{}---\n{}", service("a", "''"), service("b", "None"));
    let assigned = [("a", vec!["10.96.0.10".parse().unwrap()]), ("b", Vec::new())];
    let assigned = assigned.map(|(name, ips)| (NamespacedName::new("shop", name).unwrap(), ips)).into();
    let mesh = MeshFiles::parse(&files(&[("s.yaml", &text)]));
    let published = mesh.publish(&BTreeMap::new(), &BTreeMap::new(), &assigned, "node");
    let services: Vec<Value> = documents(&published["s.yaml"])
        .into_iter()
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    assert_eq!(services[0]["spec"]["clusterIP"], "10.96.0.10");
    assert_eq!(services[1]["spec"]["clusterIP"], "None");
}

#[test]
fn files_without_pods_and_services_are_passed_on_byte_for_byte() {
    let input = files(&[
        ("split.yaml", "# c\nkind: TrafficSplit\n---\n\n---\nx: y   \n"),
        ("broken.yaml", "\t{{{\n"),
        ("notes.txt", "hello"),
    ]);
    assert_eq!(
        MeshFiles::parse(&input).publish(&status(true), &BTreeMap::new(), &BTreeMap::new(), "node"),
        input
    );
}

#[test]
fn a_service_gets_its_virtual_ips_and_a_headless_one_stays_headless() {
    let service = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n---\n"
        )
    };
    let text = service("peers", "{clusterIP: None, selector: {app: web}}")
        + &service("web", "{selector: {app: web}}");
    let name = |name: &str| NamespacedName::new("shop", name).unwrap();
    let ips = BTreeMap::from([(name("peers"), vec![]), (name("web"), vec!["10.96.0.10".parse().unwrap()])]);
    let mesh = MeshFiles::parse(&files(&[("a.yaml", &text)]));
    let published = mesh.publish(&BTreeMap::new(), &BTreeMap::new(), &ips, "node");
    let specs: Vec<Value> = documents(&published["a.yaml"])
        .into_iter()
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap()["spec"].clone())
        .collect();
    assert_eq!(specs[0], json!({"clusterIP": "None", "selector": {"app": "web"}}));
    assert_eq!(specs[1]["clusterIPs"], json!(["10.96.0.10"]));
}

#[test]
fn a_pod_that_cannot_be_read_is_passed_on_and_named() {
    let input = files(&[("a.yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: ../x}\n")]);
    let mesh = MeshFiles::parse(&input);
    assert!(mesh.pods.is_empty());
    assert_eq!(mesh.problems.len(), 1);
    assert_eq!(mesh.publish(&BTreeMap::new(), &BTreeMap::new(), &BTreeMap::new(), "node"), input);
}

#[test]
fn a_duplicate_pod_is_passed_on_but_only_the_first_runs() {
    let input = files(&[("a.yaml", POD), ("b.yaml", POD)]);
    let mesh = MeshFiles::parse(&input);
    let published = mesh.publish(&status(true), &BTreeMap::new(), &BTreeMap::new(), "node");
    assert_eq!(mesh.pods.len(), 1);
    assert_ne!(published["a.yaml"], input["a.yaml"]);
    assert_eq!(published["b.yaml"], input["b.yaml"]);
}

/// Whether another one of its name is declared meanwhile, the file is without it, or gone.
#[test]
fn a_pod_that_is_ending_stays_as_it_was_with_a_deletion_timestamp() {
    let input = files(&[("a.yaml", &format!("x: y\n---\n{POD}"))]);
    let before = MeshFiles::parse(&input);
    let declared = |name: &NamespacedName| before.declared(name).unwrap().clone();
    let ending: BTreeMap<_, _> = status(true)
        .into_iter()
        .map(|(name, status)| (name.clone(), Ending { declared: declared(&name), status }))
        .collect();
    let another = POD.replace("containers: []", "containers: [], hostname: another");
    for (text, others) in
        [(Some(format!("x: y\n---\n{another}")), 1), (Some("x: y\n".to_owned()), 1), (None, 0)]
    {
        let text: Vec<_> = text.iter().map(|text| ("a.yaml", text.as_str())).collect();
        let mesh = MeshFiles::parse(&files(&text));
        let published = mesh.publish(&BTreeMap::new(), &ending, &BTreeMap::new(), "node");
        let documents = documents(&published["a.yaml"]);
        let pod: Value = serde_saphyr::from_str(documents[0]).unwrap();
        assert_eq!(pod["metadata"]["deletionTimestamp"], "1970-01-01T00:00:00Z");
        assert_eq!(pod["metadata"]["labels"]["osm-proxy-uuid"], "u-1");
        assert_eq!((&pod["status"]["podIP"], &pod["spec"]["hostname"]), (&json!("10.244.0.2"), &Value::Null));
        assert_eq!(documents.len(), 1 + others, "{documents:?}");
    }
}

#[test]
fn only_the_mesh_config_of_the_meshs_own_namespace_counts() {
    let config = |name: &str, namespace: &str, port: u16| {
        format!(
            "apiVersion: config.openservicemesh.io/v1alpha2\nkind: MeshConfig\n\
             metadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{traffic: {{outboundPortExclusionList: [{port}]}}}}\n"
        )
    };
    let input = files(&[
        ("a.yaml", &config("osm-mesh-config", "tenant", 1)),
        ("b.yaml", &config("other", "smc-system", 2)),
        ("c.yaml", &config("osm-mesh-config", "smc-system", 3)),
    ]);
    let ports = |mesh: MeshFiles| mesh.traffic["outboundPortExclusionList"][0].clone();
    assert_eq!(ports(MeshFiles::parse(&input)), 3);
    assert_eq!(ports(MeshFiles::parse_for(&input, &MeshNamespace::new("tenant").unwrap())), 1);
    assert_eq!(ports(MeshFiles::parse_for(&input, &MeshNamespace::new("else").unwrap())), Value::Null);
}

#[test]
fn a_deployment_is_published_with_its_pods() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n\
        spec: {replicas: 2, template: {metadata: {labels: {app: web}}, spec: {containers: []}}}\n";
    let input = files(&[("d.yaml", &format!("{deployment}---\nkind: Job\nmetadata: {{name: j}}\n"))]);
    let mesh = MeshFiles::parse(&input);
    let names: Vec<_> = mesh.pods.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["shop/web-0", "shop/web-1"]);
    assert_eq!(mesh.problems, ["d.yaml: the lab runs no Jobs"]);
    let mut pods = status(true);
    let running = pods.pop_first().unwrap().1;
    pods.insert(NamespacedName::new("shop", "web-1").unwrap(), running);
    let published = mesh.publish(&pods, &BTreeMap::new(), &BTreeMap::new(), "node");
    let documents: Vec<Value> = documents(&published["d.yaml"])
        .into_iter()
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Deployment", "Pod", "Pod", "Job"]);
    assert_eq!(documents[1]["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(documents[1]["status"], Value::Null);
    assert_eq!(documents[2]["status"]["podIP"], "10.244.0.2");
}

#[test]
fn a_marker_with_content_on_its_line_starts_a_document() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {containers: []}}";
    let input = files(&[("a.yaml", &format!("a: 1\n--- {pod}\n---\n# only a comment\n"))]);
    let mesh = MeshFiles::parse(&input);
    assert_eq!(mesh.problems, Vec::<String>::new());
    let published = mesh.publish(&status(true), &BTreeMap::new(), &BTreeMap::new(), "node");
    let documents = documents(&published["a.yaml"]);
    assert_eq!((documents.len(), documents[0]), (2, "a: 1\n"), "{documents:?}");
    assert!(documents[1].contains("10.244.0.2"), "{documents:?}");
}

#[test]
fn a_machine_gets_the_labs_address_and_ends_with_a_deletion_timestamp() {
    let machine = |annotation: &str| {
        format!(
            "apiVersion: mesh.smc.dev/v1alpha1\nkind: MeshWorkload\nmetadata: {{name: a, namespace: shop, \
             annotations: {{{annotation}}}}}\nspec: {{addresses: [192.0.2.1], serviceAccountName: a, services: [web]}}\n"
        )
    };
    let runs = files(&[("m.yaml", &machine("lab.mesh.smc.dev/command: '[sleep, infinity]'"))]);
    let mesh = MeshFiles::parse(&runs);
    let name = NamespacedName::new("shop", "a").unwrap();
    assert_eq!(mesh.machines[&name], ["web"]);
    let declared = mesh.declared(&name).unwrap().clone();
    let read = |ending: &BTreeMap<NamespacedName, Ending>| -> Value {
        let published = mesh.publish(&status(true), ending, &BTreeMap::new(), "node");
        serde_saphyr::from_str(documents(&published["m.yaml"])[0]).unwrap()
    };
    let published = read(&BTreeMap::new());
    assert_eq!(published["spec"]["addresses"], json!(["10.244.0.2"]));
    assert_eq!(published.get("status"), None);
    let status = status(false).remove(&name).unwrap();
    let ending = read(&BTreeMap::from([(name, Ending { declared, status })]));
    assert_eq!(ending["spec"]["addresses"], json!(["10.244.0.2"]));
    assert!(ending["metadata"]["deletionTimestamp"].is_string());

    // A machine that runs elsewhere is the controller's affair alone, and so is one whose name is taken.
    let elsewhere = files(&[("m.yaml", &machine(""))]);
    let mesh = MeshFiles::parse(&elsewhere);
    assert!(mesh.pods.is_empty() && mesh.problems.len() == 1, "{:?}", mesh.problems);
    assert_eq!(mesh.publish(&BTreeMap::new(), &BTreeMap::new(), &BTreeMap::new(), "node"), elsewhere);
    let both = format!("{POD}---\n{}", machine("lab.mesh.smc.dev/command: '[x]'"));
    let mesh = MeshFiles::parse(&files(&[("m.yaml", &both)]));
    assert!(mesh.machines.is_empty() && mesh.pods.len() == 1, "{:?}", mesh.problems);
}
