//! What reviews and objects cost in memory, counted by the allocator.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "the measured figures")]

use serde_json::Value;
use smc_decode::manifest::canonical;
use smc_decode::{Rules, kinds};
use smc_kubernetes::webhook::{conversion, validator};
use smc_testkit::allocations::{Counting, held, peak};
use smc_types::ids::MeshName;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// Much that is small on the wire, with `size` bytes.
fn hostile(size: usize) -> Vec<(&'static str, String)> {
    let many = |value: &str| format!("[{value}{}]", format!(",{value}").repeat(size / (value.len() + 1)));
    let fields = |number: usize| (0..number).map(|n| format!(r#""{n}":0,"#)).collect::<Vec<_>>().concat();
    vec![
        ("objects of a field", many(r#"{"":0}"#)),
        ("empty objects", many("{}")),
        ("empty lists", many("[]")),
        ("numbers", many("0")),
        ("empty texts", many(r#""""#)),
        ("objects of twelve fields", many(&format!("{{{}\"\":0}}", fields(12)))),
        ("one object of many fields", format!("{{{}\"\":0}}", fields(size / 10))),
        ("a long field", format!(r#"{{"{}":0}}"#, "x".repeat(size))),
        ("a long text", format!("\"{}\"", "x".repeat(size))),
        ("a text of escapes", format!("\"{}\"", r"\n".repeat(size / 2))),
        ("deep lists", "[".repeat(size / 2) + &"]".repeat(size / 2)),
        ("deep objects", r#"{"":"#.repeat(size / 6) + "0" + &"}".repeat(size / 6)),
    ]
}

/// The places of an object that are read into types of their own, and one that is not read.
fn objects(size: usize) -> Vec<(String, String)> {
    let kinds = [
        ("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", "matches"),
        ("access.smi-spec.io/v1alpha3", "TrafficTarget", "sources"),
        ("split.smi-spec.io/v1alpha4", "TrafficSplit", "backends"),
        ("split.smi-spec.io/v1alpha2", "TrafficSplit", "backends"),
        ("policy.openservicemesh.io/v1alpha1", "Egress", "hosts"),
        ("mesh.smc.dev/v1alpha1", "MeshWorkload", "addresses"),
    ];
    let mut objects = Vec::new();
    for (what, value) in hostile(size) {
        for (version, kind, field) in kinds {
            let head = format!(r#""apiVersion":"{version}","kind":"{kind}","#);
            for (place, rest) in [
                ("spec", format!(r#""metadata":{{"name":"a"}},"spec":{{"{field}":{value}}}"#)),
                (
                    "managedFields",
                    format!(r#""metadata":{{"name":"a","managedFields":{value}}},"spec":{{}}"#),
                ),
                ("ownerReferences", format!(r#""metadata":{{"name":"a","ownerReferences":{value}}}"#)),
                ("labels", format!(r#""metadata":{{"name":"a","labels":{value}}}"#)),
            ] {
                objects.push((format!("{what} in {place} of {kind}"), format!("{{{head}{rest}}}")));
            }
        }
    }
    objects
}

/// Three times what objects may count, of which a review has 32 MiB.
const MOST: usize = 96 * MIB;

#[test]
fn no_review_takes_more_memory_than_its_bound() {
    let mut most = (0, String::new());
    let mut measure = |what: String, cost: usize| {
        assert!(cost <= MOST, "{what}: {} MiB", cost / MIB);
        if cost > most.0 {
            most = (cost, what);
        }
    };
    for (what, object) in objects(4 * MIB) {
        let head = r#"{"request":{"uid":"u","operation":"CREATE","namespace":"shop","object":"#;
        let review = format!("{head}{object}}}}}");
        let (answer, cost) = peak(|| validator::review(&review, None));
        assert!(answer["response"]["allowed"].is_boolean());
        measure(what, cost);
    }
    for (what, value) in hostile(16 * MIB) {
        let head = r#"{"request":{"uid":"u","desiredAPIVersion":"split.smi-spec.io/v1alpha4","objects":"#;
        let review = format!("{head}{value}}}}}");
        let (_, cost) = peak(|| conversion::review(&review));
        measure(format!("{what} to be converted"), cost);
    }
    // The matches of an old version are a text within the object.
    let matches = serde_json::to_string(&format!("[{}0]", "{},".repeat(MIB))).unwrap();
    let split = format!(
        r#"{{"apiVersion":"split.smi-spec.io/v1alpha1","kind":"TrafficSplit","metadata":{{"name":"a","annotations":{{"{}":{matches}}}}},"spec":{{"service":"s","backends":[]}}}}"#,
        smc_api::smi::MATCHES_ANNOTATION
    );
    let head = r#"{"request":{"uid":"u","desiredAPIVersion":"split.smi-spec.io/v1alpha4","objects":["#;
    let (answer, cost) = peak(|| conversion::review(&format!("{head}{split}]}}}}")));
    assert!(String::from_utf8_lossy(&answer).contains("more than 32 MiB"), "{answer:?}");
    measure("matches in an annotation".to_owned(), cost);
    println!("the most: {} MiB for {}", most.0 / MIB, most.1);
    // What the same text takes as it is: the test can tell.
    for (what, value) in hostile(MIB).into_iter().take(2) {
        let (read, cost) = peak(|| serde_json::from_str::<Value>(&value).is_ok());
        println!("{what}: {} MiB for one of text", cost / MIB);
        assert!(read && cost > 10 * MIB, "{what}: {cost}");
    }
}

/// A list of ordinary objects costs its text and the answer's, however many there are.
#[test]
fn a_conversion_takes_memory_for_one_object_at_a_time() {
    let split = r#"{"apiVersion":"split.smi-spec.io/v1alpha1","kind":"TrafficSplit","metadata":{"name":"a"},"spec":{"service":"s","backends":[{"service":"b","weight":"1"}]}}"#;
    let head = r#"{"request":{"uid":"u","desiredAPIVersion":"split.smi-spec.io/v1alpha4","objects":["#;
    let list = format!("{split},").repeat(8 * MIB / split.len()) + split;
    let review = format!("{head}{list}]}}}}");
    let (answer, cost) = peak(|| conversion::review(&review));
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["result"]["status"], "Success");
    assert!(cost < 4 * review.len(), "{cost} bytes for {}", review.len());
}

/// Objects of Kubernetes' own kinds in which little text becomes much.
fn own_kinds(count: usize) -> Vec<(String, String)> {
    let mut objects = Vec::new();
    for (version, kind, before, item, after) in [
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            r#""addressType":"IPv4","endpoints":["#,
            r#"{"addresses":["1.1.1.1"]}"#,
            "]",
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            r#""addressType":"IPv6","ports":[],"endpoints":[{"addresses":["#,
            r#""::""#,
            "]}]",
        ),
        ("discovery.k8s.io/v1", "EndpointSlice", r#""addressType":"IPv4","ports":["#, r#"{"port":1}"#, "]"),
        ("v1", "Service", r#""spec":{"ports":["#, r#"{"port":1}"#, "]}"),
        ("v1", "Service", r#""spec":{"clusterIPs":["#, r#""::""#, "]}"),
        (
            "v1",
            "Pod",
            r#""spec":{"containers":[{"name":"a","ports":["#,
            r#"{"name":"a","containerPort":1}"#,
            "]}]}",
        ),
        ("v1", "Pod", r#""spec":{"containers":["#, r#"{"name":"a"}"#, "]}"),
        ("v1", "Pod", r#""status":{"podIPs":["#, r#"{"ip":"::"}"#, "]}"),
    ] {
        let items = vec![item; count].join(",");
        let head =
            format!(r#""apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"a","namespace":"b"}}"#);
        objects.push((format!("{item} of {kind}"), format!("{{{head},{before}{items}{after}}}")));
    }
    let labels: Vec<_> = (0..count).map(|number| format!(r#""{number}":"""#)).collect();
    let head = r#""apiVersion":"v1","kind":"Pod""#;
    let meta = format!(r#""metadata":{{"name":"a","namespace":"b","labels":{{{}}}}}"#, labels.join(","));
    objects.push(("labels of Pod".to_owned(), format!("{{{head},{meta},\"spec\":{{\"containers\":[]}}}}")));
    objects
}

/// The source bounds what it holds by this estimate. What an object takes beside it is 1 KiB, and what
/// problems take is counted by itself.
#[test]
fn an_object_takes_no_more_memory_than_its_estimate() {
    let rules = Rules::api_server(MeshName::default());
    let mut most = (0, String::new());
    let in_namespace = |(what, json): (String, String)| {
        (what, json.replacen(r#""metadata":{"name":"a""#, r#""metadata":{"name":"a","namespace":"b""#, 1))
    };
    let custom = objects(64 << 10).into_iter().map(in_namespace);
    for (what, json) in custom.chain([1, 100, 2_000].into_iter().flat_map(own_kinds)) {
        let estimate = canonical::held_bytes(&json) + 1024;
        let ((read, _text), bytes) = held(|| {
            let (read, problems) = match kinds::read(&json, &rules) {
                Some((reference, object, problems)) => (object.map(|object| (reference, object)), problems),
                None => (None, Vec::new()),
            };
            drop(problems);
            (read, std::sync::Arc::<str>::from(json.as_str()))
        });
        let percent = 100 * bytes / estimate;
        if percent > most.0 {
            most = (percent, what.clone());
        }
        assert!(
            bytes <= estimate,
            "{what}: {bytes} bytes, {estimate} by the estimate, read: {}",
            read.is_some()
        );
    }
    println!("the most: {} % of the estimate for {}", most.0, most.1);
    assert!(most.0 > 30, "the estimate is far too high: {most:?}");
}
