use super::super::mesh_files::Files;
use super::*;

const MESHED: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}\n";

fn plan(namespace: &str, pod: &str) -> Result<PodPlan, String> {
    let files: Files = BTreeMap::from([("a.yaml".to_owned(), format!("{namespace}---\n{pod}").into_bytes())]);
    let mesh = MeshFiles::parse(&files);
    assert_eq!(mesh.problems, Vec::<String>::new());
    let (name, pod) = mesh.pods.first_key_value().unwrap();
    PodPlan::new(name, pod, &mesh, vec!["10.244.0.2".parse().unwrap()])
}

fn pod(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: shop{metadata}}}\nspec: {{containers: [{{name: app, command: [app]}}]{spec}}}\n"
    )
}

#[test]
fn labels_and_annotations_decide_who_is_in_the_mesh() {
    let off = "annotations: {openservicemesh.io/sidecar-injection: disabled}";
    let plain = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let namespace_off = MESHED.replace("labels:", &format!("{off}, labels:"));
    let on = ", annotations: {openservicemesh.io/sidecar-injection: enabled}";
    let ignored = MESHED.replace("smc}", "smc, openservicemesh.io/ignore: 'true'}");
    for (namespace, metadata, spec, expected) in [
        (MESHED, "", "", true),
        (plain, "", "", false),
        (plain, on, "", false),
        (MESHED, &*format!(", {off}"), "", false),
        (&*namespace_off, "", "", false),
        (&*namespace_off, on, "", true),
        (MESHED, ", annotations: {openservicemesh.io/sidecar-injection: enable}", "", false),
        (&*ignored, "", "", false),
        (MESHED, "", ", hostNetwork: true", false),
    ] {
        let plan = plan(namespace, &pod(metadata, spec)).unwrap();
        assert_eq!(plan.in_mesh, expected, "{namespace} {metadata} {spec}");
    }
}

#[test]
fn exclusions_of_pod_and_mesh_are_joined() {
    let annotations = ", annotations: {openservicemesh.io/outbound-port-exclusion-list: ' 5432,25', openservicemesh.io/inbound-port-exclusion-list: '-1'}";
    let config = "apiVersion: config.openservicemesh.io/v1alpha2\nkind: MeshConfig\nmetadata: {name: osm-mesh-config, namespace: smc-system}\nspec: {traffic: {outboundPortExclusionList: [25, 9], outboundIPRangeExclusionList: [10.0.0.0/8]}}\n---\n";
    let plan = plan(MESHED, &format!("{config}{}", pod(annotations, ""))).unwrap();
    assert_eq!(
        plan.init_flags,
        [
            "--exclude-outbound-port=25",
            "--exclude-outbound-port=5432",
            "--exclude-outbound-port=9",
            "--exclude-inbound-port=-1",
            "--exclude-outbound-cidr=10.0.0.0/8"
        ]
    );
}

#[test]
fn commands_arguments_and_environment() {
    let spec = "apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec:
  serviceAccountName: buyer
  securityContext: {runAsUser: 2000}
  containers:
  - name: app
    command: [app, --ip, $(IP)]
    args: ['$(UNKNOWN)', '$$(IP)', '5$']
    env:
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: URL, value: 'http://$(IP):80'}
    ports: [{name: web, containerPort: 8080}]
    readinessProbe: {httpGet: {port: web}}
  - name: root
    command: [app]
    securityContext: {runAsUser: 0}
";
    let plan = plan("", spec).unwrap();
    let app = &plan.containers[0];
    assert_eq!(app.argv, ["app", "--ip", "10.244.0.2", "$(UNKNOWN)", "$(IP)", "5$"]);
    assert_eq!(app.env["URL"], "http://10.244.0.2:80");
    assert_eq!((app.uid, app.gid), (2000, 2000));
    assert_eq!(app.probe.as_ref().unwrap().check, Check::Http { port: 8080, path: "/".to_owned() });
    assert_eq!(plan.containers[1].uid, 0);
    assert_eq!(plan.service_account, "buyer");
}

#[test]
fn a_container_without_a_command_is_refused_in_one_line() {
    let pod = pod("", "").replace(", command: [app]", ", image: nginx");
    assert_eq!(plan("", &pod).unwrap_err(), "container app: the lab has no images, so it needs `command`");
}

#[test]
fn a_replaced_pod_gets_a_new_uuid_unless_its_label_has_one() {
    let name = WorkloadId::new("shop", "a").unwrap();
    let plain = Pod::default();
    assert_eq!(proxy_uuid(&name, &plain, 1), proxy_uuid(&name, &plain, 1));
    assert_ne!(proxy_uuid(&name, &plain, 1), proxy_uuid(&name, &plain, 2));
    let mut labelled = Pod::default();
    labelled.metadata.labels = Some(BTreeMap::from([(PROXY_UUID_LABEL.to_owned(), "mine".to_owned())]));
    assert_eq!(proxy_uuid(&name, &labelled, 2), "mine");
    let machine = WorkloadId::machine(name.as_name().clone());
    assert_eq!(proxy_uuid(&machine, &plain, 1), proxy_uuid(&machine, &plain, 2));
    assert_eq!(proxy_uuid(&machine, &labelled, 1), "mine");
}
