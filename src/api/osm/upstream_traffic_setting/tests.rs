//! The object as OSM's documents write it, and what of others is left out.

use serde_json::json;
use smc_model::rate_limit::{Rate, RateUnit, RequestLimit};
use smc_types::problem::Severity;

use super::*;

/// The limit of connections of [`upstream`].
const CONNECTIONS: Rate = Rate { amount: 1, unit: RateUnit::Minute, burst: 2 };

fn upstream() -> Value {
    json!({
        "host": "httpbin.shop.svc.cluster.local",
        "connectionSettings": {
            "tcp": {"maxConnections": 1, "connectTimeout": "5s"},
            "http": {"maxRequests": 1, "maxRequestsPerConnection": 1, "maxPendingRequests": 1, "maxRetries": 1},
        },
        "rateLimit": {"local": {
            "tcp": {"connections": 1, "unit": "minute", "burst": 2},
            "http": {"requests": 3, "unit": "minute", "burst": 7, "responseStatusCode": 503,
                "responseHeadersToAdd": [{"name": "hello", "value": "world"}]},
        }},
        "httpRoutes": [{"path": "/status/200", "rateLimit": {"local": {"requests": 3, "unit": "minute"}}}],
    })
}

fn read(spec: Value) -> Reading<UpstreamTrafficSetting> {
    read_upstream_traffic_setting(&"shop/object".parse().unwrap(), spec)
}

fn service(domain: Option<&str>) -> UpstreamHost {
    UpstreamHost::Service { id: "shop/httpbin".parse().unwrap(), domain: domain.map(str::to_owned) }
}

#[test]
fn an_object_of_osms_guides_is_read_as_it_is() {
    let reading = read(upstream());
    assert_eq!(reading.problems, []);
    let object = reading.object.unwrap();
    assert_eq!(object.host, service(None));
    let expected = ConnectionSettings {
        max_connections: Some(1),
        connect_timeout: Some(Duration::from_secs(5)),
        max_requests: Some(1),
        max_requests_per_connection: Some(1),
        max_pending_requests: Some(1),
        max_retries: Some(1),
    };
    assert_eq!(object.connections, expected);
    let per_minute = |burst| Rate { amount: 3, unit: RateUnit::Minute, burst };
    let headers = vec![("hello".to_owned(), "world".to_owned())];
    let limit = RequestLimit { rate: per_minute(0), status: 429, headers: Vec::new() };
    let expected = LocalRateLimits {
        connections: Some(CONNECTIONS),
        requests: Some(RequestLimit { rate: per_minute(7), status: 503, headers }),
        routes: vec![RouteLimit { path: Pattern::prefix("/status/200").unwrap(), limit }],
    };
    assert_eq!(*object.rate_limits, expected);
    assert_eq!(object.not_enforced, BTreeSet::new());
}

/// The limit of requests of OSM's guide with these changes, and what is said of them: severity and field.
fn limit(changes: &[(&str, Value)]) -> (Option<RequestLimit>, Vec<(Severity, String)>) {
    let mut spec = upstream();
    let http = spec.pointer_mut("/rateLimit/local/http").unwrap().as_object_mut().unwrap();
    for (field, value) in changes {
        if value.is_null() {
            http.remove(*field)
        } else {
            http.insert((*field).to_owned(), value.clone())
        };
    }
    let reading = read(spec);
    let said = reading.problems.into_iter();
    let said = said.map(|problem| {
        let field = problem.field.strip_prefix("spec.rateLimit.local.http.").map(str::to_owned);
        (problem.severity, field.unwrap_or(problem.field))
    });
    (reading.object.unwrap().rate_limits.requests.clone(), said.collect())
}

#[test]
fn a_limit_of_requests_without_its_number_or_unit_is_none() {
    for (field, value) in [
        ("requests", json!(null)),
        ("requests", json!(0)),
        ("requests", json!(-1)),
        ("requests", json!("3")),
        ("requests", json!(4_294_967_296_u64)),
        ("unit", json!(null)),
        ("unit", json!("day")),
        ("unit", json!("Minute")),
        ("unit", json!(60)),
    ] {
        let (limit, said) = limit(&[(field, value.clone())]);
        assert_eq!((limit, said), (None, vec![(Severity::Error, field.to_owned())]), "{field} {value}");
    }
}

