//! Reviews as an API server sends them, and as it does not.

use super::*;

fn review(review: &Value, catalog: Option<&Catalog>) -> Value {
    super::review(&review.to_string(), catalog)
}

fn split(name: &str, root: &str, weight: i32) -> Value {
    json!({
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "1"},
        "spec": {"service": root, "backends": [{"service": "v1", "weight": weight}]},
    })
}

fn request(operation: &str, old: &Value, new: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "namespace": "shop", "object": new, "oldObject": old,
        },
    })
}

/// `yes`, `yes` with warnings, or the reason of the refusal.
fn said(question: &Value, catalog: Option<&Catalog>) -> String {
    let answer = review(question, catalog);
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    match response["allowed"].as_bool().unwrap() {
        true if response["warnings"] == json!([]) => "yes".to_owned(),
        true => format!("yes {}", response["warnings"][0].as_str().unwrap()),
        false => {
            format!("{}: {}", response["status"]["code"], response["status"]["message"].as_str().unwrap())
        }
    }
}

fn created(object: &Value) -> String {
    said(&request("CREATE", &Value::Null, object), None)
}

#[test]
fn an_object_is_refused_with_the_field_and_the_reason() {
    assert_eq!(created(&split("a", "root", 1)), "yes");
    let refused = created(&split("a", "root", -1));
    assert!(refused.starts_with("422: spec.backends[0].weight: must be a whole number"), "{refused}");
    let group = |regex: &str| {
        json!({
            "apiVersion": "specs.smi-spec.io/v1alpha4",
            "kind": "HTTPRouteGroup",
            "metadata": {"name": "g", "namespace": "shop"},
            "spec": {"matches": [{"name": "m", "pathRegex": regex}]},
        })
    };
    assert_eq!(created(&group("/books.*")), "yes");
    let refused = created(&group("/books("));
    assert!(refused.starts_with("422: spec.matches[0].pathRegex: "), "{refused}");
    let target = json!({
        "apiVersion": "access.smi-spec.io/v1alpha3",
        "kind": "TrafficTarget",
        "metadata": {"name": "t"},
        "spec": {"destination": {"kind": "ServiceAccount", "name": "a"}},
    });
    let refused = created(&target);
    for field in ["spec.sources", "spec.rules"] {
        assert!(refused.contains(field), "{refused}");
    }
}

fn group_with(expressions: &[String]) -> Value {
    let headers = |text: &String| json!([{"h": text}]);
    let matches = expressions.iter().enumerate();
    let matches: Vec<_> =
        matches.map(|(i, text)| json!({"name": format!("m{i:03}"), "headers": headers(text)})).collect();
    json!({
        "apiVersion": "specs.smi-spec.io/v1alpha4",
        "kind": "HTTPRouteGroup",
        "metadata": {"name": "g", "namespace": "shop"},
        "spec": {"matches": matches},
    })
}

#[test]
fn a_group_is_refused_whose_header_expressions_cannot_be_completed() {
    assert_eq!(created(&group_with(&["t[0-9]+".to_owned()])), "yes");
    let refused = created(&group_with(&[".*a.{12}".to_owned()]));
    assert!(refused.starts_with("422: spec.matches: ") && refused.contains("too complex"), "{refused}");
    let hostile: Vec<_> = (0..256).map(|i| format!("a{{0,480}}{i}")).collect();
    let refused = created(&group_with(&hostile));
    assert!(refused.contains("more work than one group may take"), "{refused}");
    // It may stay as wrong as it is.
    let hostile = group_with(&hostile);
    let mut labelled = hostile.clone();
    labelled["spec"]["matches"][0]["methods"] = json!(["GET"]);
    assert!(said(&request("UPDATE", &hostile, &labelled), None).starts_with("yes spec.matches"));
}

