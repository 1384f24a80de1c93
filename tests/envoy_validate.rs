//! Every kind of snapshot that SMC can serve, given to a real Envoy to judge.
//!
//! A snapshot is turned into a static bootstrap and `envoy --mode validate` must take it. Only the places
//! where Envoy gets things from are changed (inline instead of ADS), nothing of what it gets: filters,
//! matches, RBAC rules, regular expressions, TLS contexts and certificates go through Envoy's own checks.
//! The content of the same snapshots is pinned by `src/mesh/tests/golden.rs`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use envoy_types::pb::envoy::config::bootstrap::v3::{
    Bootstrap, LayeredRuntime, RuntimeLayer, bootstrap::StaticResources, runtime_layer::LayerSpecifier,
};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{TransportSocket, TypedExtensionConfig, transport_socket};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier, http_filter,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::google::protobuf::{Any, Struct, Value, value};
use envoy_types::util::pack_any;
use prost::{Message, Name};
use serde_json::json;
use smc_api::smi;
use smc_authority::pki::CONTROLLER_IDENTITY;
use smc_mesh::lint;
use smc_model::log_format::Line;
use smc_model::rate_limit::is_status;
use smc_model::sidecar_settings::LocalProxyMode;
use smc_sidecar::bootstrap;
use smc_sidecar::injection::{self, Drawn, Settings, Site};
use smc_testkit::mesh::{group, meshes, upstream_setting, view};
use smc_testkit::random::Random;
use smc_testkit::setting::setting;
use smc_types::ids::{ProxyName, ProxyUuid, ReplicaId, WorkloadId};
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;
use smc_xds::session::Variant;

/// The snapshot as a bootstrap without a control plane.
fn static_bootstrap(view: &View) -> Bootstrap {
    let routes: BTreeMap<String, RouteConfiguration> =
        decode::<RouteConfiguration>(view, ResourceType::Route)
            .map(|route| (route.name.clone(), route))
            .collect();
    let extensions = decode::<TypedExtensionConfig>(view, ResourceType::ExtensionConfig);
    let extensions = extensions.map(|extension| (extension.name.clone(), extension)).collect();
    let mut clusters: Vec<Cluster> = decode(view, ResourceType::Cluster).collect();
    for cluster in &mut clusters {
        if let Some(eds) = cluster.eds_cluster_config.take() {
            let resource = view.get(ResourceType::Endpoint, &eds.service_name).expect("EDS name is served");
            let any = Any::decode(&*resource.any()).unwrap();
            cluster.cluster_discovery_type =
                Some(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Static.into()));
            cluster.load_assignment = Some(ClusterLoadAssignment::decode(&*any.value).unwrap());
        }
        local_secrets::<tls::UpstreamTlsContext>(cluster.transport_socket.as_mut(), |context| {
            &mut context.common_tls_context
        });
    }
    let mut listeners: Vec<Listener> = decode(view, ResourceType::Listener).collect();
    for listener in &mut listeners {
        for chain in listener.filter_chains.iter_mut().chain(listener.default_filter_chain.as_mut()) {
            local_secrets::<tls::DownstreamTlsContext>(chain.transport_socket.as_mut(), |context| {
                &mut context.common_tls_context
            });
            inline(chain, &routes, &extensions);
        }
    }
    let secrets = decode(view, ResourceType::Secret).collect();
    Bootstrap {
        static_resources: Some(StaticResources { listeners, clusters, secrets }),
        layered_runtime: Some(LayeredRuntime { layers: vec![runtime()] }),
        ..Bootstrap::default()
    }
}

/// What SMC's bootstraps set: the reader of patterns bounds their size, Envoy's own bound is far lower.
fn runtime() -> RuntimeLayer {
    let value = Value { kind: Some(value::Kind::NumberValue(bootstrap::RE2_MAX_PROGRAM_SIZE.into())) };
    RuntimeLayer {
        name: "static".to_owned(),
        layer_specifier: Some(LayerSpecifier::StaticLayer(Struct {
            fields: [(bootstrap::RE2_MAX_PROGRAM_SIZE_KEY.to_owned(), value)].into_iter().collect(),
        })),
    }
}

fn decode<T: Message + Default>(view: &View, kind: ResourceType) -> impl Iterator<Item = T> {
    view.all(kind).map(|resource| {
        let any = Any::decode(&*resource.any()).unwrap();
        T::decode(&*any.value).unwrap()
    })
}

