//! Pods as they are submitted and as they are mutated, in `golden/`; and what must hold for every Pod.
//!
//! Each file holds both, as two YAML documents. `SMC_GOLDEN=write cargo test --release --workspace --lib
//! injection` writes the second again; read the difference before you commit it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use smc_model::sidecar_settings::{LocalProxyMode, SidecarSettings};
use smc_model::topology::Namespace;
use smc_types::causes::causes;
use smc_types::ids::{ProxyName, ServiceAccountId};

use super::*;

const UUID: &str = "6d0e1a52-7c2b-4c57-9b2b-0b3f6f1f1a01";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn settings() -> Settings {
    Settings {
        envoy_image: "envoy:test".to_owned(),
        init_image: "smc:test".to_owned(),
        pull_secrets: Vec::new(),
        local_proxy_mode: LocalProxyMode::Localhost,
        sidecar: Arc::default(),
    }
}

fn site(metrics: bool) -> Site {
    Site { drawn: drawn(UUID, TOKEN), metrics, reinvoked: false }
}

fn drawn(uuid: &str, token: &str) -> Drawn {
    Drawn { uuid: uuid.parse().unwrap(), token: ProbeToken::parse(token).unwrap() }
}

/// The settings of a golden file, which its name tells.
fn settings_of(name: &str) -> Settings {
    let mut settings = settings();
    match name {
        "pod_ip" => settings.local_proxy_mode = LocalProxyMode::PodIp,
        "mesh_config" => {
            settings.sidecar = Arc::new(SidecarSettings {
                envoy_image: Some("registry.example/envoy:1".to_owned()),
                init_image: Some("registry.example/smc:1".to_owned()),
                log_level: Some("debug".to_owned()),
                resources: Some(json!({"limits": {"cpu": "1", "memory": "256Mi"}})),
                privileged_init: true,
                exclude_outbound_ports: vec![25],
                ..SidecarSettings::default()
            });
        }
        _ => {}
    }
    settings
}

#[test]
fn pods_are_mutated_as_the_golden_files_say() {
    #[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
    let write = std::env::var_os("SMC_GOLDEN").is_some_and(|value| value == "write");
    // `cargo test` runs in the directory of the package. A compiled-in path could be that of another clone.
    let directory = Path::new("injection/golden");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "{files:?}");
    let mut changed = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let (submitted, mutated) = text.split_once("\n---\n").unwrap_or((&text, ""));
        let pod: Value = serde_saphyr::from_str(submitted).unwrap();
        let now = match inject(&pod, site(name == "metrics"), &settings_of(&name)) {
            Ok(pod) => serde_saphyr::to_string(&pod).unwrap(),
            Err(error) => format!("refused: {:?}\n", causes(&error)),
        };
        if write {
            fs::write(&path, format!("{submitted}\n---\n{now}")).unwrap();
        } else if mutated != now {
            changed.push(format!("{name}:\n{now}"));
        }
    }
    assert!(
        changed.is_empty(),
        "new pods would be others; if that is intended, run with SMC_GOLDEN=write:\n{}",
        changed.join("\n")
    );
}

#[test]
fn a_copy_of_an_injected_pod_gets_the_sidecar_of_another_proxy() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let first = inject(&pod, site(false), &settings()).unwrap();
    assert_eq!(proxy_of(&pod), None);
    assert_eq!(proxy_of(&first), Some(UUID.parse().unwrap()));
    let token = "f".repeat(32);
    let other = Site { drawn: drawn("6d0e1a52-7c2b-4c57-9b2b-0b3f6f1f1a02", &token), ..site(false) };
    let second = inject(&first, other, &settings()).unwrap();
    assert_eq!(second, inject(&pod, other, &settings()).unwrap());
    let replaced = first.to_string().replace(UUID, &other.drawn.uuid.to_string()).replace(TOKEN, &token);
    assert_eq!(second.to_string(), replaced);
}