#[test]
fn a_split_of_an_old_version_is_judged_with_the_matches_it_carries() {
    let mut old = split("a", "root", 1);
    old["apiVersion"] = json!("split.smi-spec.io/v1alpha1");
    old["spec"]["backends"][0]["weight"] = json!("500m");
    assert_eq!(created(&old), "yes");
    old["metadata"]["annotations"] = json!({MATCHES_ANNOTATION: "everything"});
    assert!(created(&old).starts_with("422: TrafficSplit \"a\": metadata.annotations"), "{}", created(&old));
    old["metadata"]["annotations"] = json!({MATCHES_ANNOTATION: r#"[{"kind":"TCPRoute","name":"a"}]"#});
    assert!(created(&old).starts_with("422: spec.matches[0].kind"), "{}", created(&old));
}

#[test]
fn an_update_that_changes_nothing_or_makes_nothing_worse_is_let_through() {
    let update = |old: &Value, new: &Value| said(&request("UPDATE", old, new), None);
    let (good, bad) = (split("a", "root", 1), split("a", "root", -1));
    assert!(update(&good, &bad).starts_with("422"));
    assert_eq!(update(&bad, &good), "yes");
    let mut finalized = bad.clone();
    finalized["metadata"]["finalizers"] = json!([]);
    finalized["status"] = json!({"conditions": []});
    assert_eq!(update(&bad, &finalized), "yes");
    let mut renamed = bad.clone();
    renamed["spec"]["service"] = json!("other");
    assert!(update(&bad, &renamed).starts_with("yes spec.backends[0].weight: must be"), "no worse");
}

#[test]
fn only_new_objects_and_updates_of_kinds_that_are_read_are_judged() {
    let bad = split("a", "root", -1);
    for operation in ["DELETE", "CONNECT"] {
        assert_eq!(said(&request(operation, &bad, &Value::Null), None), "yes");
    }
    let mut status = request("UPDATE", &split("a", "root", 1), &bad);
    status["request"]["subResource"] = json!("status");
    assert_eq!(said(&status, None), "yes");
    assert_eq!(created(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), "yes");
    let mut version = split("a", "root", 1);
    version["apiVersion"] = json!("split.smi-spec.io/v9");
    assert!(created(&version).starts_with("422: apiVersion"), "{}", created(&version));
}

#[test]
fn an_object_to_be_named_by_the_api_server_is_judged_like_others() {
    let mut object = split("a", "root", 1);
    object["metadata"] = json!({"generateName": "canary-"});
    assert_eq!(created(&object), "yes");
    object["spec"]["backends"] = json!([]);
    assert!(created(&object).starts_with("422: spec.backends"), "{}", created(&object));
}

#[test]
fn the_catalog_is_asked_about_other_objects() {
    let mut catalog = Catalog::default();
    let existing =
        read(split("first", "root", 1), "shop", &mut Budget::new()).unwrap().unwrap().object.unwrap();
    catalog.apply(smc_mesh::catalog::SourceEvent::Upsert(existing));
    let create = |object: &Value| said(&request("CREATE", &Value::Null, object), Some(&catalog));
    let refused = create(&split("second", "root", 1));
    assert_eq!(refused, "422: spec.service: is shop/root, which TrafficSplit shop/first splits already");
    let refused = create(&split("second", "v1", 1));
    assert!(refused.starts_with("yes spec.service: is shop/v1, which does not exist"), "{refused}");
}

#[test]
fn what_is_no_review_is_refused() {
    for given in [
        json!(null),
        json!([]),
        json!({"request": {}}),
        json!({"request": {"uid": "u"}}),
        json!({"request": {"uid": 7, "operation": "CREATE"}}),
        json!({"request": {"uid": "u", "operation": "CREATE"}}),
        json!({"request": {"uid": "u", "operation": "CREATE", "object": []}}),
    ] {
        assert!(said(&given, None).starts_with("400: "), "{given}");
    }
}

/// A stream of values that are as often in the wrong place as in the right one.
#[test]
fn no_review_makes_the_webhook_panic() {
    let whole = request("UPDATE", &split("a", "root", -1), &split("a", "root", 1));
    let garbage =
        [json!(null), json!(true), json!(-1), json!("\u{0}"), json!([null]), json!({"a": {"b": []}})];
    let mut pointers = Vec::new();
    places("", &whole, &mut pointers);
    assert!(pointers.len() > 30);
    for pointer in &pointers {
        for value in &garbage {
            let mut broken = whole.clone();
            if let Some(place) = broken.pointer_mut(pointer) {
                *place = value.clone();
            }
            let answer = review(&broken, Some(&Catalog::default()));
            assert!(answer["response"]["allowed"].is_boolean(), "{broken}");
        }
    }
}

/// The pointers of all values within this one.
fn places(pointer: &str, value: &Value, all: &mut Vec<String>) {
    all.push(pointer.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                places(&format!("{pointer}/{}", name.replace('/', "~1")), value, all);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                places(&format!("{pointer}/{index}"), value, all);
            }
        }
        _ => {}
    }
}
