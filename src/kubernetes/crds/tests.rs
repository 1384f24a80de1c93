//! The definitions as a whole. That an API server accepts them is a test of the real cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use smc_decode::kinds::{Meaning, meaning};
use smc_types::ids::MeshNamespace;
use smc_types::kind::{Kind, KindSpec};

use super::*;

fn all() -> Vec<Definition> {
    definitions(&MeshNamespace::new("smc-system").unwrap()).unwrap()
}

/// Every schema below and with this one, with its path.
fn schemas<'a>(path: &str, schema: &'a Value, all: &mut Vec<(String, &'a Value)>) {
    all.push((path.to_owned(), schema));
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        schemas(&format!("{path}.{name}"), schema, all);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            schemas(&format!("{path}[]"), &schema[key], all);
        }
    }
}

fn versions(definition: &Definition) -> impl Iterator<Item = &Value> {
    definition.as_json()["spec"]["versions"].as_array().into_iter().flatten()
}

/// After a change of the types: `smc crds --dir charts/smc-crds/templates`.
#[test]
fn the_chart_holds_the_definitions_that_the_types_generate() {
    let dir = Path::new("../../charts/smc-crds/templates");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let committed: BTreeMap<String, String> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    let generated: BTreeMap<_, _> =
        all().iter().map(|definition| (definition.file(), definition.to_yaml().unwrap())).collect();
    assert_eq!(committed.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>());
    for (file, yaml) in &generated {
        assert_eq!(&committed[file], yaml, "{file} differs from the types");
        assert!(!yaml.contains("{{"), "{file} would be taken for a template");
    }
}

#[test]
fn a_definition_in_yaml_says_what_it_says_in_json() {
    for definition in all() {
        let parsed: Value = serde_saphyr::from_str(&definition.to_yaml().unwrap()).unwrap();
        assert_eq!(&parsed, definition.as_json(), "{}", definition.name());
    }
}

#[test]
fn every_field_has_a_type_and_none_may_be_null() {
    for definition in all() {
        for version in versions(&definition) {
            let mut all = Vec::new();
            schemas("", &version["schema"]["openAPIV3Schema"], &mut all);
            assert!(all.len() > 5, "{}", definition.name());
            for (path, schema) in all {
                let typed = schema["type"].is_string()
                    || schema["x-kubernetes-preserve-unknown-fields"] == true
                    || schema["x-kubernetes-int-or-string"] == true;
                assert!(typed, "{} {path}: {schema}", definition.name());
                assert!(schema.get("nullable").is_none(), "{} {path}", definition.name());
                assert!(!schema["description"].as_str().unwrap_or("").contains('\n'), "{path}");
            }
        }
    }
}

/// The fields without a type, each with the reason. What they hold has types all the same.
const UNTYPED: [(&str, &str); 3] = [
    ("HTTPRouteGroup .spec.matches[].headers", "a map, or a list of maps"),
    ("MeshConfig .spec.sidecar.resources.requests[]", "text, or a number that need not be whole"),
    ("MeshConfig .spec.sidecar.resources.limits[]", "as requests"),
];

/// In such a field, an object could be as deep, wide and large as an API server stores it.
#[test]
fn no_field_takes_whatever_is_written() {
    let mut untyped = BTreeSet::new();
    for definition in all() {
        let kind = definition.as_json()["spec"]["names"]["kind"].as_str().unwrap();
        for version in versions(&definition) {
            let mut all = Vec::new();
            schemas("", &version["schema"]["openAPIV3Schema"], &mut all);
            for (path, schema) in all {
                let path = format!("{kind} {path}");
                let named = schema.get("additionalProperties");
                assert!(named.is_none_or(Value::is_object), "{path} takes any field: {schema}");
                if schema["x-kubernetes-preserve-unknown-fields"] != true {
                    continue;
                }
                let bound = |most: &str, inner: &str| {
                    schema[most] == 0 || schema[most].is_u64() && schema[inner].is_object()
                };
                let bounded = bound("maxProperties", "additionalProperties") && bound("maxItems", "items");
                assert!(bounded && schema["maxLength"].is_u64(), "{path} takes anything: {schema}");
                untyped.insert(path);
            }
        }
    }
    assert_eq!(untyped, UNTYPED.map(|(path, _)| path.to_owned()).into());
}

#[test]
fn every_custom_kind_has_a_definition_and_it_says_what_the_kind_says() {
    let mut kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(|kind| kind.spec().custom).collect();
    for definition in all() {
        let spec = &definition.as_json()["spec"];
        let kind = Kind::of_name(spec["names"]["kind"].as_str().unwrap()).unwrap();
        let KindSpec { group, plural, versions: read, .. } = kind.spec();
        assert_eq!((&spec["group"], &spec["names"]["plural"]), (&json!(group), &json!(plural)), "{kind}");
        assert_eq!(definition.name(), format!("{plural}.{group}"));
        // The first one is stored.
        let served: Vec<_> = versions(&definition).map(|version| version["name"].as_str().unwrap()).collect();
        assert_eq!(&served, read, "{kind}");
        kinds.retain(|of| *of != kind);
    }
    assert_eq!(kinds, []);
}

#[test]
fn each_definition_stores_one_version_and_serves_those_that_are_read() {
    for definition in all() {
        let spec = &definition.as_json()["spec"];
        let stored: Vec<_> = versions(&definition).filter(|version| version["storage"] == true).collect();
        assert_eq!(stored.len(), 1, "{}", definition.name());
        assert_eq!(spec["scope"], "Namespaced");
        for version in versions(&definition) {
            let name = version["name"].as_str().unwrap();
            let api_version = format!("{}/{name}", spec["group"].as_str().unwrap());
            let kind = spec["names"]["kind"].as_str().unwrap();
            assert!(version["subresources"]["status"].is_object(), "{kind} {name}");
            let read = matches!(meaning(&api_version, kind), Meaning::Object(_));
            assert!(read, "{api_version} {kind} is served and not read");
        }
    }
}

#[test]
fn a_split_is_converted_by_the_webhook_of_the_mesh() {
    let definitions = definitions(&MeshNamespace::new("mesh").unwrap()).unwrap();
    let name = "trafficsplits.split.smi-spec.io";
    let split = definitions.iter().find(|definition| definition.name() == name).unwrap();
    let conversion = &split.as_json()["spec"]["conversion"];
    assert_eq!(conversion["strategy"], "Webhook");
    let service = &conversion["webhook"]["clientConfig"]["service"];
    assert_eq!((service["namespace"].as_str(), service["path"].as_str()), (Some("mesh"), Some("/convert")));
    let names: Vec<_> = versions(split).map(|version| version["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"]);
    let others = definitions.iter().filter(|definition| definition.name() != name);
    for definition in others {
        assert!(definition.as_json()["spec"].get("conversion").is_none(), "{}", definition.name());
    }
}