/// A secret without a source is looked for among the static ones.
fn local_secrets<T: Message + Name + Default>(
    socket: Option<&mut TransportSocket>,
    common: impl Fn(&mut T) -> &mut Option<tls::CommonTlsContext>,
) {
    let Some(transport_socket::ConfigType::TypedConfig(any)) = socket.and_then(|s| s.config_type.as_mut())
    else {
        return;
    };
    let mut context = T::decode(&*any.value).unwrap();
    let common = common(&mut context).as_mut().unwrap();
    common.tls_certificate_sds_secret_configs.iter_mut().for_each(|secret| secret.sds_config = None);
    match common.validation_context_type.as_mut() {
        Some(tls::common_tls_context::ValidationContextType::ValidationContextSdsSecretConfig(secret)) => {
            secret.sds_config = None;
        }
        // An ingress that shows no certificate.
        None => {}
        other => panic!("unexpected validation: {other:?}"),
    }
    *any = pack_any(context);
}

fn inline(
    chain: &mut FilterChain,
    routes: &BTreeMap<String, RouteConfiguration>,
    extensions: &BTreeMap<String, TypedExtensionConfig>,
) {
    for filter in &mut chain.filters {
        if let Some(filter::ConfigType::ConfigDiscovery(_)) = &filter.config_type {
            let config = extensions.get(&filter.name).expect("ECDS name is served").typed_config.clone();
            filter.config_type = config.map(filter::ConfigType::TypedConfig);
        }
        let Some(filter::ConfigType::TypedConfig(any)) = filter.config_type.as_mut() else { continue };
        if any.type_url != HttpConnectionManager::type_url() {
            continue;
        }
        let mut manager = HttpConnectionManager::decode(&*any.value).unwrap();
        if let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier {
            let route = routes.get(&rds.route_config_name).expect("RDS name is served").clone();
            manager.route_specifier = Some(RouteSpecifier::RouteConfig(route));
        }
        for filter in &mut manager.http_filters {
            if let Some(http_filter::ConfigType::ConfigDiscovery(_)) = &filter.config_type {
                let config = extensions.get(&filter.name).expect("ECDS name is served").typed_config.clone();
                filter.config_type = config.map(http_filter::ConfigType::TypedConfig);
            }
        }
        *any = pack_any(manager);
    }
}

/// The certificate of a root and of a leaf that it signed, with the leaf's key.
#[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
fn certificates() -> (String, String, String) {
    let root_key = rcgen::KeyPair::generate().unwrap();
    let mut root = rcgen::CertificateParams::default();
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(root, root_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut leaf = rcgen::CertificateParams::default();
    leaf.subject_alt_names =
        vec![rcgen::SanType::URI("spiffe://cluster.local/ns/shop/sa/a".try_into().unwrap())];
    let chain = leaf.signed_by(&key, &issuer).unwrap().pem();
    (root_certificate, chain, key.serialize_pem())
}

/// What Envoy says of a bootstrap: `Err` with its words if it refuses it, or if a field is going to be
/// removed.
fn judge(bootstrap: &Path) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "where make put Envoy")]
    let envoy = std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
    let output = Command::new(&envoy)
        .args(["--mode", "validate", "--log-level", "warn", "-c"])
        .arg(bootstrap)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", envoy.display()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let fine = output.status.success() && !said.contains("Deprecated field");
    if fine { Ok(()) } else { Err(said) }
}

/// [`judge`], for a bootstrap made here.
fn judge_snapshot(bootstrap: &Bootstrap) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrap.pb");
    std::fs::write(&path, bootstrap.encode_to_vec()).unwrap();
    judge(&path)
}

#[test]
fn envoy_takes_every_snapshot_of_every_mesh() {
    let (root, chain, key) = certificates();
    for mesh in meshes::all() {
        let compiler = mesh.compile(&root, &chain, &key);
        assert_eq!(compiler.problems().iter().filter(|p| p.message.contains("stays in force")).count(), 0);
        for pod in &mesh.pods {
            let view = view(&compiler, pod).unwrap_or_else(|| panic!("{}: {pod} has a snapshot", mesh.name));
            assert_eq!(lint::lint(&view), []);
            if let Err(said) = judge_snapshot(&static_bootstrap(&view)) {
                panic!("{}: Envoy refuses or deprecates the snapshot of {pod}:\n{said}", mesh.name);
            }
        }
    }
}

