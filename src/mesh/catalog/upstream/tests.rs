//! Which of several objects holds, for what, and what a change of one affects.

use super::*;
use crate::catalog::fixtures::{
    account, accounts, class, limit, name, namespace, permissive, pod, port, retry, service, service_id,
    setting, split, target, tcp_route, tcp_rule,
};
use crate::catalog::{Object, OutboundIntents};
use crate::policy::MAX_IDENTITY;
use smc_api::osm::MeshConfig;
use smc_types::ids::{MeshNamespace, TrustDomain};
use smc_types::problem::Subject;
use smc_types::proxy_class::AppProtocol;

/// `alice` and `bob` may call `web`, whose traffic is split to `web-v1` and `web-v2`, and `db`, over TCP.
fn shop() -> Catalog {
    let http = [port(80, AppProtocol::Http)];
    let any = [tcp_rule("shop/any")];
    Catalog::of([
        namespace("shop"),
        Object::from(service("shop/web", "web", &http)),
        Object::from(service("shop/web-v1", "v1", &http)),
        Object::from(service("shop/web-v2", "v2", &http)),
        Object::from(service("shop/db", "db", &[port(5432, AppProtocol::Tcp)])),
        Object::from(pod("shop/web", "shop/web", "web", "10.0.0.1")),
        Object::from(pod("shop/v1", "shop/v1", "v1", "10.0.0.2")),
        Object::from(pod("shop/v2", "shop/v2", "v2", "10.0.0.3")),
        Object::from(pod("shop/db", "shop/db", "db", "10.0.0.4")),
        Object::from(pod("shop/alice", "shop/alice", "alice", "10.0.0.5")),
        Object::from(pod("shop/bob", "shop/bob", "bob", "10.0.0.6")),
        tcp_route("shop/any", &[]),
        target("shop/web", "shop/web", &["shop/alice", "shop/bob"], &any),
        target("shop/db", "shop/db", &["shop/alice"], &any),
        split("shop/canary", "shop/web", &[("shop/web-v1", 1), ("shop/web-v2", 1)], &[]),
    ])
}

/// How often the calls of a source are sent again, by service.
fn retried(catalog: &Catalog, source: &str) -> Vec<(String, u32)> {
    let intent = OutboundIntents::default().of(catalog, &class(source));
    intent
        .retries
        .iter()
        .map(|(service, policy)| (service.to_string(), policy.what.retries.unwrap()))
        .collect()
}

/// The most connections of a source, by service.
fn limited(catalog: &Catalog, source: &str) -> Vec<(String, Option<u32>)> {
    let intent = OutboundIntents::default().of(catalog, &class(source));
    let limits = intent.connections.iter();
    limits.map(|(service, limit)| (service.to_string(), limit.what.max_connections)).collect()
}

fn of<T: Copy>(service: &str, value: T) -> (String, T) {
    (service.to_owned(), value)
}

/// The messages about an object.
fn problems(catalog: &Catalog, kind: Kind, id: &str) -> Vec<String> {
    let subject = Subject::Object(ObjectRef::Namespaced(kind, name(id)));
    let about = catalog.problems().into_iter().filter(|problem| problem.subject == subject);
    about.map(|problem| problem.message).collect()
}

#[test]
fn a_retry_is_of_its_source_and_the_services_it_names_and_may_call() {
    let mut catalog = shop();
    let affected = catalog.declare(retry("shop/r", "shop/alice", &["shop/web", "shop/web-v1"], 3));
    assert_eq!(affected.accounts, accounts(&["shop/alice"]));
    assert!(affected.endpoints.is_empty() && affected.inbound.is_empty() && !affected.everything);
    assert_eq!(retried(&catalog, "shop/alice"), [of("shop/web", 3)], "it may not call the leaf itself");
    assert_eq!(retried(&catalog, "shop/bob"), []);
    assert_eq!(problems(&catalog, Kind::Retry, "shop/r"), Vec::<String>::new());
    let affected = catalog.withdraw(Kind::Retry, "shop/r");
    assert_eq!(affected.accounts, accounts(&["shop/alice"]));
    assert_eq!(retried(&catalog, "shop/alice"), []);
}