#[test]
fn a_pod_keeps_the_proxy_that_is_on_its_way_for_its_account() {
    let namespace = |name: &str| Namespace {
        name: name.into(),
        monitored: true,
        injection: None,
        metrics: false,
        permissive: false,
        access_log: None,
    };
    let pod = |account: &str, carried: Option<&str>| {
        let pod = json!({"spec": {"serviceAccountName": account, "containers": [{"name": "app"}]}});
        let site = |uuid: &str| Site { drawn: drawn(uuid, TOKEN), ..site(false) };
        carried.map_or_else(|| pod.clone(), |uuid| inject(&pod, site(uuid), &settings()).unwrap())
    };
    let fresh = drawn("6d0e1a52-7c2b-4c57-9b2b-0b3f6f1f1a02", &"f".repeat(32));
    let on_its_way = |proxy: &ProxyName, account: &ServiceAccountId| {
        (proxy.to_string(), account.to_string())
            == (ProxyName::new(UUID.parse().unwrap(), "shop").unwrap().to_string(), "shop/web".to_owned())
    };
    for (when, pod, space, account, is_new) in [
        ("a new Pod", pod("web", None), "shop", "shop/web", true),
        ("a Pod without an account", pod("", None), "shop", "shop/default", true),
        ("the Pod once more", pod("web", Some(UUID)), "shop", "shop/web", false),
        ("a copy with another account", pod("db", Some(UUID)), "shop", "shop/db", true),
        ("a copy in another namespace", pod("web", Some(UUID)), "books", "books/web", true),
    ] {
        let made = sidecar(&pod, &namespace(space), &settings(), fresh, on_its_way).unwrap();
        let drawn = if is_new { fresh } else { drawn(UUID, TOKEN) };
        assert_eq!(
            (made.is_new, made.proxy.uuid, made.account.to_string()),
            (is_new, drawn.uuid, account.to_owned()),
            "{when}"
        );
        assert_eq!(&*made.proxy.namespace, space, "{when}");
        assert_eq!(drawn_for(&made.pod, fresh), Some(drawn), "{when}");
    }
    let named = sidecar(&pod("no/name", None), &namespace("shop"), &settings(), fresh, on_its_way);
    assert!(matches!(named, Err(InjectionError::Name(_))), "{named:?}");
}

/// Its probes had no token, and its listener another address.
#[test]
fn a_pod_that_the_former_version_injected_gets_a_token() {
    let pod = json!({"metadata": {}, "spec": {"containers": [
        {"name": "app", "livenessProbe": {"httpGet": {"port": 80, "path": "/a", "httpHeaders": [{"name": "a", "value": "b"}]}}},
    ]}});
    let injected = inject(&pod, site(false), &settings()).unwrap();
    let mut former = injected.clone();
    former["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"] = json!("/http/80/a");
    former["spec"]["initContainers"][1]["startupProbe"]["httpGet"]["path"] = json!("/ready");
    former["spec"]["initContainers"][1]["readinessProbe"]["httpGet"]["path"] = json!("/ready");
    former["spec"]["initContainers"][1]["args"][3] = json!("{}");
    let fresh = drawn("6d0e1a52-7c2b-4c57-9b2b-0b3f6f1f1a02", TOKEN);
    assert_eq!(drawn_for(&former, fresh), Some(drawn(UUID, TOKEN)));
    assert_eq!(inject(&former, site(false), &settings()).unwrap(), injected);
}

/// Each has a path of its own, so that the application gets what each declares.
#[test]
fn two_probes_of_one_path_with_other_headers_are_two_requests() {
    let probe = |headers: Value| json!({"httpGet": {"port": 80, "path": "/a", "httpHeaders": headers}});
    let one = json!([{"name": "X", "value": "1"}]);
    let pod = json!({"metadata": {}, "spec": {"containers": [
        {"name": "app", "livenessProbe": probe(Value::Null), "readinessProbe": probe(one.clone())},
        {"name": "other", "livenessProbe": probe(json!([{"name": "X", "value": "2"}])), "readinessProbe": probe(one)},
    ]}});
    let injected = inject(&pod, site(false), &settings()).unwrap();
    let path = |container: usize, probe: &str| {
        let path = &injected["spec"]["containers"][container][probe]["httpGet"]["path"];
        path.as_str().unwrap().replace(TOKEN, "T")
    };
    assert_eq!(path(0, "livenessProbe"), "/T/http/80/a");
    assert_eq!(path(0, "readinessProbe"), "/T/1/http/80/a");
    assert_eq!(path(1, "livenessProbe"), "/T/2/http/80/a");
    assert_eq!(path(1, "readinessProbe"), "/T/1/http/80/a");
    assert_eq!(inject(&injected, site(false), &settings()).unwrap(), injected);
}