#[test]
fn envoy_takes_the_bootstrap_of_each_variant_and_kind_of_address() {
    let (root, chain, key) = certificates();
    let workload: WorkloadId = "shop/a".parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrap.json");
    for variant in [Variant::Delta, Variant::Sotw] {
        for addresses in [
            &["10.0.0.1:15128"][..],
            &["[fd00::1]:15128"],
            &["controller.smc-system.svc:15128"],
            &["smc-0.smc:15128", "10.0.0.1:15128", "smc-2.smc:15128"],
        ] {
            let parsed = addresses.iter().map(|address| address.parse().unwrap());
            let bootstrap = bootstrap::Bootstrap {
                proxy: &ProxyName::of(ProxyUuid::derived(&workload), &workload),
                account: &"shop/a".parse().unwrap(),
                controllers: &bootstrap::Controllers::new((0..).map(ReplicaId).zip(parsed).collect()),
                controller_name: CONTROLLER_IDENTITY,
                chain_pem: &chain,
                key_pem: &key,
                roots_pem: &root,
                variant,
                inbound_connections: bootstrap::INBOUND_CONNECTIONS,
            };
            std::fs::write(&path, serde_json::to_string(&bootstrap).unwrap()).unwrap();
            if let Err(said) = judge(&path) {
                panic!(
                    "Envoy refuses or deprecates the bootstrap for {addresses:?} over {variant:?}:\n{said}"
                );
            }
        }
    }
}

#[test]
fn envoy_takes_the_configuration_of_every_kind_of_probe() {
    let pod = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {"containers": [
        {"name": "a", "image": "a", "livenessProbe": {"httpGet": {"port": 8080, "path": "/a$b", "httpHeaders": [
                {"name": "Host", "value": "shop"}, {"name": "X-A", "value": "10 % $(POD_IP)"}]}},
            "readinessProbe": {"httpGet": {"port": 8443, "scheme": "HTTPS"}},
            "startupProbe": {"grpc": {"port": 9000, "service": "shop.Store"}}},
        {"name": "b", "image": "b", "livenessProbe": {"tcpSocket": {"port": 5432}}},
    ]}});
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probes.json");
    for local_proxy_mode in [LocalProxyMode::Localhost, LocalProxyMode::PodIp] {
        let settings = Settings {
            envoy_image: "envoy:1".to_owned(),
            init_image: "smc:1".to_owned(),
            pull_secrets: Vec::new(),
            local_proxy_mode,
            sidecar: Arc::default(),
        };
        let site = Site { drawn: Drawn::from_random([1; 16], [2; 16]), metrics: false, reinvoked: false };
        let pod = injection::inject(&pod, site, &settings).unwrap();
        let arguments = pod["spec"]["initContainers"][1]["args"].as_array().unwrap();
        let named = arguments.iter().position(|argument| argument == "--config-yaml").unwrap();
        // As the kubelet replaces it.
        let text = arguments[named + 1].as_str().unwrap().replace("$(POD_IP)", "10.0.0.1").replace("$$", "$");
        assert!(text.contains("/a$b") && text.contains("smc-probe-grpc-9000-shop.Store"), "{text}");
        std::fs::write(&path, text).unwrap();
        if let Err(said) = judge(&path) {
            panic!(
                "Envoy refuses or deprecates the configuration of probes with {local_proxy_mode:?}:\n{said}"
            );
        }
    }
}

/// The largest expression that SMC reads, by doubling; Envoy must take what SMC takes.
#[test]
fn the_programs_of_expressions_that_smc_takes_fit_into_envoys_bound() {
    let takes = |length: usize| {
        let matches = json!([{"name": "m", "pathRegex": format!("/[^a]{{{length}}}")}]);
        smi::read_http_route_group("shop/g".parse().unwrap(), json!({ "matches": matches }))
            .problems
            .is_empty()
    };
    let longest = (1..1000).take_while(|&length| takes(length)).last().expect("some expression is taken");
    assert!(longest < 999, "the bound of SMC's is met");
    let (root, chain, key) = certificates();
    let mut mesh = meshes::all().remove(0);
    mesh.inputs
        .push(group("shop/routes", &json!([{"name": "m", "pathRegex": format!("/[^a]{{{longest}}}")}])));
    let compiler = mesh.compile(&root, &chain, &key);
    let mut bootstrap = static_bootstrap(&view(&compiler, "shop/b1").unwrap());
    assert_eq!(judge_snapshot(&bootstrap), Ok(()));
    // It is this bound that lets it through.
    bootstrap.layered_runtime = None;
    let said = judge_snapshot(&bootstrap).unwrap_err();
    assert!(said.contains("program size"), "{said}");
}

#[test]
fn envoy_takes_each_status_and_header_of_an_answer_above_a_limit() {
    let (root, chain, key) = certificates();
    let statuses: Vec<_> = (400..=599_u16).filter(|status| is_status(*status)).collect();
    let text: String = (b' '..=b'~').map(char::from).collect();
    let header = json!([{"name": "!#$%&'*+-.^_`|~09az", "value": text}]);
    let limit = |status: u16| {
        let rate = json!({"requests": 1, "unit": "second", "responseStatusCode": status, "responseHeadersToAdd": header});
        json!({"path": format!("/{status}"), "rateLimit": {"local": rate}})
    };
    let routes: Vec<_> = statuses.iter().map(|status| limit(*status)).collect();
    let mut mesh = meshes::all().remove(0);
    mesh.inputs.push(upstream_setting("shop/statuses", "b", json!({"httpRoutes": routes})));
    let view = view(&mesh.compile(&root, &chain, &key), "shop/b1").unwrap();
    assert!(view.all(ResourceType::ExtensionConfig).count() >= statuses.len());
    assert_eq!(judge_snapshot(&static_bootstrap(&view)), Ok(()));
}