#[test]
fn a_retry_that_names_another_source_leaves_the_former_one() {
    let mut catalog = shop();
    catalog.declare(retry("shop/r", "shop/alice", &["shop/web"], 3));
    let affected = catalog.declare(retry("shop/r", "shop/bob", &["shop/web"], 3));
    assert_eq!(affected.accounts, accounts(&["shop/alice", "shop/bob"]));
    assert_eq!(
        (retried(&catalog, "shop/alice"), retried(&catalog, "shop/bob")),
        (vec![], vec![of("shop/web", 3)])
    );
}

/// OSM takes any.
#[test]
fn of_two_retries_for_a_service_the_first_by_name_holds() {
    let mut catalog = shop();
    catalog.declare(retry("shop/b", "shop/alice", &["shop/web", "shop/db"], 3));
    catalog.declare(retry("shop/a", "shop/alice", &["shop/web"], 1));
    assert_eq!(retried(&catalog, "shop/alice"), [of("shop/db", 3), of("shop/web", 1)]);
    assert_eq!(problems(&catalog, Kind::Retry, "shop/a"), Vec::<String>::new());
    let [of_db, of_web] = problems(&catalog, Kind::Retry, "shop/b").try_into().unwrap();
    assert!(of_db.starts_with("names Service shop/db, none of whose ports carries HTTP"), "{of_db}");
    assert_eq!(
        of_web,
        "names Service shop/web, for which Retry shop/a of the same source holds: the first by name does"
    );
    catalog.withdraw(Kind::Retry, "shop/a");
    assert_eq!(problems(&catalog, Kind::Retry, "shop/b"), [of_db]);
}

#[test]
fn the_flag_of_the_mesh_config_takes_retries_out_of_effect() {
    let mut catalog = shop();
    catalog.declare(retry("shop/r", "shop/alice", &["shop/web"], 3));
    let flag = |ignores_retries| {
        let config = MeshConfig { ignores_retries, ..MeshConfig::default() };
        Object::MeshConfig(name("smc-system/osm-mesh-config"), config)
    };
    let affected = catalog.declare(flag(true));
    assert_eq!((affected.everything, affected.accounts), (false, accounts(&["shop/alice"])));
    assert_eq!(retried(&catalog, "shop/alice"), []);
    let said = problems(&catalog, Kind::Retry, "shop/r");
    assert_eq!(said, ["has no effect: featureFlags.enableRetryPolicy of the MeshConfig is false"]);
    let affected = catalog.declare(flag(false));
    assert_eq!((affected.everything, affected.accounts), (false, accounts(&["shop/alice"])));
    assert_eq!(retried(&catalog, "shop/alice"), [of("shop/web", 3)]);
}

#[test]
fn in_permissive_mode_a_retry_is_still_of_its_source_alone() {
    let mut catalog = shop();
    catalog.declare(permissive("smc-system", true));
    catalog.declare(retry("shop/r", "shop/alice", &["shop/web", "shop/web-v1"], 3));
    let mut intents = OutboundIntents::default();
    let [alice, bob] = ["shop/alice", "shop/bob"].map(|source| intents.of(&catalog, &class(source)));
    assert_eq!((alice.retries.len(), bob.retries.len()), (2, 0));
    assert_eq!((&alice.services, &alice.connections), (&bob.services, &bob.connections));
}