/// Nodes whose kernel has no IPv6 start no Envoy that listens on `::`.
#[test]
fn the_sidecar_listens_for_probes_at_the_pods_address_alone() {
    let pod = json!({"metadata": {}, "spec": {"containers": [
        {"name": "app", "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"tcpSocket": {"port": 81}}},
    ]}});
    let injected = inject(&pod, site(false), &settings()).unwrap();
    let config: Value =
        serde_json::from_str(injected["spec"]["initContainers"][1]["args"][3].as_str().unwrap()).unwrap();
    let listeners = config["static_resources"]["listeners"].as_array().unwrap();
    for listener in listeners {
        assert_eq!(listener["address"]["socket_address"]["address"], "$(POD_IP)");
        assert_eq!(listener["additional_addresses"], Value::Null);
    }
    assert_eq!(listeners.len(), 1);
    let env = &injected["spec"]["initContainers"][1]["env"][0];
    assert_eq!(
        (&env["name"], &env["valueFrom"]["fieldRef"]["fieldPath"]),
        (&json!("POD_IP"), &json!("status.podIP"))
    );
}

/// Of the sidecar's names the API server would refuse a second one, and a Pod without a container.
#[test]
fn a_copy_may_not_use_the_names_of_the_sidecar_for_its_own_containers() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let mut copy = inject(&pod, site(false), &settings()).unwrap();
    for name in ["envoy", "smc-init"] {
        copy["spec"]["containers"] = json!([{"name": "app", "image": "app"}, {"name": name, "image": "x"}]);
        let taken = InjectionError::NameTaken { what: "container", name };
        assert_eq!(inject(&copy, site(false), &settings()), Err(taken));
    }
    copy["spec"]["containers"] = json!([]);
    assert_eq!(inject(&copy, site(false), &settings()), Err(InjectionError::NotAPod));
}

#[test]
fn what_the_api_server_and_other_webhooks_add_to_the_sidecar_stays() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let mut injected = inject(&pod, site(false), &settings()).unwrap();
    let envoy = &mut injected["spec"]["initContainers"][1];
    envoy["terminationMessagePath"] = json!("/dev/termination-log");
    envoy["startupProbe"]["successThreshold"] = json!(1);
    let more = json!({"name": "more", "mountPath": "/more"});
    envoy["volumeMounts"].as_array_mut().unwrap().insert(0, more);
    injected["spec"]["initContainers"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "first", "image": "x"}));
    assert_eq!(inject(&injected, site(false), &settings()).unwrap(), injected);
}