/// A mistake in what decorates a limit does not open it.
#[test]
fn a_limit_stays_whose_answer_cannot_be_given() {
    let (usual, _) = limit(&[("responseHeadersToAdd", json!(null)), ("responseStatusCode", json!(null))]);
    let usual = usual.unwrap();
    assert_eq!(usual.status, 429);
    let header = |name: &str, value: &str| json!([{"name": name, "value": value}]);
    let long = "x".repeat(4000);
    let heavy =
        [("a", &long), ("b", &long), ("c", &long)].map(|(name, value)| json!({"name": name, "value": value}));
    for (field, value, severity, at) in [
        // The example of OSM's guide: Envoy refuses it.
        ("responseStatusCode", json!(509), Severity::Warning, "responseStatusCode"),
        ("responseStatusCode", json!(599), Severity::Warning, "responseStatusCode"),
        ("responseStatusCode", json!(200), Severity::Error, "responseStatusCode"),
        ("responseStatusCode", json!(399), Severity::Error, "responseStatusCode"),
        ("responseStatusCode", json!("429"), Severity::Error, "responseStatusCode"),
        ("responseHeadersToAdd", header("", "a"), Severity::Error, "responseHeadersToAdd[0].name"),
        ("responseHeadersToAdd", header("a b", "a"), Severity::Error, "responseHeadersToAdd[0].name"),
        ("responseHeadersToAdd", header(":status", "200"), Severity::Error, "responseHeadersToAdd[0].name"),
        (
            "responseHeadersToAdd",
            header("Content-Length", "9"),
            Severity::Error,
            "responseHeadersToAdd[0].name",
        ),
        (
            "responseHeadersToAdd",
            header("transfer-encoding", "x"),
            Severity::Error,
            "responseHeadersToAdd[0].name",
        ),
        ("responseHeadersToAdd", header("grpc-status", "0"), Severity::Error, "responseHeadersToAdd[0].name"),
        (
            "responseHeadersToAdd",
            header("Connection", "close"),
            Severity::Error,
            "responseHeadersToAdd[0].name",
        ),
        (
            "responseHeadersToAdd",
            header("x-envoy-ratelimited", "1"),
            Severity::Error,
            "responseHeadersToAdd[0].name",
        ),
        (
            "responseHeadersToAdd",
            header("X-SMC-not-processed", "1"),
            Severity::Error,
            "responseHeadersToAdd[0].name",
        ),
        ("responseHeadersToAdd", header("a", "b\r\nc: d"), Severity::Error, "responseHeadersToAdd[0].value"),
        ("responseHeadersToAdd", header("a", "\u{0}"), Severity::Error, "responseHeadersToAdd[0].value"),
        ("responseHeadersToAdd", header("a", "ä"), Severity::Error, "responseHeadersToAdd[0].value"),
        ("responseHeadersToAdd", json!([{"name": "a"}]), Severity::Error, "responseHeadersToAdd[0].value"),
        ("responseHeadersToAdd", json!(heavy), Severity::Error, "responseHeadersToAdd"),
        ("burst", json!(-1), Severity::Error, "burst"),
    ] {
        let other = if field == "responseStatusCode" { "responseHeadersToAdd" } else { "responseStatusCode" };
        let (limit, said) = limit(&[(other, json!(null)), (field, value.clone())]);
        let mut expected = usual.clone();
        if field == "burst" {
            expected.rate.burst = 0;
            expected.headers = vec![("hello".to_owned(), "world".to_owned())];
        }
        assert_eq!((limit, said), (Some(expected), vec![(severity, at.to_owned())]), "{field} {value}");
    }
}

