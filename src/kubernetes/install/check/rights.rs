//! The controllers' rights as `smc check` sees them.
//!
//! Owns what is compared: the roles, their bindings and the admission policy of the cluster with those of an
//! installation. A controller that lost a right goes on with what it knows for a while, so nothing else
//! shows it at once.

use serde_json::{Value, json};
use smc_types::ids::{MeshName, MeshNamespace};

use super::facts::{Found, found};
use crate::install::apply::{Cluster, object_name};
use crate::install::manifests::{ManifestError, RIGHTS, chart_objects};
use crate::install::settings::{Settings, installed_version};

/// What lists an object's rules of the API, in roles.
const RULE: [&str; 4] = ["apiGroups", "resources", "verbs", "resourceNames"];

/// An object of an installation, and what the cluster has of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Right {
    /// As an installation makes it.
    pub expected: Value,
    /// As it is.
    pub found: Found,
}

/// The objects of the installation with this StatefulSet that give rights, as this program makes them. Those
/// of another version than this program's are named alone, since their rights are not known.
pub fn expected(
    mesh: &MeshName,
    namespace: &MeshNamespace,
    set: &Value,
) -> Result<Vec<Value>, ManifestError> {
    let settings = Settings::new(mesh.clone(), namespace.clone()).continued(set);
    let same_version = installed_version(set).is_none_or(|installed| installed == env!("CARGO_PKG_VERSION"));
    let mut objects = chart_objects(&settings)?;
    objects.retain(|object| RIGHTS.iter().any(|kind| object["kind"] == *kind));
    if !same_version {
        // It may be from before these.
        objects.retain(|object| !is_recent(object));
    }
    for object in &mut objects {
        if !same_version {
            let fields = ["apiVersion", "kind", "metadata"];
            object
                .as_object_mut()
                .into_iter()
                .for_each(|all| all.retain(|field, _| fields.contains(&&**field)));
        } else if !makes_key(set) {
            without_key(object);
        }
    }
    Ok(objects)
}

/// Whether no released version of an installation has the object yet: the policy of the gateway's Secret.
fn is_recent(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("smc-gateway-"))
}

/// Whether the controllers' pods make the Secret of the key-encryption key when it is missing.
fn makes_key(set: &Value) -> bool {
    set.pointer("/spec/template/spec/initContainers")
        .and_then(Value::as_array)
        .is_some_and(|all| !all.is_empty())
}

/// Takes out what an installation with a key of its own does not have, as the chart does.
fn without_key(object: &mut Value) {
    if object["kind"] == "Role"
        && let Some(rules) = object["rules"].as_array_mut()
    {
        rules.retain(|rule| rule["resources"] != json!(["secrets"]));
    }
    let variables = object.pointer_mut("/spec/variables").and_then(Value::as_array_mut);
    for key in variables.into_iter().flatten().filter(|variable| variable["name"] == "key") {
        key["expression"] = "''".into();
    }
}

/// Looks at each of these objects.
pub(super) async fn rights(cluster: &Cluster, expected: Vec<Value>) -> Vec<Right> {
    let mut rights = Vec::new();
    for expected in expected {
        let found = found(cluster, &expected).await;
        rights.push(Right { expected, found });
    }
    rights
}

/// What is wrong with an object that gives rights; `None` if it gives those of an installation, or if the
/// person may not see it.
pub fn lost(right: &Right) -> Option<String> {
    let name = object_name(&right.expected)?;
    let Some(found) = right.found.as_ref().ok()? else { return Some(format!("the {name} is missing")) };
    let kind = right.expected["kind"].as_str().unwrap_or_default();
    if kind == "Role" || kind == "ClusterRole" {
        let refused = lacking(&right.expected["rules"], &found["rules"])?;
        return Some(format!("the {name} does not allow to {refused}"));
    }
    let fields = right.expected.as_object()?.iter();
    let differs = |(field, expected): (&String, &Value)| {
        !["apiVersion", "kind", "metadata"].contains(&field.as_str()) && !includes(&found[field], expected)
    };
    fields.into_iter().any(differs).then(|| format!("the {name} is not as an installation makes it"))
}

/// The first right of `expected`, rules of a role, that `found` does not give.
fn lacking(expected: &Value, found: &Value) -> Option<String> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let listed = rule[field].as_array().into_iter().flatten();
        listed.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let found: Vec<[Vec<String>; 4]> =
        found.as_array().into_iter().flatten().map(|rule| RULE.map(|field| texts(rule, field))).collect();
    let given = |group: &String, resource: &String, verb: &String, name: Option<&String>| {
        let any = |listed: &[String], one: &String| listed.iter().any(|text| text == one || text == "*");
        found.iter().any(|[groups, resources, verbs, names]| {
            let named = names.is_empty() || name.is_some_and(|name| names.contains(name));
            any(groups, group) && any(resources, resource) && any(verbs, verb) && named
        })
    };
    for rule in expected.as_array().into_iter().flatten() {
        let [groups, resources, verbs, names] = RULE.map(|field| texts(rule, field));
        let names: Vec<_> = if names.is_empty() { vec![None] } else { names.iter().map(Some).collect() };
        for group in &groups {
            for resource in &resources {
                for verb in &verbs {
                    if names.iter().any(|name| !given(group, resource, verb, *name)) {
                        return Some(format!("{verb} {resource}"));
                    }
                }
            }
        }
    }
    None
}

