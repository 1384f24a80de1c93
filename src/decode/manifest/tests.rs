//! Whole files in, declarations and problems out.

use std::fmt::Write as _;

use proptest::prelude::*;
use smc_types::problem::Severity::{self, Error, Warning};

use super::*;

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: bookstore, namespace: shop}
spec: {ports: [{port: 80}]}
";

fn read_text(text: &str) -> Manifest {
    read("shop.yaml", text.as_bytes())
}

/// Which objects are in effect, and which are named but refused (with a `!`).
fn declared(manifest: &Manifest) -> Vec<String> {
    let mark = |refused| if refused { "!" } else { "" };
    let show = |d: &Arc<Declaration>| format!("{}{}", mark(d.object.is_none()), d.reference);
    manifest.declarations.iter().map(show).collect()
}

#[track_caller]
fn assert_found(manifest: &Manifest, expected: &[(Severity, &str, &str)]) {
    let subjects: Vec<_> = manifest.problems.iter().map(|p| p.subject.to_string()).collect();
    let problems = manifest.problems.iter().zip(&subjects);
    let found: Vec<_> =
        problems.map(|(p, subject)| (p.severity, subject.as_str(), p.field.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_kind_of_the_mesh_is_read_from_one_file() {
    let manifest = read_text(
        r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: seller, namespace: shop}
automountServiceAccountToken: false
---
apiVersion: v1
kind: Pod
metadata: {name: store-1, namespace: shop, labels: {app: store}}
spec:
  serviceAccountName: seller
  containers: [{name: main, image: store, command: [/bin/store], ports: [{name: http, containerPort: 8080}]}]
status: {podIP: 10.0.0.1}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.9]}]
ports: [{name: sql, port: 5432}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: routes, namespace: shop}
spec: {matches: [{name: all, pathRegex: ".*", methods: ["*"]}]}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: sql, namespace: shop}
spec: {matches: {ports: [5432]}}
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: buy, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: seller, namespace: shop}
  sources: [{kind: ServiceAccount, name: buyer, namespace: shop}]
  rules: [{kind: HTTPRouteGroup, name: routes, matches: [all]}]
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: split, namespace: shop}
spec: {service: store, backends: [{service: store-v1, weight: 50}, {service: store-v2, weight: 50}]}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: smc-system}
spec: {traffic: {enablePermissiveTrafficPolicyMode: false}}
---
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "store", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}
"#,
    );
    assert_eq!(manifest.problems, []);
    assert!(manifest.complete);
    assert_eq!(
        declared(&manifest),
        [
            "Namespace shop",
            "ServiceAccount shop/seller",
            "Pod shop/store-1",
            "EndpointSlice shop/db-1",
            "HTTPRouteGroup shop/routes",
            "TCPRoute shop/sql",
            "TrafficTarget shop/buy",
            "TrafficSplit shop/split",
            "MeshConfig smc-system/osm-mesh-config",
            "Service shop/store",
        ]
    );
    let lines: Vec<usize> = manifest.declarations.iter().map(|d| d.origin.line).collect();
    assert_eq!(lines, [2, 6, 11, 19, 26, 31, 36, 44, 49, 54]);
}

#[test]
fn an_object_without_a_namespace_is_in_default() {
    let manifest = read_text("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n");
    assert_eq!(declared(&manifest), ["ServiceAccount default/a"]);
}

#[test]
fn lists_are_read_item_by_item_and_typed_lists_lend_their_kind() {
    let manifest = read_text(
        "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}
-
- {apiVersion: v1, kind: List, items: []}
- 7
- {kind: Pod}
---
apiVersion: v1
kind: ServiceAccountList
items:
- metadata: {name: b}
---
apiVersion: v1
kind: List
",
    );
    assert_eq!(declared(&manifest), ["ServiceAccount default/a", "ServiceAccount default/b"]);
    let expected = [
        (Error, "shop.yaml:2", "items[2]"),
        (Error, "shop.yaml:2", "items[3]"),
        (Error, "shop.yaml:2", "items[4].apiVersion"),
    ];
    assert_found(&manifest, &expected);
    assert!(!manifest.complete);
}