#[test]
fn a_header_of_an_answer_may_hold_what_is_a_format_to_envoy() {
    let headers =
        json!([{"name": "X-Why", "value": "100 % of %REQ(cookie)%"}, {"name": "retry-after", "value": "60"}]);
    let (limit, said) = limit(&[("responseHeadersToAdd", headers)]);
    let headers = limit.unwrap().headers;
    let names: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(names, [("x-why", "100 % of %REQ(cookie)%"), ("retry-after", "60")]);
    assert_eq!(said, []);
}

/// 256 routes with 32 headers of 4 KiB each would be 33 MB on every port of the service.
#[test]
fn the_limits_of_paths_are_bounded_together() {
    let path = |place: usize| {
        let path = format!("/{place}/{}", "x".repeat(900));
        json!({"path": path, "rateLimit": {"local": {"requests": 1, "unit": "second"}}})
    };
    let mut spec = upstream();
    spec["httpRoutes"] = (0..256).map(path).collect();
    let reading = read(spec);
    let limits = reading.object.unwrap().rate_limits;
    let bytes = limits.bytes(true);
    assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES - 2048, "{bytes}");
    assert!(limits.requests.is_some(), "the limit of the service stays");
    let said: Vec<_> = reading.problems.iter().map(|problem| (problem.severity, &*problem.field)).collect();
    assert_eq!(said, [(Severity::Error, "spec.httpRoutes")]);
}

#[test]
fn a_path_that_is_there_twice_is_named() {
    let mut spec = upstream();
    let limit =
        |requests: u32| json!({"path": "/a", "rateLimit": {"local": {"requests": requests, "unit": "hour"}}});
    spec["httpRoutes"] = json!([limit(1), limit(2)]);
    let reading = read(spec);
    let limits: Vec<_> =
        reading.object.unwrap().rate_limits.routes.iter().map(|one| one.limit.rate.amount).collect();
    assert_eq!(limits, [1]);
    let said: Vec<_> = reading.problems.iter().map(|problem| (problem.severity, &*problem.field)).collect();
    assert_eq!(said, [(Severity::Warning, "spec.httpRoutes[1].path")]);
}

#[test]
fn a_path_that_only_a_rate_limit_service_counts_is_not_enforced() {
    let mut spec = upstream();
    spec["rateLimit"]["global"] = json!({"http": {"domain": "test"}});
    spec["httpRoutes"] = json!([
        {"path": "/a", "rateLimit": {"global": {"descriptors": []}}},
        {"path": "/b"},
        {"path": "/c", "rateLimit": {"local": {"requests": 3, "unit": "hour"}}},
    ]);
    let reading = read(spec);
    assert_eq!(reading.problems, []);
    let object = reading.object.unwrap();
    let paths: Vec<_> = object.rate_limits.routes.iter().map(|route| route.path.as_prefix()).collect();
    assert_eq!(paths, ["/c"]);
    let expected = ["spec.rateLimit.global", "spec.httpRoutes[].rateLimit.global"];
    assert_eq!(object.not_enforced, expected.into());
}

#[test]
fn a_limit_that_cannot_be_read_is_left_out_and_named() {
    let whole = read(upstream()).object.unwrap().connections;
    for (pointer, value, rest) in [
        ("tcp/maxConnections", json!("1"), ConnectionSettings { max_connections: None, ..whole }),
        (
            "tcp/maxConnections",
            json!(4_294_967_296_u64),
            ConnectionSettings { max_connections: None, ..whole },
        ),
        ("tcp/connectTimeout", json!("5"), ConnectionSettings { connect_timeout: None, ..whole }),
        ("tcp/connectTimeout", json!("0s"), ConnectionSettings { connect_timeout: None, ..whole }),
        ("tcp/connectTimeout", json!("2h"), ConnectionSettings { connect_timeout: None, ..whole }),
        ("http/maxRequests", json!("1"), ConnectionSettings { max_requests: None, ..whole }),
        ("http/maxRequests", json!(-1), ConnectionSettings { max_requests: None, ..whole }),
        (
            "http/maxRequestsPerConnection",
            json!(-1),
            ConnectionSettings { max_requests_per_connection: None, ..whole },
        ),
        ("http/maxPendingRequests", json!("1"), ConnectionSettings { max_pending_requests: None, ..whole }),
        ("http/maxRetries", json!("1"), ConnectionSettings { max_retries: None, ..whole }),
    ] {
        let mut spec = upstream();
        *spec.pointer_mut(&format!("/connectionSettings/{pointer}")).unwrap() = value;
        let reading = read(spec);
        assert_eq!(reading.object.unwrap().connections, rest, "{pointer}");
        let fields: Vec<_> = reading.problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, [format!("spec.connectionSettings.{}", pointer.replace('/', "."))]);
    }
}