/// A bootstrap that logs requests and connections in these formats.
fn logging(lines: &[String]) -> Vec<u8> {
    let logs: Vec<_> = lines
        .iter()
        .map(|line| {
            json!({"name": "log", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
                "log_format": {"text_format_source": {"inline_string": line}},
            }})
        })
        .collect();
    let proxy = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "log", "cluster": "none", "access_log": logs,
    });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "log", "access_log": logs, "route_config": {},
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
        }}],
    });
    let listeners: Vec<_> = [proxy, manager]
        .into_iter()
        .enumerate()
        .map(|(number, filter)| {
            json!({
                "name": number.to_string(), "address": {"pipe": {"path": format!("@log-{number}")}},
                "filter_chains": [{"filters": [{"name": "filter", "typed_config": filter}]}],
            })
        })
        .collect();
    let resources = json!({"listeners": listeners, "clusters": [{"name": "none"}]});
    json!({ "static_resources": resources }).to_string().into_bytes()
}

/// What an operator may have behind its name, right and wrong.
const ARGUMENTS: [&str; 23] = [
    "",
    "()",
    "(:PATH)",
    "(X-A?b_c)",
    "(A?B?C)",
    "(a:b.c)",
    "(a::b)",
    "(NUMBER)",
    "(NQ)",
    "(WQ:ORIG)",
    "(NQ:ORIG_OR_PATH)",
    "(%Y-%m-%dT%H:%M:%S.%3f%z)",
    "(%s.%9f %e %Z %T %F %D %y %j %a %A %b %B %p %I %u %w %c)",
    "(%n)",
    "(%)",
    "(%E4S)",
    "(DS_RX_BEG:US_TX_BEG:us)",
    "(US_HS_END:US_RX_BODY_BEG:ns)",
    "(DS_RX_BEG:DS_RX_END)",
    "(ALLOW_WHITESPACES)",
    "(a~b)",
    "(a b)",
    "(ä)",
];
const LENGTHS: [&str; 4] = ["", ":5", ":0", ":99999999999"];

/// Texts around operators, right and wrong.
const TEXTS: [&str; 9] = ["", "%%", "%", "\n", "\t", "{\"a\": ", "ü", "\"", "100 "];

/// One operator that Envoy refuses would refuse a whole listener.
#[test]
fn envoy_takes_each_format_of_a_log_that_smc_reads() {
    let seed = setting("SMC_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let mut random = Random::new(seed);
    let operators: Vec<_> = Line::operators().collect();
    let with = |name: &str, arguments: &str, length: &str| format!("%{name}{arguments}{length}%");
    let each = operators.iter().flat_map(|name| {
        let suffixes = ARGUMENTS.iter().flat_map(|arguments| LENGTHS.map(|length| (arguments, length)));
        suffixes.map(move |(arguments, length)| with(name, arguments, length))
    });
    let mut drawn = || -> String {
        let mut one = || {
            let operator = with(random.pick(&operators), random.pick(&ARGUMENTS), random.pick(&LENGTHS));
            [random.pick(&TEXTS), &operator, random.pick(&TEXTS)].concat()
        };
        [one(), one()].concat()
    };
    let texts: Vec<_> = each.chain(std::iter::repeat_with(&mut drawn).take(20_000)).collect();
    let taken: Vec<_> = texts.iter().filter_map(|text| Some(Line::parse(text).ok()?.print(100))).collect();
    assert!(taken.len() > operators.len(), "{}", taken.len());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrap.json");
    std::fs::write(&path, logging(&taken)).unwrap();
    if let Err(said) = judge(&path) {
        panic!("SMC_SEED={seed}: Envoy refuses a format that SMC reads:\n{said}");
    }
    std::fs::write(&path, logging(&["%BOGUS%".to_owned()])).unwrap();
    assert!(judge(&path).is_err(), "Envoy judges formats");
}

#[test]
fn envoy_refuses_what_it_should() {
    // The harness itself: were everything accepted, the tests above would say nothing.
    let (root, chain, key) = certificates();
    let mesh = meshes::all().into_iter().find(|mesh| mesh.name == "permissive_with_egress").unwrap();
    let mut bootstrap = static_bootstrap(&view(&mesh.compile(&root, &chain, &key), "shop/a").unwrap());
    bootstrap.static_resources.as_mut().unwrap().clusters.clear();
    assert!(judge_snapshot(&bootstrap).is_err());
}