#[test]
fn what_a_service_can_bear_concerns_its_callers_and_those_of_splits_to_it() {
    let mut catalog = shop();
    let affected = catalog.declare(setting("shop/u", "shop/db", 5));
    assert_eq!(affected.accounts, accounts(&["shop/alice"]));
    assert!(affected.endpoints.is_empty() && affected.inbound.is_empty() && !affected.everything);
    assert_eq!(
        (limited(&catalog, "shop/alice"), limited(&catalog, "shop/bob")),
        (vec![of("shop/db", Some(5))], vec![])
    );
    assert_eq!(
        catalog.backpressure(&service_id("shop/db")).map(|found| found.what.max_connections),
        Some(Some(5))
    );

    let affected = catalog.declare(setting("shop/leaf", "shop/web-v1", 7));
    assert_eq!(affected.accounts, accounts(&["shop/alice", "shop/bob"]));
    assert_eq!(limited(&catalog, "shop/bob"), [of("shop/web-v1", Some(7))]);
    let affected = catalog.declare(setting("shop/leaf", "shop/web", 7));
    assert_eq!(affected.accounts, accounts(&["shop/alice", "shop/bob"]));
    assert_eq!(limited(&catalog, "shop/bob"), [of("shop/web", Some(7))]);
    catalog.withdraw(Kind::UpstreamTrafficSetting, "shop/leaf");
    assert_eq!(limited(&catalog, "shop/bob"), []);
    assert_eq!(catalog.backpressure(&service_id("shop/web")), None);
}

#[test]
fn of_two_settings_for_a_service_the_first_by_name_holds() {
    let mut catalog = shop();
    let kind = Kind::UpstreamTrafficSetting;
    catalog.declare(setting("shop/b", "shop/web", 5));
    assert_eq!(problems(&catalog, kind, "shop/b"), Vec::<String>::new());
    catalog.declare(setting("shop/a", "shop/web", 7));
    assert_eq!(limited(&catalog, "shop/bob"), [of("shop/web", Some(7))]);
    let said = "is Service shop/web, for which UpstreamTrafficSetting shop/a holds: the first by name does";
    assert_eq!(problems(&catalog, kind, "shop/b"), [said]);
    assert_eq!(problems(&catalog, kind, "shop/a"), Vec::<String>::new());
    catalog.withdraw(kind, "shop/a");
    assert_eq!(limited(&catalog, "shop/bob"), [of("shop/web", Some(5))]);
    assert_eq!(problems(&catalog, kind, "shop/b"), Vec::<String>::new());
}