#[test]
fn a_limit_of_zero_is_obeyed_and_named_where_nothing_passes() {
    let whole = read(upstream()).object.unwrap().connections;
    for (pointer, named, expected) in [
        ("tcp/maxConnections", 1, ConnectionSettings { max_connections: Some(0), ..whole }),
        ("http/maxRequests", 1, ConnectionSettings { max_requests: Some(0), ..whole }),
        ("http/maxPendingRequests", 1, ConnectionSettings { max_pending_requests: Some(0), ..whole }),
        ("http/maxRetries", 0, ConnectionSettings { max_retries: Some(0), ..whole }),
        // As in Envoy and OSM.
        (
            "http/maxRequestsPerConnection",
            0,
            ConnectionSettings { max_requests_per_connection: None, ..whole },
        ),
    ] {
        let mut spec = upstream();
        *spec.pointer_mut(&format!("/connectionSettings/{pointer}")).unwrap() = json!(0);
        let reading = read(spec);
        assert_eq!(reading.object.unwrap().connections, expected, "{pointer}");
        let severities: Vec<_> = reading.problems.iter().map(|problem| problem.severity).collect();
        assert_eq!(severities, vec![Severity::Warning; named], "{pointer}");
    }
}

#[test]
fn what_can_mean_nothing_is_an_error_at_its_field() {
    for (pointer, value, field) in [
        ("/host", json!("httpbin"), "spec.host"),
        ("/host", json!("httpbin..svc.cluster.local"), "spec.host"),
        ("/host", json!("http://httpbin.shop"), "spec.host"),
        ("/rateLimit/local/http/unit", json!("day"), "spec.rateLimit.local.http.unit"),
        (
            "/rateLimit/local/http/responseStatusCode",
            json!(200),
            "spec.rateLimit.local.http.responseStatusCode",
        ),
        ("/httpRoutes/0/path", json!("("), "spec.httpRoutes[0].path"),
    ] {
        let mut spec = upstream();
        *spec.pointer_mut(pointer).unwrap() = value;
        let errors = read(spec).problems.into_iter().filter(|problem| problem.severity == Severity::Error);
        assert_eq!(errors.map(|problem| problem.field).collect::<Vec<_>>(), [field], "{pointer}");
    }
}

/// OSM's guide on circuit breaking has hosts that are no service of the namespace, for an Egress.
#[test]
fn a_host_is_a_service_of_the_namespace_or_outside() {
    let outside = |host: &str| UpstreamHost::Outside(host.to_owned());
    for (host, expected) in [
        ("httpbin.shop.svc", service(None)),
        ("httpbin.shop.svc.cluster", service(None)),
        ("httpbin.shop.svc.cluster.local", service(None)),
        ("httpbin.shop.svc.mesh.example", service(Some("mesh.example"))),
        ("httpbin.shop", outside("httpbin.shop")),
        ("httpbin.shop.svc2.cluster.local", outside("httpbin.shop.svc2.cluster.local")),
        ("httpbin.other.svc.cluster.local", outside("httpbin.other.svc.cluster.local")),
        ("httpbin.org", outside("httpbin.org")),
    ] {
        let mut spec = upstream();
        spec["host"] = json!(host);
        let reading = read(spec);
        assert_eq!(
            (reading.object.map(|object| object.host), reading.problems),
            (Some(expected), vec![]),
            "{host}"
        );
    }
}
