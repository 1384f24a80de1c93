//! What a role grants, what was asked for, and which of the two covers the other. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// One right: a verb on a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The only namespace in which it holds.
    namespace: Option<String>,
    group: String,
    /// With the subresource, as `pods/status`.
    resource: String,
    verb: String,
    /// The only object.
    name: Option<String>,
}

/// One request for a resource.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) namespace: String,
    group: String,
    resource: String,
    verb: String,
    name: String,
    /// Whether RBAC allowed it.
    pub(crate) allowed: bool,
}

/// The rights that a Role or a ClusterRole grants, one for each verb, resource and name.
pub(super) fn grants(role: &Value) -> Vec<Grant> {
    let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut all = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = texts(&rule["resourceNames"]);
        let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    all.extend(names.iter().map(|name| Grant {
                        namespace: namespace.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        name: name.clone(),
                    }));
                }
            }
        }
    }
    all
}

/// A user's requests for resources in an audit log. What is no resource, such as `/version`, needs no right.
pub(crate) fn requests(audit: &[Value], user: &str) -> Vec<Request> {
    let own = audit.iter().filter(|event| event["user"]["username"] == user);
    let resources = own.filter(|event| event["objectRef"]["resource"].is_string());
    let requests = resources.map(|event| {
        let object = &event["objectRef"];
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        Request {
            namespace: text("namespace"),
            group: text("apiGroup"),
            resource: text("resource") + &subresource,
            verb: event["verb"].as_str().unwrap_or_default().to_owned(),
            name: text("name"),
            allowed: event["annotations"]["authorization.k8s.io/decision"] == "allow",
        }
    });
    requests.collect()
}

/// What is refused whenever it is asked for. An API server that has just started, and has not read all
/// roles and bindings yet, refuses what it allows a moment later.
pub(crate) fn refused(requests: &[Request]) -> BTreeSet<&Request> {
    let alike =
        |a: &Request, b: &Request| (&a.group, &a.resource, &a.verb) == (&b.group, &b.resource, &b.verb);
    let allowed =
        |refused: &&Request| requests.iter().any(|request| request.allowed && alike(request, refused));
    requests.iter().filter(|request| !request.allowed && !allowed(request)).collect()
}

impl Grant {
    /// Whether it is about this.
    pub(super) fn is(&self, verb: &str, group: &str, resource: &str) -> bool {
        (self.verb.as_str(), self.group.as_str(), self.resource.as_str()) == (verb, group, resource)
    }

    /// Whether it allows a request.
    pub(super) fn allows(&self, request: &Request) -> bool {
        self.is(&request.verb, &request.group, &request.resource)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && self.name.as_ref().is_none_or(|name| *name == request.name)
    }

    /// Whether one of the requests needs it. A right in all namespaces is needed for what is elsewhere than
    /// in the control plane's own, where a Role would do.
    pub(super) fn is_used(&self, requests: &[Request]) -> bool {
        let beyond = |request: &Request| {
            self.namespace.is_some() || request.namespace != smc_test_kubernetes::MESH_NAMESPACE
        };
        requests.iter().any(|request| self.allows(request) && beyond(request))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(namespace: &str, resource: &str, verb: &str, name: &str) -> Value {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let mut event = json!({ "verb": verb, "user": { "username": "smc" }, "annotations": { "authorization.k8s.io/decision": "allow" },
            "objectRef": { "namespace": namespace, "resource": resource, "name": name } });
        if !sub.is_empty() {
            event["objectRef"]["subresource"] = sub.into();
        }
        event
    }

    #[test]
    fn a_right_is_used_by_what_needs_it_and_by_nothing_else() {
        let rule = |resource: &str, names: Value| json!([{ "apiGroups": [""], "resources": [resource], "verbs": ["patch"], "resourceNames": names }]);
        let everywhere = |resource: &str, names: Value| json!({ "rules": rule(resource, names) });
        let own = |resource: &str| json!({ "metadata": { "namespace": "own" }, "rules": rule(resource, json!([])) });
        let shop = || asked("shop", "pods", "patch", "a");
        let rows = [
            (everywhere("pods", json!([])), shop(), true),
            (everywhere("pods", json!(["a"])), shop(), true),
            (everywhere("pods", json!(["b"])), shop(), false),
            (everywhere("pods", json!([])), asked("shop", "pods/status", "patch", "a"), false),
            (everywhere("pods/status", json!([])), asked("shop", "pods/status", "patch", "a"), true),
            (everywhere("pods", json!([])), asked("shop", "pods", "get", "a"), false),
            (everywhere("pods", json!([])), asked("smc-system", "pods", "patch", "a"), false),
            (own("pods"), shop(), false),
            (own("pods"), asked("own", "pods", "patch", "a"), true),
        ];
        for (role, event, used) in rows {
            let requests = requests(&[event], "smc");
            assert!(
                grants(&role).iter().all(|grant| grant.is_used(&requests) == used),
                "{role} {requests:?}"
            );
        }
        let version = json!({ "verb": "get", "user": { "username": "smc" }, "requestURI": "/version" });
        assert_eq!(requests(&[version], "smc"), []);
        assert_eq!(requests(&[shop()], "another"), []);
    }

    #[test]
    fn a_refusal_counts_unless_the_same_is_allowed_at_another_time() {
        let decided = |resource, decision: &str| {
            let mut event = asked("shop", resource, "patch", "a");
            event["annotations"]["authorization.k8s.io/decision"] = decision.into();
            event
        };
        for (refusals, events) in [
            (1, vec![decided("pods", "forbid")]),
            (0, vec![decided("pods", "forbid"), decided("pods", "allow")]),
            (0, vec![decided("pods", "allow"), decided("pods", "forbid")]),
            (1, vec![decided("pods", "forbid"), decided("pods/status", "allow")]),
        ] {
            assert_eq!(refused(&requests(&events, "smc")).len(), refusals, "{events:?}");
        }
    }
}