#[test]
fn a_setting_for_no_service_of_the_mesh_limits_nothing_and_says_so() {
    let domain = TrustDomain::new("mesh.example").unwrap();
    let mut catalog = Catalog::new(MeshNamespace::default(), domain)
        .and([namespace("shop"), Object::from(service("shop/web", "web", &[port(80, AppProtocol::Http)]))]);
    let with = |host: UpstreamHost| {
        let Object::UpstreamTrafficSetting(object) = setting("shop/u", "shop/web", 1) else { unreachable!() };
        Object::from(UpstreamTrafficSetting { host, ..(*object).clone() })
    };
    let full =
        |domain: &str| UpstreamHost::Service { id: service_id("shop/web"), domain: Some(domain.to_owned()) };
    let said_of = |catalog: &Catalog| problems(catalog, Kind::UpstreamTrafficSetting, "shop/u");
    catalog.declare(with(full("mesh.example")));
    assert_eq!((catalog.backpressure(&service_id("shop/web")).is_some(), said_of(&catalog)), (true, vec![]));
    for (host, start) in [
        (full("other.example"), r#"is in the domain "other.example", which is not that of the mesh"#),
        (
            UpstreamHost::Outside("a.example".to_owned()),
            r#"is "a.example", which is no service of namespace shop"#,
        ),
    ] {
        catalog.declare(with(host));
        assert_eq!(catalog.backpressure(&service_id("shop/web")), None);
        let [said] = said_of(&catalog).try_into().unwrap();
        assert!(said.starts_with(start), "{said}");
    }
}

#[test]
fn what_is_not_enforced_of_a_setting_is_a_problem_and_the_rest_holds() {
    let mut catalog = shop();
    let Object::UpstreamTrafficSetting(object) = setting("shop/u", "shop/web", 1) else { unreachable!() };
    let not_enforced = ["spec.rateLimit"].into();
    catalog.declare(Object::from(UpstreamTrafficSetting { not_enforced, ..(*object).clone() }));
    assert_eq!(limited(&catalog, "shop/bob"), [of("shop/web", Some(1))]);
    let said = problems(&catalog, Kind::UpstreamTrafficSetting, "shop/u");
    assert_eq!(said, ["is checked, and not enforced yet: it limits nothing"]);
}

#[test]
fn services_that_are_missing_are_named_until_they_are_there() {
    let mut catalog = shop();
    catalog.declare(retry("shop/r", "shop/alice", &["shop/late"], 1));
    catalog.declare(setting("shop/u", "shop/late", 1));
    let kinds = [(Kind::Retry, "shop/r"), (Kind::UpstreamTrafficSetting, "shop/u")];
    for (kind, id) in kinds {
        let [said] = problems(&catalog, kind, id).try_into().unwrap();
        assert!(said.contains("Service shop/late, which does not exist (yet)"), "{said}");
    }
    catalog.declare(Object::from(service("shop/late", "late", &[port(80, AppProtocol::Http)])));
    for (kind, id) in kinds {
        assert_eq!(problems(&catalog, kind, id), Vec::<String>::new(), "{kind}");
    }
}

/// What a split sends to a service are calls of the root.
#[test]
fn a_retry_that_names_a_backend_alone_says_which_name_is_meant() {
    let mut catalog = shop();
    catalog.declare(retry("shop/r", "shop/alice", &["shop/web-v1"], 1));
    let said = "names Service shop/web-v1, to which a TrafficSplit sends calls of shop/web: these are meant by the \
                name of shop/web alone";
    assert_eq!(problems(&catalog, Kind::Retry, "shop/r"), [said]);
    catalog.withdraw(Kind::TrafficSplit, "shop/canary");
    assert_eq!(problems(&catalog, Kind::Retry, "shop/r"), Vec::<String>::new());
    catalog.declare(split("shop/canary", "shop/web", &[("shop/web-v1", 1)], &[]));
    assert_eq!(problems(&catalog, Kind::Retry, "shop/r"), [said]);
}

#[test]
fn an_object_is_judged_before_it_is_declared_by_what_would_hold_then() {
    let mut catalog = shop();
    catalog.declare(setting("shop/b", "shop/web", 5));
    catalog.declare(retry("shop/b", "shop/alice", &["shop/web"], 3));
    let about = |name: &str| {
        let objects = [setting(name, "shop/web", 7), retry(name, "shop/alice", &["shop/web"], 1)];
        objects.map(|object| catalog.objections(&object).len())
    };
    assert_eq!(about("shop/a"), [0, 0], "these would hold");
    assert_eq!(about("shop/b"), [0, 0], "a new version");
    assert_eq!(about("shop/c"), [1, 1]);
}

#[test]
fn an_edit_that_changes_no_limit_concerns_no_caller() {
    let mut catalog = shop();
    catalog.declare(permissive("smc-system", true));
    catalog.declare(setting("shop/a", "shop/web", 5));
    let Object::UpstreamTrafficSetting(object) = setting("shop/a", "shop/web", 5) else { unreachable!() };
    let not_enforced = ["spec.rateLimit"].into();
    for (object, what) in [
        (Object::from(UpstreamTrafficSetting { not_enforced, ..(*object).clone() }), "a limit of rates"),
        (setting("shop/b", "shop/web", 9), "one that another one hides"),
    ] {
        assert!(catalog.declare(object).is_empty(), "{what}");
    }
    assert!(!catalog.withdraw(Kind::UpstreamTrafficSetting, "shop/a").is_empty(), "now the other one holds");
}

/// How many requests in a minute the services of an identity's ports let in, and to how many paths.
fn let_in(catalog: &Catalog, id: &str) -> Vec<(String, u32, usize)> {
    let account = account(id);
    let intents = catalog.classes(&account).map(|class| catalog.inbound_intent(class, MAX_IDENTITY));
    let limits = intents.flat_map(|intent| intent.limits);
    let said = limits.map(|(service, limits)| {
        let requests = limits.what.requests.as_ref().unwrap().rate.amount;
        (service.to_string(), requests, limits.what.routes.len())
    });
    said.collect()
}

#[test]
fn a_rate_limit_concerns_the_pods_of_its_service_and_no_caller() {
    let mut catalog = shop();
    catalog.withdraw(Kind::TrafficSplit, "shop/canary");
    let affected = catalog.declare(limit("shop/u", "shop/web", 10, &["/a"]));
    assert_eq!(affected.inbound, accounts(&["shop/web"]));
    assert!(affected.accounts.is_empty() && affected.endpoints.is_empty() && !affected.everything);
    assert_eq!(let_in(&catalog, "shop/web"), [("shop/web".to_owned(), 10, 1)]);
    assert_eq!(let_in(&catalog, "shop/v1"), []);
    assert_eq!(problems(&catalog, Kind::UpstreamTrafficSetting, "shop/u"), Vec::<String>::new());
    let affected = catalog.declare(limit("shop/u", "shop/web-v1", 20, &[]));
    assert_eq!(affected.inbound, accounts(&["shop/v1", "shop/web"]));
    assert_eq!(let_in(&catalog, "shop/web"), []);
    let affected = catalog.withdraw(Kind::UpstreamTrafficSetting, "shop/u");
    assert_eq!(affected.inbound, accounts(&["shop/v1"]));
}

#[test]
fn a_change_of_one_kind_of_limit_affects_nobody_of_the_other() {
    let mut catalog = shop();
    catalog.declare(setting("shop/u", "shop/web", 1));
    let affected = catalog.declare(setting("shop/u", "shop/web", 2));
    assert!(affected.inbound.is_empty() && !affected.accounts.is_empty());
    let affected = catalog.declare(setting("shop/u", "shop/web", 2));
    assert!(affected.is_empty());
}

#[test]
fn of_two_objects_the_first_by_name_says_how_much_is_let_in() {
    let mut catalog = shop();
    catalog.declare(limit("shop/b", "shop/web", 20, &[]));
    catalog.declare(limit("shop/a", "shop/web", 10, &[]));
    assert_eq!(let_in(&catalog, "shop/web"), [("shop/web".to_owned(), 10, 0)]);
    let said = problems(&catalog, Kind::UpstreamTrafficSetting, "shop/b");
    assert!(said[0].contains("for which UpstreamTrafficSetting shop/a holds"), "{said:?}");
}

#[test]
fn a_rate_of_requests_of_a_service_without_http_is_named() {
    let catalog = shop().and([limit("shop/u", "shop/db", 10, &[])]);
    let said = problems(&catalog, Kind::UpstreamTrafficSetting, "shop/u");
    assert!(said[0].starts_with("is Service shop/db, none of whose ports carries HTTP"), "{said:?}");
}

/// What limits comes before what grants.
#[test]
fn a_port_without_room_for_its_limits_is_closed() {
    let mut catalog = shop();
    let long: Vec<_> = (0..20).map(|place| format!("/{place}/{}", "x".repeat(900))).collect();
    let long: Vec<_> = long.iter().map(String::as_str).collect();
    catalog.declare(limit("shop/u", "shop/web", 10, &long));
    let web = account("shop/web");
    let class = catalog.classes(&web).next().unwrap();
    let demand = catalog.inbound_estimate(class).demand();
    assert!(catalog.inbound_intent(class, demand).without_room.is_empty());
    let closed = catalog.inbound_intent(class, 20 * 900);
    assert_eq!((closed.ports.len(), closed.limits.len(), closed.without_room.len()), (0, 1, 1));
}

/// Its sidecar sees the names of the backends.
#[test]
fn a_rate_limit_of_a_splits_root_says_what_it_does_not_count() {
    let mut catalog = shop().and([limit("shop/u", "shop/web", 10, &[])]);
    let said = problems(&catalog, Kind::UpstreamTrafficSetting, "shop/u");
    assert!(said[0].contains("whose calls TrafficSplits send to others"), "{said:?}");
    catalog.withdraw(Kind::TrafficSplit, "shop/canary");
    assert_eq!(problems(&catalog, Kind::UpstreamTrafficSetting, "shop/u"), Vec::<String>::new());
}
