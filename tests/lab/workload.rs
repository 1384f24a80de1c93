//! Owns the expansion of Deployments and other objects with a Pod template into Pods. Pure.

use serde_json::{Value, json};

/// Pods of one object; the lab runs no more Pods altogether.
const MAX_REPLICAS: u64 = 500;

/// Returns the Pods of a Deployment, ReplicaSet, StatefulSet or DaemonSet, or what is wrong with it. They are
/// numbered from 0; the lab has one node, so a DaemonSet has one Pod.
pub(super) fn expand(kind: &str, object: &Value) -> Result<Vec<Value>, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").ok_or("it has no name")?;
    let template = object.pointer("/spec/template").filter(|value| value.is_object());
    let template = template.ok_or_else(|| format!("{name} has no Pod template"))?;
    let replicas = match object.pointer("/spec/replicas") {
        _ if kind == "DaemonSet" => 1,
        None => 1,
        Some(number) => number.as_u64().ok_or_else(|| format!("{name}: `{number}` replicas"))?,
    };
    if replicas > MAX_REPLICAS {
        return Err(format!("{name} has {replicas} replicas; {MAX_REPLICAS} is the most"));
    }
    let pod = |number: u64| {
        let pod_name = format!("{name}-{number}");
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]});
        for field in ["labels", "annotations"] {
            if let Some(value) = template.pointer(&format!("/metadata/{field}")) {
                pod["metadata"][field] = value.clone();
            }
        }
        if kind == "StatefulSet" && pod["spec"].is_object() {
            pod["spec"]["hostname"] = json!(pod_name);
            pod["spec"]["subdomain"] = json!(text("/spec/serviceName"));
        }
        pod["metadata"]["name"] = json!(pod_name);
        pod["metadata"]["namespace"] = json!(text("/metadata/namespace").unwrap_or("default"));
        pod
    };
    Ok((0..replicas).map(pod).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(spec: &Value) -> Value {
        json!({"kind": "x", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
    }

    fn names(kind: &str, spec: &Value) -> Result<Vec<String>, String> {
        let pods = expand(kind, &object(spec))?;
        Ok(pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn there_are_as_many_pods_as_replicas_and_one_where_none_are_stated() {
        let template = json!({"spec": {"containers": []}});
        for (kind, replicas, expected) in [
            ("Deployment", json!(2), &["web-0", "web-1"][..]),
            ("Deployment", json!(0), &[]),
            ("DaemonSet", json!(3), &["web-0"]),
        ] {
            let spec = json!({"replicas": replicas, "template": template});
            assert_eq!(names(kind, &spec).unwrap(), expected, "{kind}");
        }
        assert_eq!(names("ReplicaSet", &json!({"template": template})).unwrap(), ["web-0"]);
        for bad in [json!(-1), json!("2"), json!(501), json!(1e30)] {
            assert!(names("Deployment", &json!({"replicas": bad, "template": template})).is_err(), "{bad}");
        }
        assert!(names("Deployment", &json!({"replicas": 1})).is_err());
    }

    #[test]
    fn a_pod_of_a_stateful_set_has_a_host_name_below_its_service() {
        let spec = json!({"serviceName": "peers", "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
            "spec": {"serviceAccountName": "seller", "containers": []},
        }});
        assert_eq!(
            expand("StatefulSet", &object(&spec)).unwrap(),
            [json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"a": "b"}},
                "spec": {"serviceAccountName": "seller", "containers": [], "hostname": "web-0", "subdomain": "peers"},
            })]
        );
    }
}