#[test]
fn a_document_that_is_broken_costs_no_other() {
    for broken in [
        "a: [1, 2",
        "a: b: c",
        "\tkind: Pod",
        "kind: Pod\nkind: Pod",
        "x: *nowhere",
        "\"unterminated",
        "a: |\n  text\n b: 2",
        "%TAG ! x",
        "just text",
        "[1, 2]",
        "kind: Service",
        "apiVersion: v1",
        "apiVersion: v1\nkind: Pod",
        "apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop}",
        "apiVersion: v1\nkind: Pod\nmetadata: [x]",
        "apiVersion: v1\nkind: 7\nmetadata: {name: x}",
        "a: \u{7}",
    ] {
        let text = format!("# first\n---\n{broken}\n---\n{SERVICE}");
        let manifest = read_text(&text);
        assert_eq!(declared(&manifest), ["Service shop/bookstore"], "{broken}");
        // A directive alone is no document, so nothing of the file's author was lost.
        if broken == "%TAG ! x" {
            continue;
        }
        assert_eq!(manifest.problems.len(), 1, "{broken}: {:?}", manifest.problems);
        assert!(
            manifest.problems[0].subject.to_string().starts_with("shop.yaml:"),
            "{:?}",
            manifest.problems
        );
        assert_eq!(manifest.problems[0].severity, Error);
        assert!(!manifest.complete, "{broken}");
    }
}

#[test]
fn broken_yaml_is_reported_with_file_line_and_column() {
    let manifest =
        read_text(&format!("{SERVICE}---\n# comment\nkind: Pod\nmetadata: {{name: a\nspec: {{}}\n"));
    let subject = manifest.problems[0].subject.to_string();
    let place: Vec<&str> = subject.split(':').collect();
    assert_eq!(place[0], "shop.yaml");
    assert!((7..=10).contains(&place[1].parse::<usize>().unwrap()), "{place:?}");
    assert!(place[2].parse::<usize>().unwrap() > 0, "{place:?}");
}

#[test]
fn a_named_object_that_is_wrong_is_declared_without_effect() {
    for (text, reference, field) in [
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: x}]}",
            "!Service default/a",
            "spec.ports[0].port",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {x: true}}",
            "!Pod default/a",
            "metadata.labels.x",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {osm-proxy-uuid: x}}",
            "!Pod default/a",
            "metadata.labels[osm-proxy-uuid]",
        ),
        (
            "apiVersion: config.openservicemesh.io/v1alpha2\nkind: MeshConfig\nmetadata: {name: mine}\nspec: {}",
            "!MeshConfig default/mine",
            "metadata.name",
        ),
    ] {
        let manifest = read_text(text);
        assert_eq!(declared(&manifest), [reference]);
        assert_eq!(manifest.problems.len(), 1, "{:?}", manifest.problems);
        assert_eq!(manifest.problems[0].field, field);
        assert_eq!(manifest.problems[0].subject.to_string(), reference[1..]);
        assert!(manifest.problems[0].message.ends_with("(shop.yaml:1)"), "{}", manifest.problems[0].message);
        assert!(manifest.complete);
    }
}

#[test]
fn policy_that_cannot_be_read_is_declared_without_effect() {
    let manifest = read_text(
        "apiVersion: access.smi-spec.io/v1alpha3\nkind: TrafficTarget\nmetadata: {name: a}\nspec: {destination: 7}",
    );
    assert_eq!(declared(&manifest), ["!TrafficTarget default/a"]);
    assert!(
        manifest
            .problems
            .iter()
            .any(|p| p.severity == Error && p.subject.to_string() == "TrafficTarget default/a")
    );
    assert!(manifest.complete);
}

