//! The status of custom objects, from what the source holds to what the API is asked to store.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use smc_kubernetes::crds::status::ObjectStatus;
use smc_kubernetes::custom_objects::{Content, CustomObject, CustomObjects, Marks};
use smc_testkit::eventually::{Patience, eventually};
use smc_types::object_ref::{Kind, ObjectRef};
use tokio::sync::watch;

use super::{PATIENCE, Served};

/// A TCPRoute that is refused, in this generation.
fn held(namespace: &str, generation: i64, written: ObjectStatus) -> (ObjectRef, Arc<CustomObject>) {
    let json = json!({"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "TCPRoute",
        "metadata": {"name": "tcp", "namespace": namespace}, "spec": {"matches": {"ports": [0]}}});
    let marks = Marks::new(generation, "u", written);
    let object = CustomObject { marks, content: Content::Json(json.to_string().into()) };
    let reference = ObjectRef::Namespaced(Kind::TcpRoute, format!("{namespace}/tcp").parse().unwrap());
    (reference, Arc::new(object))
}

#[tokio::test]
async fn the_leader_writes_the_status_of_what_the_source_holds() {
    let none = ObjectStatus::default;
    let first = CustomObjects::from_iter([held("shop", 1, none()), held("elsewhere", 1, none())]);
    let (custom, receiver) = watch::channel(first);
    let served = Served::with(receiver).await;
    let patience = Patience { limit: PATIENCE, pause: Duration::from_millis(20) };
    let written = |generation: i64| {
        let made = served.api.made(&Method::PATCH, "/namespaces/shop/tcproutes/tcp/status");
        made.into_iter().find(|made| made.body["status"]["observedGeneration"] == generation)
    };
    eventually(patience, "the first status", async || written(1).is_some()).await;
    let made = written(1).unwrap().body;
    assert_eq!((&made["metadata"]["uid"], &made["kind"]), (&json!("u"), &json!("TCPRoute")));
    let conditions: Vec<(&Value, &Value)> = made["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| (&condition["type"], &condition["reason"]))
        .collect();
    let invalid = json!("Invalid");
    assert_eq!(conditions, [(&json!("Accepted"), &invalid), (&json!("Programmed"), &invalid)]);
    // The API shows what was written, and later another generation.
    let status: ObjectStatus = serde_json::from_value(made["status"].clone()).unwrap();
    custom.send_modify(|table| table.extend([held("shop", 1, status.clone())]));
    custom.send_modify(|table| table.extend([held("shop", 2, status.clone())]));
    eventually(patience, "the status of another generation", async || written(2).is_some()).await;
    assert!(served.api.made(&Method::PATCH, "/namespaces/elsewhere/").is_empty(), "it is of another mesh");
    served.stop().await;
}
