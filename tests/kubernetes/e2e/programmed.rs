//! Owns the wait for the condition `Programmed` of an object.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use smc_test_kubernetes::Cluster;

/// How long anything may take, on a machine that may be busy compiling. A status follows its object in
/// seconds, and is written again after ten.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until an object (its kind, namespace and name) is programmed like this, of its present generation;
/// returns the message.
pub(crate) async fn wait_programmed(
    cluster: &Cluster,
    [kind, namespace, name]: [&str; 3],
    status: &str,
    reason: &str,
) -> String {
    let message = Mutex::new(String::new());
    let written = || async {
        let got = cluster.kubectl(&["get", kind, "-n", namespace, name, "-o", "json"]).await;
        let got = got.map_err(|error| error.chain())?;
        let object: Value = serde_json::from_str(&got.stdout).map_err(|error| error.to_string())?;
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|condition| condition["type"] == "Programmed");
        let found = found.ok_or("no condition")?;
        let current = found["observedGeneration"] == object["metadata"]["generation"];
        if current && found["status"] == status && found["reason"] == reason {
            found["message"].as_str().unwrap_or_default().clone_into(&mut message.lock().unwrap());
            Ok(())
        } else {
            Err(found.to_string())
        }
    };
    let waited = cluster.wait(&format!("{kind} {name}: {status} {reason}"), PATIENCE, written).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
    message.into_inner().unwrap()
}