#[test]
fn a_name_that_no_object_can_have_is_an_error_that_leaves_nothing_open() {
    let manifest = read_text("apiVersion: v1\nkind: Pod\nmetadata: {name: Store_1}\n");
    assert_eq!(declared(&manifest), Vec::<String>::new());
    assert_found(&manifest, &[(Error, "shop.yaml:1", "metadata.name")]);
    assert!(manifest.complete);
}

#[test]
fn unknown_kinds_are_warnings_and_unknown_versions_are_errors() {
    let manifest = read_text(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3}
---
apiVersion: access.smi-spec.io/v1alpha1
kind: TrafficTarget
metadata: {name: old}
---
apiVersion: example.com/v1
kind: \"\\e[31mEvil\\n\"
",
    );
    assert_eq!(declared(&manifest), Vec::<String>::new());
    let expected =
        [(Warning, "shop.yaml:2", ""), (Error, "shop.yaml:7", "apiVersion"), (Warning, "shop.yaml:11", "")];
    assert_found(&manifest, &expected);
    assert!(manifest.problems[0].message.contains("apps/v1 Deployment \"web\""));
    assert!(manifest.problems[1].message.contains("access.smi-spec.io/v1alpha3"));
    assert!(!manifest.problems[2].message.contains('\u{1b}'), "outside text must not steer the terminal");
    assert!(manifest.complete);
}

#[test]
fn unknown_fields_are_warnings_with_path_and_place_and_the_object_stands() {
    let manifest = read_text(
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: 80}\n---\n\
         apiVersion: specs.smi-spec.io/v1alpha4\nkind: TCPRoute\nmetadata: {name: a, nam: b}\nmatches: []\n\
         spec: {matches: {ports: [1]}}\n",
    );
    assert_eq!(declared(&manifest), ["Service default/a", "TCPRoute default/a"]);
    let expected = [
        (Warning, "Service default/a", "spec.port"),
        (Warning, "TCPRoute default/a", "matches"),
        (Warning, "TCPRoute default/a", "metadata.nam"),
    ];
    let mut sorted = manifest.clone();
    sorted.problems.sort();
    assert_found(&sorted, &expected);
    assert!(manifest.problems[0].message.ends_with("(shop.yaml:2)"));
}

#[test]
fn files_of_absurd_size_and_files_that_are_no_text_are_not_read() {
    let large = vec![b' '; MAX_FILE_BYTES + 1];
    for (bytes, place) in [
        (large.as_slice(), "shop.yaml:1"),
        (b"a: 1\n\xff\xfe", "shop.yaml:2"),
        (b"\xff\xfea\0", "shop.yaml:1"),
    ] {
        let manifest = read("shop.yaml", bytes);
        assert_found(&manifest, &[(Error, place, "")]);
        assert!(!manifest.complete);
    }
    let marked = read("shop.yaml", format!("\u{feff}{SERVICE}").as_bytes());
    assert_eq!((declared(&marked).len(), marked.problems.len()), (1, 0));
}

/// They are cut off; one problem says how many.
#[test]
fn documents_items_and_problems_beyond_their_bounds_are_counted() {
    let documents =
        "--- {apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}\n".repeat(MAX_OBJECTS + 1);
    let manifest = read_text(&documents);
    assert_eq!(manifest.declarations.len(), MAX_OBJECTS);
    assert_found(&manifest, &[(Error, "shop.yaml:10001", "")]);
    assert!(!manifest.complete);

    let mut list = "apiVersion: v1\nkind: ServiceAccountList\nitems:\n".to_owned();
    for n in 0..MAX_OBJECTS + 10 {
        writeln!(list, "- metadata: {{name: a{n}}}").unwrap();
    }
    let manifest = read_text(&list);
    assert_eq!((manifest.declarations.len(), manifest.problems.len()), (MAX_OBJECTS, 1));
    assert!(manifest.problems[0].message.contains("the last 10 "), "{:?}", manifest.problems);
    assert!(!manifest.complete);

    let manifest = read_text(&"--- {apiVersion: v2, kind: Pod}\n".repeat(2_000));
    assert_eq!(manifest.problems.len(), MAX_PROBLEMS + 1);
    assert!(manifest.problems[MAX_PROBLEMS].message.starts_with("1000 more"));
}

