//! `policy.openservicemesh.io` Retry: when the requests of an account are sent again.
//!
//! Owns its fields, and the bounds on them. What cannot be read is left out: a condition, so that fewer
//! requests are sent again, a service, and a duration, for which there is a default. An object without a
//! source, without a service, without a condition or with a number that cannot be read has no effect; with
//! `numRetries: 0` it needs no condition.

use std::collections::BTreeSet;
use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_model::retry_policy::{MAX_RETRIES, RetryCondition, RetryPolicy};
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use super::policy::{MAX_ENTRIES, Reference, account, duration_within, entries, number, of_namespace};
use crate::kind::{CustomKind, effective, schema};
use crate::object::Object;
use crate::reading::{Fields, Findings, Node};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<RetrySpec>],
    example: |namespace| {
        json!({
            "source": {"kind": "ServiceAccount", "name": "web", "namespace": namespace},
            "destinations": [{"kind": "Service", "name": "web", "namespace": namespace}],
            "retryPolicy": {"retryOn": "5xx"},
        })
    },
    read: |object| effective(read_retry(&object.id, object.spec), Object::from),
    ..CustomKind::new(Kind::Retry)
};

/// The longest `retryOn`, in characters: all conditions together have 200.
const MAX_RETRY_ON: usize = 512;

/// The bounds on durations. Envoy counts milliseconds. It refuses a pause of zero, and takes a time of zero
/// for a try as one without an end.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_hours(24);

/// Conditions of Envoy that can come true for no request here, each with the reason.
const WITHOUT_MEANING: [(&str, &str); 3] = [
    ("retriable-status-codes", "needs a list of status codes, for which the kind has no field"),
    ("retriable-headers", "needs a list of headers, for which the kind has no field"),
    ("http3-post-connect-failure", "is about HTTP/3, which sidecars do not speak"),
];

/// When a service account's requests are sent again.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct RetrySpec {
    /// The service account, of the object's namespace.
    pub source: Reference,
    /// The services that it calls.
    #[schemars(length(max = MAX_ENTRIES))]
    pub destinations: Vec<Reference>,
    /// What is sent again, and how.
    pub retry_policy: RetryPolicySpec,
}

/// What is sent again, and how.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", rename = "RetryPolicy")]
pub struct RetryPolicySpec {
    /// Envoy's conditions, separated by commas.
    #[schemars(length(max = MAX_RETRY_ON))]
    pub retry_on: String,
    /// How long one try may take, as a duration; zero means without an end.
    #[schemars(length(max = 64))]
    pub per_try_timeout: Option<String>,
    /// How often, at most: ten in any case, and as often as what is sent again anyway where it is left out. 0
    /// means never, whatever happened.
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub num_retries: Option<u32>,
    /// The first pause, as a duration.
    #[schemars(length(max = 64))]
    pub retry_backoff_base_interval: Option<String>,
}

/// An object as the mesh reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Its own name.
    pub id: NamespacedName,
    /// Whose requests are sent again. It is of the object's namespace.
    pub source: ServiceAccountId,
    /// The services that it calls; never empty.
    pub destinations: BTreeSet<ServiceId>,
    /// When, and how.
    pub policy: RetryPolicy,
}

/// Reads the `spec` of a Retry.
pub fn read_retry(id: &NamespacedName, spec: Value) -> Reading<Retry> {
    let mut findings = Findings::new(Kind::Retry, id.clone());
    let object = read(id, Node::spec(spec), &mut findings);
    findings.into_reading(object)
}

fn read(id: &NamespacedName, spec: Node, findings: &mut Findings) -> Option<Retry> {
    let mut spec = spec.object(findings)?;
    let source = spec.require("source", findings);
    let source = source.and_then(|node| account(node, id.namespace(), findings));
    let nodes = entries(&mut spec, "destinations", MAX_ENTRIES, true, findings);
    let destinations = nodes.into_iter();
    let destinations: BTreeSet<_> =
        destinations.filter_map(|node| of_namespace(node, "Service", ServiceId::new, findings)).collect();
    let policy = spec.require("retryPolicy", findings).and_then(|node| node.object(findings));
    let policy = policy.and_then(|fields| read_policy(fields, findings));
    spec.finish(findings);
    let (source, policy) = (source?, policy?);
    (!destinations.is_empty()).then(|| Retry { id: id.clone(), source, destinations, policy })
}

