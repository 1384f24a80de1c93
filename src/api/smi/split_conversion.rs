//! TrafficSplit from one version to another, as the API server asks for it.
//!
//! Owns what is kept: every field that both versions have stays as it is, and nothing is lost on the way to a
//! version and back. v1alpha1's weights are quantities, and mean a thousand times as much as later ones.
//! v1alpha1 and v1alpha2 have no `matches`; there they travel in an annotation ([`MATCHES_ANNOTATION`]).

use serde_json::{Map, Number, Value};
use smc_types::text::truncated;
use thiserror::Error;

use super::traffic_split::{MAX_WEIGHT, SplitVersion, milli};

/// The annotation that holds the JSON of `spec.matches` in v1alpha1 and v1alpha2. It is reserved: in v1alpha3
/// and later it means nothing, and does not survive a conversion.
pub const MATCHES_ANNOTATION: &str = "mesh.smc.dev/split-matches";

const GROUP: &str = "split.smi-spec.io";
const KIND: &str = "TrafficSplit";

/// Why a TrafficSplit cannot be written in another version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("TrafficSplit {name:?}: {field}: {reason}")]
pub struct Unconvertible {
    /// The name of the object, as far as it has one.
    pub name: String,
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl SplitVersion {
    /// The `apiVersion` of this version.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "split.smi-spec.io/v1alpha1",
            Self::V1Alpha2 => "split.smi-spec.io/v1alpha2",
            Self::V1Alpha3 => "split.smi-spec.io/v1alpha3",
            Self::V1Alpha4 => "split.smi-spec.io/v1alpha4",
        }
    }

    /// The version with this `apiVersion`.
    pub fn of_api_version(api_version: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/')?;
        (group == GROUP).then(|| Self::named(version)).flatten()
    }

    const fn has_matches(self) -> bool {
        matches!(self, Self::V1Alpha3 | Self::V1Alpha4)
    }
}

/// Writes a whole TrafficSplit object in another version. To an earlier version it always succeeds, so that
/// stored objects can be listed. To a later one it fails where the meaning is not certain: a weight that is
/// no quantity in steps of `1m`, or matches that cannot be read, without which all requests would be split.
pub fn convert_traffic_split(object: Value, to: SplitVersion) -> Result<Value, Unconvertible> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let fail = Failure { name: truncated(name, 253) };
    let Value::Object(mut object) = object else { return Err(fail.at("", "is no object")) };
    if object.get("kind").and_then(Value::as_str) != Some(KIND) {
        return Err(fail.at("kind", "is not TrafficSplit"));
    }
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let Some(from) = SplitVersion::of_api_version(api_version) else {
        return Err(fail.at("apiVersion", "is no version of split.smi-spec.io from v1alpha1 to v1alpha4"));
    };
    convert_matches(&mut object, from, to, &fail)?;
    if (from == SplitVersion::V1Alpha1) != (to == SplitVersion::V1Alpha1) {
        convert_weights(&mut object, to, &fail)?;
    }
    object.insert("apiVersion".to_owned(), to.api_version().into());
    Ok(Value::Object(object))
}

/// Makes errors that name the object.
struct Failure {
    name: String,
}

impl Failure {
    fn at(&self, field: &str, reason: &str) -> Unconvertible {
        Unconvertible { name: self.name.clone(), field: field.to_owned(), reason: reason.to_owned() }
    }
}