#[test]
fn an_object_is_read_again_from_its_json_as_it_was_read_first() {
    let refused = "---\napiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: 7\n";
    let split = "---\napiVersion: split.smi-spec.io/v1alpha2\nkind: TrafficSplit\nmetadata: {name: s}\n\
                 spec: {service: a, backends: [{service: b, weight: 70}, {service: c, weight: 30}]}\n";
    let manifest = read_text(&format!("{SERVICE}{PODS}{refused}{split}"));
    assert_eq!(manifest.declarations.len(), 6, "{:?}", manifest.problems);
    for declaration in &manifest.declarations {
        let json = declaration.json.as_deref().expect("JSON");
        let again = canonical::read(&Rules::default(), declaration.origin.clone(), json);
        assert_eq!(again.as_ref(), Some(&**declaration));
    }
    let origin = || Origin { file: "a".into(), line: 1 };
    for no_object in ["", "{", "[]", r#"{"apiVersion": "v1", "kind": "List"}"#, r#"{"kind": "Pod"}"#] {
        assert_eq!(canonical::read(&Rules::default(), origin(), no_object), None, "{no_object}");
    }
}

#[test]
fn objects_that_aliases_make_too_long_are_read_and_have_no_json() {
    let text = "x".repeat(100_000);
    let labels = (0..90).fold(String::new(), |labels, n| labels + &format!(", l{n}: *long"));
    let manifest = read_text(&format!(
        "{SERVICE}---\napiVersion: v1\nkind: Service\nmetadata: {{name: a, annotations: {{l: &long {text}{labels}}}}}\n"
    ));
    let kept: Vec<bool> =
        manifest.declarations.iter().map(|declaration| declaration.json.is_some()).collect();
    assert_eq!(kept, [true, false], "{:?}", manifest.problems);
    assert!(manifest.declarations[1].object.is_some());
    assert!(manifest.problems.last().unwrap().message.starts_with("too long to keep copies"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_at_all_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let manifest = read("any.yaml", &bytes);
        prop_assert!(manifest.complete || !manifest.problems.is_empty());
    }

    #[test]
    fn no_damage_to_a_manifest_makes_the_reader_panic_or_lose_a_document(
        edits in prop::collection::vec((0..2_000_usize, "(\\PC|[\\[\\]{}:&*!|>#'\"%@`, \n\t-]){0,3}", 0..4_usize), 1..6)
    ) {
        let mut damaged: Vec<char> = format!("{SERVICE}{PODS}").chars().collect();
        for (position, text, removed) in edits {
            let start = position % damaged.len();
            let end = (start + removed).min(damaged.len());
            damaged.splice(start..end, text.chars());
            prop_assume!(!damaged.is_empty());
        }
        let damaged: String = damaged.into_iter().collect();
        let manifest = read("any.yaml", damaged.as_bytes());
        prop_assert!(manifest.complete || manifest.problems.iter().any(|problem| problem.severity == Error));
        // Reading is a function of the bytes.
        prop_assert_eq!(&manifest, &read("any.yaml", damaged.as_bytes()));
    }
}

const PODS: &str = "\
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: a, labels: &labels {app: web}, annotations: {openservicemesh.io/sidecar-injection: 'true'}}
  spec: {hostNetwork: false, containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}
  status: {phase: Running, podIPs: [{ip: 10.0.0.1}, {ip: \"fd00::1\"}], conditions: [{type: Ready, status: 'True'}]}
- metadata: {name: b, labels: *labels}
--- # a slice
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.9], targetRef: {kind: Pod, name: a}}]
ports: [{name: sql, port: 5432}]
...
";