fn read_policy(mut fields: Fields, findings: &mut Findings) -> Option<RetryPolicy> {
    let conditions = fields.require("retryOn", findings).map(|node| conditions(node, findings));
    let conditions = conditions.unwrap_or_default();
    let timeout = duration_within(&mut fields, "perTryTimeout", Duration::ZERO..=LONGEST, findings);
    let backoff = duration_within(&mut fields, "retryBackoffBaseInterval", SHORTEST..=LONGEST, findings);
    let (path, is_there) = (fields.path("numRetries"), fields.has("numRetries"));
    let retries = number(&mut fields, "numRetries", 0..=u32::MAX, findings);
    fields.finish(findings);
    if is_there && retries.is_none() {
        return None;
    }
    if let Some(number) = retries.filter(|number| *number > MAX_RETRIES) {
        findings.warning(&path, format!("is {number}; a request is sent again {MAX_RETRIES} times at most"));
    }
    let policy = RetryPolicy {
        conditions,
        retries: retries.map(|number| number.min(MAX_RETRIES)),
        per_try_timeout: timeout.filter(|timeout| !timeout.is_zero()),
        backoff,
    };
    (policy.retries == Some(0) || !policy.conditions.is_empty()).then_some(policy)
}

/// The conditions that are known. Envoy ignores the others in silence.
fn conditions(node: Node, findings: &mut Findings) -> BTreeSet<RetryCondition> {
    let path = node.path.clone();
    let mut conditions = BTreeSet::new();
    let Some(text) = node.text(findings) else { return conditions };
    if text.len() > MAX_RETRY_ON {
        findings.error(&path, format!("has {} characters; {MAX_RETRY_ON} is the most", text.len()));
        return conditions;
    }
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let shown = truncated(name, 40);
        if let Some(condition) = RetryCondition::named(name) {
            conditions.insert(condition);
        } else if let Some((_, reason)) = WITHOUT_MEANING.iter().find(|(known, _)| *known == name) {
            findings.warning(&path, format!("names {shown}, which {reason}; left out"));
        } else {
            findings.error(&path, format!("names {shown:?}, which is no condition of Envoy; left out"));
        }
    }
    if conditions.is_empty() {
        findings.warning(&path, "names no condition that can come true: nothing is sent again because of it");
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(retry_policy: &Value) -> Value {
        json!({
            "source": {"kind": "ServiceAccount", "name": "curl", "namespace": "shop"},
            "destinations": [{"kind": "Service", "name": "httpbin", "namespace": "httpbin"}],
            "retryPolicy": retry_policy,
        })
    }

    fn read(spec: Value) -> Reading<Retry> {
        read_retry(&"shop/retry".parse().unwrap(), spec)
    }

    fn fields(reading: &Reading<Retry>) -> Vec<&str> {
        reading.problems.iter().map(|problem| problem.field.as_str()).collect()
    }

    /// OSM's guide.
    #[test]
    fn a_retry_of_osms_guide_is_read_as_it_is() {
        let reading = read(spec(&json!({
            "retryOn": "5xx", "perTryTimeout": "1s", "numRetries": 5, "retryBackoffBaseInterval": "1s",
        })));
        let expected = Retry {
            id: "shop/retry".parse().unwrap(),
            source: "shop/curl".parse().unwrap(),
            destinations: ["httpbin/httpbin".parse().unwrap()].into(),
            policy: RetryPolicy {
                conditions: [RetryCondition::ServerError].into(),
                retries: Some(5),
                per_try_timeout: Some(Duration::from_secs(1)),
                backoff: Some(Duration::from_secs(1)),
            },
        };
        assert_eq!(reading, Reading { object: Some(expected), problems: vec![] });
    }

    #[test]
    fn what_of_a_policy_cannot_be_read_is_left_out_and_named() {
        let field = |name: &str| format!("spec.retryPolicy.{name}");
        // The policy, the conditions, how often (9 where it is left out), and the fields with problems; no
        // condition where the object has no effect.
        for (policy, conditions, retries, problems) in [
            (json!({"retryOn": "5xx"}), "5xx", 9, vec![]),
            (json!({"retryOn": " reset ,5xx,,5xx"}), "5xx,reset", 9, vec![]),
            (json!({"retryOn": "5xx,gateway-eror"}), "5xx", 9, vec!["retryOn"]),
            (json!({"retryOn": "unavailable,retriable-headers"}), "unavailable", 9, vec!["retryOn"]),
            (json!({"retryOn": "5XX"}), "", 0, vec!["retryOn", "retryOn"]),
            (json!({"retryOn": ""}), "", 0, vec!["retryOn"]),
            (json!({"retryOn": 5}), "", 0, vec!["retryOn"]),
            (json!({"numRetries": 3}), "", 0, vec!["retryOn"]),
            (json!({"retryOn": "5xx,".repeat(200)}), "", 0, vec!["retryOn"]),
            (json!({"retryOn": "5xx", "numRetries": 10}), "5xx", 10, vec![]),
            (json!({"retryOn": "5xx", "numRetries": 4_294_967_295_u32}), "5xx", 10, vec!["numRetries"]),
            (json!({"retryOn": "5xx", "numRetries": -1}), "", 0, vec!["numRetries"]),
            (json!({"retryOn": "5xx", "numRetries": "0"}), "", 0, vec!["numRetries"]),
            (json!({"retryOn": "5xx", "perTryTimeout": "0s"}), "5xx", 9, vec![]),
            (json!({"retryOn": "5xx", "perTryTimeout": "-1s"}), "5xx", 9, vec!["perTryTimeout"]),
            (json!({"retryOn": "5xx", "perTryTimeout": "9000h"}), "5xx", 9, vec!["perTryTimeout"]),
            (
                json!({"retryOn": "5xx", "retryBackoffBaseInterval": "0s"}),
                "5xx",
                9,
                vec!["retryBackoffBaseInterval"],
            ),
        ] {
            let reading = read(spec(&policy));
            let found = reading.object.as_ref().map(|retry| &retry.policy);
            let names = found.into_iter().flat_map(|policy| &policy.conditions);
            let names: Vec<_> = names.map(|condition| condition.as_str()).collect();
            assert_eq!(names.join(","), conditions, "{policy}");
            assert_eq!(found.map_or(0, |policy| policy.retries.unwrap_or(9)), retries, "{policy}");
            let problems: Vec<_> = problems.into_iter().map(field).collect();
            assert_eq!(fields(&reading), problems, "{policy}");
            if let Some(policy) = found {
                assert_eq!((policy.per_try_timeout, policy.backoff), (None, None));
            }
        }
    }

    #[test]
    fn no_retries_are_meant_whatever_the_conditions() {
        for conditions in ["5xx", "", "typo"] {
            let reading = read(spec(&json!({"retryOn": conditions, "numRetries": 0})));
            assert_eq!(reading.object.map(|retry| retry.policy.retries), Some(Some(0)), "{conditions}");
        }
    }

    #[test]
    fn an_object_without_a_source_or_a_service_has_no_effect() {
        let good = spec(&json!({"retryOn": "5xx"}));
        for (pointer, value, field) in [
            ("/source/namespace", json!("other"), "spec.source.namespace"),
            ("/source/kind", json!("Pod"), "spec.source.kind"),
            ("/source/name", json!("A"), "spec.source"),
            ("/destinations", json!([]), "spec.destinations"),
            ("/destinations/0/kind", json!("Pod"), "spec.destinations[0].kind"),
            ("/destinations/0/name", json!("A"), "spec.destinations[0]"),
            ("/destinations/0", json!({"kind": "Service", "name": "a"}), "spec.destinations[0].namespace"),
            ("/retryPolicy", json!(null), "spec.retryPolicy"),
        ] {
            let mut spec = good.clone();
            *spec.pointer_mut(pointer).unwrap() = value;
            let reading = read(spec);
            assert_eq!((reading.object.as_ref(), fields(&reading)), (None, vec![field]), "{pointer}");
        }
    }

    #[test]
    fn a_service_that_cannot_be_read_takes_no_other_with_it() {
        let mut spec = spec(&json!({"retryOn": "5xx"}));
        let other = json!({"kind": "Service", "name": "b", "namespace": "shop"});
        spec["destinations"].as_array_mut().unwrap().extend([json!("a"), other]);
        let reading = read(spec);
        let destinations = reading.object.as_ref().unwrap().destinations.iter().map(ToString::to_string);
        assert_eq!(destinations.collect::<Vec<_>>(), ["httpbin/httpbin", "shop/b"]);
        assert_eq!(fields(&reading), ["spec.destinations[1]"]);
    }
}