/// Whether `found` says what `expected` says. The API server adds defaults to objects, and nothing to lists.
fn includes(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(field, value)| found.get(field).is_some_and(|found| includes(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| includes(found, expected))
        }
        _ => found == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::settings::argument;

    fn installation() -> (Value, Vec<Value>) {
        let settings = Settings::new(MeshName::default(), MeshNamespace::default());
        let objects = chart_objects(&settings).unwrap();
        let set = objects.into_iter().find(|object| object["kind"] == "StatefulSet").unwrap();
        assert!(argument(&set, "--mesh-name=").is_some());
        let expected = expected(&MeshName::default(), &MeshNamespace::default(), &set).unwrap();
        (set, expected)
    }

    /// The kinds, in their order.
    fn kinds(expected: &[Value]) -> Vec<&str> {
        let mut kinds: Vec<_> = expected.iter().filter_map(|object| object["kind"].as_str()).collect();
        kinds.dedup();
        kinds
    }

    /// What is said when the first object of `kind` was changed so.
    fn said(kind: &str, change: impl FnOnce(&mut Value)) -> Option<String> {
        said_of(kind, "", change)
    }

    /// As [`said`], of the object whose name begins so.
    fn said_of(kind: &str, begins: &str, change: impl FnOnce(&mut Value)) -> Option<String> {
        let (_, expected) = installation();
        let is_it = |object: &Value| {
            object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().starts_with(begins)
        };
        let expected = expected.into_iter().find(is_it).unwrap();
        let mut found = expected.clone();
        change(&mut found);
        lost(&Right { expected, found: Ok(Some(found)) })
    }

    #[test]
    fn rights_that_were_taken_from_the_controllers_are_named() {
        let (_, expected) = installation();
        assert_eq!(kinds(&expected), RIGHTS);
        for right in &expected {
            let said = |found| lost(&Right { expected: right.clone(), found });
            assert_eq!(said(Ok(Some(right.clone()))), None);
            assert_eq!(said(Err("forbidden".into())), None, "it is unknown");
            let name = object_name(right).unwrap();
            assert_eq!(said(Ok(None)), Some(format!("the {name} is missing")));
        }
        let fewer = said("ClusterRole", |role| drop(role["rules"][1]["verbs"].as_array_mut().unwrap().pop()));
        assert_eq!(fewer.unwrap(), "the ClusterRole smc-controller-smc does not allow to watch pods");
        let elsewhere = said("RoleBinding", |binding| binding["subjects"][0]["namespace"] = json!("other"));
        assert_eq!(
            elsewhere.unwrap(),
            "the RoleBinding smc-controller in smc-system is not as an installation makes it"
        );
        let none = said("ClusterRoleBinding", |binding| binding["subjects"] = json!(null));
        assert!(none.is_some());
        for begins in ["smc-controller-", "smc-gateway-"] {
            let said = |change: &dyn Fn(&mut Value)| said_of("ValidatingAdmissionPolicy", begins, change);
            assert!(said(&|policy| policy["spec"]["failurePolicy"] = json!("Ignore")).is_some());
            let validations =
                |policy: &mut Value| drop(policy["spec"]["validations"].as_array_mut().unwrap().pop());
            assert!(said(&validations).is_some());
            let conditions = |policy: &mut Value| {
                let never = json!({ "name": "never", "expression": "false" });
                policy["spec"]["matchConditions"].as_array_mut().unwrap().push(never);
            };
            assert!(said(&conditions).is_some());
        }
        let elsewhere = |binding: &mut Value| binding["spec"]["paramRef"]["name"] = json!("other");
        assert!(said_of("ValidatingAdmissionPolicyBinding", "smc-gateway-", elsewhere).is_some());
    }

    #[test]
    fn rights_that_are_given_otherwise_are_given() {
        let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
        assert_eq!(said("ClusterRole", |role| role["rules"] = all), None);
        // As the API server completes it.
        let defaults = |policy: &mut Value| {
            policy["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
            policy["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = json!("*");
        };
        assert_eq!(said("ValidatingAdmissionPolicy", defaults), None);
    }

    /// As `kek.create: false` of the chart, and as controllers that an upgrade has not reached.
    #[test]
    fn an_installation_is_compared_with_its_own_rights() {
        let (set, _) = installation();
        let of = |change: fn(&mut Value)| {
            let mut set = set.clone();
            change(&mut set);
            expected(&MeshName::default(), &MeshNamespace::default(), &set).unwrap()
        };
        let keyless =
            of(|set| drop(set["spec"]["template"]["spec"].as_object_mut().unwrap().remove("initContainers")));
        let keyless = serde_json::to_string(&keyless).unwrap();
        assert!(
            !keyless.contains("'smc-kek'") && keyless.contains(r#"{"expression":"''","name":"key"}"#),
            "{keyless}"
        );
        let older = of(|set| set["metadata"]["labels"]["app.kubernetes.io/version"] = json!("0.0.9"));
        assert_eq!(kinds(&older), RIGHTS);
        assert!(!older.iter().any(is_recent), "it may be from before these");
        assert!(older.iter().all(|object| object.get("rules").is_none() && object.get("spec").is_none()));
    }
}