/// A mirror of images, an autoscaler, and a webhook that adds a container with a probe.
#[test]
fn what_other_webhooks_change_of_the_sidecar_stays_when_asked_again() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let injected = inject(&pod, site(false), &settings()).unwrap();
    let mut changed = injected.clone();
    let more =
        json!({"name": "more", "image": "more", "livenessProbe": {"httpGet": {"port": 81, "path": "/"}}});
    changed["spec"]["containers"].as_array_mut().unwrap().push(more);
    let resources = json!({"requests": {"cpu": "1"}});
    for container in changed["spec"]["initContainers"].as_array_mut().unwrap() {
        container["image"] = json!(format!("mirror.example/{}", container["image"].as_str().unwrap()));
        container["resources"] = resources.clone();
        container["imagePullPolicy"] = json!("Always");
        container["securityContext"]["privileged"] = json!(true);
    }
    let envoy = &mut changed["spec"]["initContainers"][1];
    envoy["args"][5] = json!("debug");
    envoy["env"].as_array_mut().unwrap().push(json!({"name": "TZ", "value": "UTC"}));

    let again = inject(&changed, Site { reinvoked: true, ..site(false) }, &settings()).unwrap();
    let containers = |pod: &Value| pod["spec"]["initContainers"].as_array().unwrap().clone();
    for (container, theirs) in containers(&again).iter().zip(containers(&changed)) {
        for field in ["image", "resources", "imagePullPolicy"] {
            assert_eq!(container[field], theirs[field], "{field}");
        }
        assert_eq!(container["securityContext"]["privileged"], false, "rights are the sidecar's");
    }
    let envoy = &again["spec"]["initContainers"][1];
    assert_eq!((&envoy["args"][5], &envoy["env"][1]["name"]), (&json!("debug"), &json!("TZ")));
    assert!(envoy["args"][3].as_str().unwrap().contains("81"), "the new probe is answered");
    assert_eq!(inject(&again, Site { reinvoked: true, ..site(false) }, &settings()).unwrap(), again);

    let copy = inject(&changed, site(false), &settings()).unwrap();
    for (container, ours) in containers(&copy).iter().zip(containers(&injected)) {
        assert_eq!((&container["image"], &container["resources"]), (&ours["image"], &ours["resources"]));
    }
}