fn convert_matches(
    object: &mut Map<String, Value>,
    from: SplitVersion,
    to: SplitVersion,
    fail: &Failure,
) -> Result<(), Unconvertible> {
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    match (from.has_matches(), to.has_matches()) {
        (true, false) => {
            let matches = spec.and_then(|spec| spec.remove("matches"));
            set_annotation(object, matches.map(|matches| matches.to_string()), fail)
        }
        (false, true) => {
            if spec.is_some_and(|spec| spec.contains_key("matches")) {
                return Err(fail.at("spec.matches", "belongs to v1alpha3 and later"));
            }
            let Some(text) = take_annotation(object) else { return Ok(()) };
            let field = format!("metadata.annotations[{MATCHES_ANNOTATION}]");
            let list = text.as_str().and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
            let Some(list) = list else {
                return Err(fail.at(&field, "is not the JSON of a list of matches"));
            };
            let spec = object.get_mut("spec").and_then(Value::as_object_mut);
            let Some(spec) = spec else { return Err(fail.at("spec", "is no object")) };
            spec.insert("matches".to_owned(), list.into());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Sets or removes the annotation.
fn set_annotation(
    object: &mut Map<String, Value>,
    text: Option<String>,
    fail: &Failure,
) -> Result<(), Unconvertible> {
    let Some(text) = text else {
        take_annotation(object);
        return Ok(());
    };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let metadata = metadata.as_object_mut().ok_or_else(|| fail.at("metadata", "is no object"))?;
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    let annotations = annotations.as_object_mut();
    let annotations = annotations.ok_or_else(|| fail.at("metadata.annotations", "is no object"))?;
    annotations.insert(MATCHES_ANNOTATION.to_owned(), text.into());
    Ok(())
}

/// Takes the annotation out, and the map of annotations if it was the only one.
fn take_annotation(object: &mut Map<String, Value>) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(MATCHES_ANNOTATION)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(text)
}

fn convert_weights(
    object: &mut Map<String, Value>,
    to: SplitVersion,
    fail: &Failure,
) -> Result<(), Unconvertible> {
    let backends = object.get_mut("spec").and_then(|spec| spec.get_mut("backends"));
    let backends = backends.and_then(Value::as_array_mut).into_iter().flatten();
    for (index, backend) in backends.enumerate() {
        let Some(weight) = backend.get_mut("weight") else { continue };
        if to == SplitVersion::V1Alpha1 {
            if let Value::Number(number) = weight {
                *weight = quantity(number).into();
            }
            continue;
        }
        let text = match weight {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let number = milli(&text).filter(|number| *number <= u64::from(MAX_WEIGHT));
        let Some(number) = number else {
            let reason = format!(
                "is {:?}, which is no quantity from 0 to {} in steps of 1m",
                truncated(&text, 40),
                MAX_WEIGHT / 1000
            );
            return Err(fail.at(&format!("spec.backends[{index}].weight"), &reason));
        };
        *weight = number.into();
    }
    Ok(())
}

/// A weight in thousandths, in Kubernetes' canonical form. What is no weight keeps its digits, so that it is
/// refused when it is written back.
fn quantity(weight: &Number) -> String {
    let whole = weight.as_u64().or_else(|| {
        let weight = weight.as_f64().filter(|weight| weight.fract() == 0.0)?;
        (0.0..=f64::from(MAX_WEIGHT)).contains(&weight).then(|| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the range was checked"
            )]
            let weight = weight as u64;
            weight
        })
    });
    match whole {
        Some(whole) if whole % 1000 == 0 => (whole / 1000).to_string(),
        Some(whole) => format!("{whole}m"),
        None => format!("{weight}m"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use smc_types::ids::NamespacedName;

    use super::*;
    use crate::smi::read_traffic_split;

    const VERSIONS: [SplitVersion; 4] =
        [SplitVersion::V1Alpha1, SplitVersion::V1Alpha2, SplitVersion::V1Alpha3, SplitVersion::V1Alpha4];

    fn split(version: SplitVersion, weight: &Value) -> Value {
        json!({
            "apiVersion": version.api_version(),
            "kind": "TrafficSplit",
            "metadata": {"name": "canary", "namespace": "shop", "resourceVersion": "7"},
            "spec": {"service": "store", "backends": [{"service": "store-v1", "weight": weight}]},
            "status": {"conditions": []},
        })
    }

    fn weight(object: &Value) -> Value {
        object["spec"]["backends"][0]["weight"].clone()
    }

    #[test]
    fn weights_keep_their_meaning_between_quantities_and_numbers() {
        use SplitVersion::{V1Alpha1, V1Alpha2, V1Alpha4};
        for (from, given, to, expected) in [
            (V1Alpha1, json!("500m"), V1Alpha4, json!(500)),
            (V1Alpha1, json!("1"), V1Alpha4, json!(1000)),
            (V1Alpha1, json!(1), V1Alpha4, json!(1000)),
            (V1Alpha1, json!("0.5"), V1Alpha2, json!(500)),
            (V1Alpha1, json!("10k"), V1Alpha2, json!(10_000_000)),
            (V1Alpha4, json!(500), V1Alpha1, json!("500m")),
            (V1Alpha4, json!(90.0), V1Alpha1, json!("90m")),
            (V1Alpha2, json!(1000), V1Alpha1, json!("1")),
            (V1Alpha2, json!(0), V1Alpha1, json!("0")),
            (V1Alpha2, json!(50), V1Alpha4, json!(50)),
            (V1Alpha4, json!(50.0), V1Alpha2, json!(50.0)),
        ] {
            let converted = convert_traffic_split(split(from, &given), to).unwrap();
            assert_eq!(weight(&converted), expected, "{given} from {from:?} to {to:?}");
            assert_eq!(converted["apiVersion"], to.api_version());
            assert_eq!(converted["metadata"]["resourceVersion"], "7");
            assert_eq!(converted["status"], json!({"conditions": []}));
        }
    }

    #[test]
    fn what_is_uncertain_is_refused_on_the_way_up_and_listed_on_the_way_down() {
        use SplitVersion::{V1Alpha1, V1Alpha2, V1Alpha4};
        for given in [json!("0.1m"), json!("11k"), json!("-1"), json!("1Ki"), json!(true), json!("")] {
            let refused = convert_traffic_split(split(V1Alpha1, &given), V1Alpha4).unwrap_err();
            assert_eq!(
                (refused.name.as_str(), refused.field.as_str()),
                ("canary", "spec.backends[0].weight")
            );
        }
        for given in [json!(50.5), json!(-1), json!(1e300), json!("ten"), json!(null)] {
            let listed = convert_traffic_split(split(V1Alpha4, &given), V1Alpha1).unwrap();
            assert!(convert_traffic_split(listed, V1Alpha4).is_err(), "{given}");
        }
        let mut with_matches = split(V1Alpha2, &json!(1));
        with_matches["spec"]["matches"] = json!([]);
        let refused = convert_traffic_split(with_matches, V1Alpha4).unwrap_err();
        assert_eq!(refused.field, "spec.matches");
        for text in ["", "{}", "null", "[", "7"] {
            let mut annotated = split(V1Alpha2, &json!(1));
            annotated["metadata"]["annotations"] = json!({MATCHES_ANNOTATION: text});
            let refused = convert_traffic_split(annotated, V1Alpha4).unwrap_err();
            assert!(refused.field.contains(MATCHES_ANNOTATION), "{refused}");
        }
    }

    #[test]
    fn what_is_no_split_is_refused() {
        for object in [
            json!(null),
            json!({}),
            json!({"kind": "TrafficSplit"}),
            json!({"kind": "TrafficSplit", "apiVersion": "split.smi-spec.io/v1"}),
            json!({"kind": "TrafficSplit", "apiVersion": "v1alpha1"}),
            json!({"kind": "TrafficTarget", "apiVersion": "split.smi-spec.io/v1alpha1"}),
        ] {
            assert!(convert_traffic_split(object.clone(), SplitVersion::V1Alpha4).is_err(), "{object}");
        }
    }

    #[test]
    fn matches_travel_in_the_annotation_beside_others() {
        let mut object = split(SplitVersion::V1Alpha4, &json!(1));
        object["spec"]["matches"] = json!([{"kind": "HTTPRouteGroup", "name": "beta"}]);
        object["metadata"]["annotations"] = json!({"a": "b"});
        let old = convert_traffic_split(object.clone(), SplitVersion::V1Alpha1).unwrap();
        assert_eq!(old["spec"].get("matches"), None);
        let text = old["metadata"]["annotations"][MATCHES_ANNOTATION].as_str().unwrap();
        assert_eq!(text, r#"[{"kind":"HTTPRouteGroup","name":"beta"}]"#);
        assert_eq!(old["metadata"]["annotations"]["a"], "b");
        assert_eq!(convert_traffic_split(old, SplitVersion::V1Alpha4).unwrap(), object);
    }

    /// A split of v1alpha4 as an API server may store it.
    fn stored() -> impl Strategy<Value = Value> {
        let backend = ("[a-z]{1,8}", 0..=MAX_WEIGHT);
        let groups = prop::option::of(prop::collection::vec("[a-z]{1,8}", 0..3));
        (prop::collection::vec(backend, 1..5), groups, prop::option::of("[a-z]{1,4}")).prop_map(
            |(backends, groups, annotation)| {
                let mut object = split(SplitVersion::V1Alpha4, &json!(1));
                let backends = backends
                    .into_iter()
                    .map(|(service, weight)| json!({"service": service, "weight": weight}));
                object["spec"]["backends"] = backends.collect();
                if let Some(groups) = groups {
                    let groups =
                        groups.into_iter().map(|name| json!({"kind": "HTTPRouteGroup", "name": name}));
                    object["spec"]["matches"] = groups.collect();
                }
                if let Some(annotation) = annotation {
                    object["metadata"]["annotations"] = json!({"note": annotation});
                }
                object
            },
        )
    }

    proptest! {
        #[test]
        fn a_split_comes_back_from_any_versions_as_it_was(
            object in stored(),
            path in prop::collection::vec(0..4_usize, 0..6),
        ) {
            let mut converted = object.clone();
            for index in path {
                converted = convert_traffic_split(converted, VERSIONS[index]).unwrap();
            }
            prop_assert_eq!(convert_traffic_split(converted, SplitVersion::V1Alpha4).unwrap(), object);
        }

        #[test]
        fn a_split_is_read_the_same_in_every_version(object in stored()) {
            let id: NamespacedName = "shop/canary".parse().unwrap();
            let read = |version, object: &Value| read_traffic_split(id.clone(), version, object["spec"].clone()).object;
            let expected = read(SplitVersion::V1Alpha4, &object);
            for version in VERSIONS {
                let converted = convert_traffic_split(object.clone(), version).unwrap();
                let mut found = read(version, &converted);
                if let (false, Some(split), Some(expected)) = (version.has_matches(), &mut found, &expected) {
                    split.matches.clone_from(&expected.matches);
                }
                prop_assert_eq!(&found, &expected);
            }
        }

        #[test]
        fn no_json_makes_the_conversion_panic(text in ".{0,40}", weight in any::<f64>(), index in 0..4_usize) {
            let object: Value = serde_json::from_str(&text).unwrap_or_default();
            let _ = convert_traffic_split(object, VERSIONS[index]);
            for from in VERSIONS {
                let mut object = split(from, &json!(weight));
                object["metadata"]["annotations"] = json!({MATCHES_ANNOTATION: text});
                let _ = convert_traffic_split(object, VERSIONS[index]);
            }
        }
    }
}