#[test]
fn a_pod_that_is_scraped_at_a_port_of_its_own_stays_so() {
    for (annotations, port) in [
        (json!({}), json!("15010")),
        (json!({"prometheus.io/scrape": "false", "prometheus.io/port": "8080"}), json!("15010")),
        (json!({"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}), json!("8080")),
        (json!({"prometheus.io/scrape": "true"}), json!(null)),
        (json!({"prometheus.io/scrape": "true", "prometheus.io/port": "15010"}), json!("15010")),
    ] {
        let pod =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app"}]}});
        let injected = inject(&pod, site(true), &settings()).unwrap();
        assert_eq!(injected["metadata"]["annotations"]["prometheus.io/port"], port, "{annotations}");
        assert_eq!(inject(&injected, site(true), &settings()).unwrap(), injected);
    }
}

#[test]
fn the_sidecar_is_not_given_the_token_of_the_pod() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let injected = inject(&pod, site(false), &settings()).unwrap();
    let mut mounted = injected.clone();
    let token =
        json!({"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    mounted["spec"]["containers"][0]["volumeMounts"] = json!([token]);
    mounted["spec"]["initContainers"][1]["volumeMounts"].as_array_mut().unwrap().push(token.clone());
    let again = inject(&mounted, site(false), &settings()).unwrap();
    assert_eq!(again["spec"]["initContainers"], injected["spec"]["initContainers"]);
    assert_eq!(again["spec"]["containers"][0]["volumeMounts"], json!([token]));
}

/// A pod with so many containers, each with these probes.
fn with_probes(count: u16, probes: impl Fn(u16) -> Value) -> Value {
    let container = |number: u16| {
        let mut container = json!({"name": format!("c{number}"), "image": "app"});
        container.as_object_mut().unwrap().extend(probes(number).as_object().unwrap().clone());
        container
    };
    json!({"metadata": {}, "spec": {"containers": (1..=count).map(container).collect::<Vec<_>>()}})
}

fn pod_ip() -> Settings {
    settings_of("pod_ip")
}

/// Linux starts no process with a longer argument, so the pod would hang.
#[test]
fn a_pod_whose_probes_fill_more_than_an_argument_is_refused() {
    let tcp = |number: u16| json!({"readinessProbe": {"tcpSocket": {"port": number}}});
    let get = |number: u16| {
        json!({"livenessProbe": {"httpGet": {"port": 80, "path": format!("/{number}")}},
            "readinessProbe": {"httpGet": {"port": 80, "path": format!("/r/{number}")}}})
    };
    let headers = |number: u16| {
        let headers = [json!({"name": "x", "value": format!("{number}{}", "v".repeat(4096))})];
        json!({"readinessProbe": {"httpGet": {"port": 80, "httpHeaders": headers}}})
    };
    let kinds: [&dyn Fn(u16) -> Value; 3] = [&tcp, &get, &headers];
    for (probes, settings) in kinds.into_iter().flat_map(|kind| [(kind, settings()), (kind, pod_ip())]) {
        let made = |count: u16| inject(&with_probes(count, probes), site(false), &settings);
        let mut most = (1..=512).take_while(|&count| made(count).is_ok());
        let most = most.by_ref().last().unwrap();
        assert!((20..512).contains(&most), "{most}");
        let pod = made(most).unwrap();
        let arguments = pod["spec"]["initContainers"][1]["args"].as_array().unwrap();
        let longest = arguments.iter().map(|argument| argument.as_str().unwrap().len()).max().unwrap();
        assert!((120_000..128 * 1024).contains(&longest), "{most}: {longest}");
        let error = made(most + 1).unwrap_err().to_string();
        assert!(error.contains("at least") && error.contains("131071 bytes"), "{error}");
    }
}

#[test]
fn tens_of_thousands_of_probes_cost_no_more_than_hundreds() {
    let probes = |number: u16| {
        let probe = |name: &str| {
            let header = json!({"name": name, "value": number.to_string()});
            json!({"httpGet": {"port": 80, "httpHeaders": [header]}})
        };
        json!({"livenessProbe": probe("l"), "readinessProbe": probe("r"), "startupProbe": probe("s")})
    };
    let refused = inject(&with_probes(10_000, probes), site(false), &settings()).unwrap_err();
    let InjectionError::Probes { targets, .. } = refused else { panic!("{refused}") };
    assert!((513..=515).contains(&targets), "{targets}");
}

/// Requests to the ports that are left out go to the application itself.
#[test]
fn probes_of_ports_that_are_left_out_do_not_count() {
    let mut pod = with_probes(1_000, |_| json!({"readinessProbe": {"httpGet": {"port": 80}}}));
    for (number, container) in pod["spec"]["containers"].as_array_mut().unwrap().iter_mut().enumerate() {
        container["readinessProbe"]["httpGet"]["path"] = json!(format!("/{number}"));
    }
    assert!(inject(&pod, site(false), &settings()).is_err());
    pod["metadata"]["annotations"] = json!({"openservicemesh.io/inbound-port-exclusion-list": "80"});
    let injected = inject(&pod, site(false), &settings()).unwrap();
    assert_eq!(injected["spec"]["containers"], pod["spec"]["containers"]);
}

#[test]
fn secrets_to_pull_with_are_added_once_and_the_pods_own_stay() {
    let pull_secrets = vec!["own".to_owned(), "mirror".to_owned()];
    let settings = Settings { pull_secrets, ..settings() };
    for (own, expected) in [
        (json!([]), ["own", "mirror"].as_slice()),
        (json!([{"name": "mine"}, {"name": "own"}]), &["mine", "own", "mirror"]),
    ] {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}], "imagePullSecrets": own}});
        let once = inject(&pod, site(false), &settings).unwrap();
        let twice = inject(&once, Site { reinvoked: true, ..site(false) }, &settings).unwrap();
        let expected: Vec<_> = expected.iter().map(|name| json!({"name": name})).collect();
        for injected in [once, twice] {
            assert_eq!(injected["spec"]["imagePullSecrets"], json!(expected));
        }
    }
}

#[test]
fn a_container_that_comes_later_has_its_probes_rewritten_as_well() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let mut injected = inject(&pod, site(false), &settings()).unwrap();
    let late = json!({"name": "late", "livenessProbe": {"httpGet": {"port": 81}}});
    injected["spec"]["containers"].as_array_mut().unwrap().push(late);
    let again = inject(&injected, site(false), &settings()).unwrap();
    assert_eq!(
        again["spec"]["containers"][1]["livenessProbe"]["httpGet"]["path"],
        format!("/{TOKEN}/http/81/")
    );
    let yaml = again["spec"]["initContainers"][1]["args"][3].as_str().unwrap();
    assert!(yaml.contains("smc-probe-http-81"), "{yaml}");
}

fn probe() -> impl Strategy<Value = Value> {
    let port = prop_oneof![
        (1u16..).prop_map(|port| json!(port)),
        Just(json!("http")),
        Just(json!("nothing")),
        Just(json!(0)),
        Just(json!(15901)),
    ];
    let path = prop_oneof![Just("/ready".to_owned()), "[ -~]{0,12}", Just("/http/80/x".to_owned())];
    let host = prop_oneof![8 => Just(Value::Null), 1 => Just(json!("elsewhere"))];
    let handler = (port, path, host, 0..5).prop_map(|(port, path, host, kind)| match kind {
        0 => json!({"httpGet": {"port": port, "path": path, "host": host}}),
        1 => json!({"httpGet": {"port": port, "scheme": "HTTPS", "httpHeaders": [{"name": "a", "value": "b"}]}}),
        2 => json!({"tcpSocket": {"port": port, "host": host}}),
        3 => json!({"grpc": {"port": port, "service": path}}),
        _ => json!({"exec": {"command": ["true"]}}),
    });
    (handler, proptest::option::of(0u64..100_000)).prop_map(|(mut probe, period)| {
        if let Some(period) = period {
            probe["periodSeconds"] = json!(period);
            probe["timeoutSeconds"] = json!(period / 2);
        }
        probe
    })
}

fn container() -> impl Strategy<Value = Value> {
    let optional = || proptest::option::of(probe());
    (optional(), optional(), optional(), optional(), "[a-d]{1,2}").prop_map(
        |(liveness, readiness, startup, hook, name)| {
            let ports = json!([{"name": "http", "containerPort": 8080}]);
            let mut container = json!({"name": name, "image": "app", "ports": ports});
            let probes =
                [("livenessProbe", liveness), ("readinessProbe", readiness), ("startupProbe", startup)];
            for (field, probe) in probes {
                if let Some(probe) = probe {
                    container[field] = probe;
                }
            }
            if let Some(hook) = hook {
                container["lifecycle"] = json!({"preStop": hook});
            }
            container
        },
    )
}

fn pod() -> impl Strategy<Value = Value> {
    let containers = || proptest::collection::vec(container(), 1..4);
    let ports = prop_oneof![Just(""), Just("8080"), Just("8080, 81"), Just("x")];
    (containers(), proptest::option::of(containers()), ports).prop_map(|(containers, inits, ports)| {
        let annotations = json!({"openservicemesh.io/inbound-port-exclusion-list": ports});
        let mut pod =
            json!({"metadata": {"generateName": "app-", "annotations": annotations}, "spec": {"containers": containers}});
        if let Some(inits) = inits {
            pod["spec"]["initContainers"] = json!(inits);
        }
        pod
    })
}

/// The author's containers without what injection may change.
fn untouchable(pod: &Value) -> Vec<Value> {
    let lists =
        ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let own = lists
        .into_iter()
        .flatten()
        .filter(|container| container["name"] != "envoy" && container["name"] != "smc-init");
    own.cloned()
        .map(|mut container| {
            for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
                container[field] = container[field]["periodSeconds"].take();
            }
            container["lifecycle"] = json!(container["lifecycle"].is_object());
            container
        })
        .collect()
}

proptest! {
    #[test]
    fn injection_is_idempotent_and_leaves_the_authors_containers_alone(pod in pod()) {
        let settings = settings();
        if let Ok(injected) = inject(&pod, site(false), &settings) {
            prop_assert_eq!(inject(&injected, site(false), &settings).unwrap(), injected.clone());
            prop_assert_eq!(untouchable(&injected), untouchable(&pod));
        }
    }

    #[test]
    fn no_json_makes_injection_panic(text in "[\\[\\]{}\":,a-z0-9]{0,60}", place in 0..6) {
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
        match place {
            0 => pod = value,
            1 => pod["metadata"] = value,
            2 => pod["spec"] = value,
            3 => pod["spec"]["containers"] = value,
            4 => pod["spec"]["containers"][0] = value,
            _ => pod["spec"]["volumes"] = value,
        }
        let namespace = Namespace { name: "shop".to_owned(), monitored: true, injection: None , metrics: false, permissive: false, access_log: None};
        let _ = (decide(&namespace, &pod), proxy_of(&pod), inject(&pod, site(true), &settings()));
    }
}
