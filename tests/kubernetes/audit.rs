//! Owns the record of requests that the API server keeps: what is recorded, and where.

use std::fs;

use serde_json::{Value, json};

use crate::ClusterError;
use crate::state_dir::StateDir;

/// The component whose log has the record.
const LOG: &str = "audit";

/// Writes the policy, and returns the flags of the API server; none if no user is named.
pub(crate) fn flags(state: &StateDir, users: &[String]) -> Result<Vec<String>, ClusterError> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let path = state.path().join("audit.yaml");
    fs::write(&path, policy(users).to_string()).map_err(ClusterError::file("write", &path))?;
    Ok(vec![
        format!("--audit-policy-file={}", path.display()),
        format!("--audit-log-path={}", state.log(LOG).display()),
    ])
}

/// Metadata alone: requests and responses may hold keys.
fn policy(users: &[String]) -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata", "users": users }, { "level": "None" }],
    })
}

/// Reads the record. The API server may be writing its last line.
pub(crate) fn read(state: &StateDir) -> Result<Vec<Value>, ClusterError> {
    let path = state.log(LOG);
    let text = fs::read_to_string(&path).map_err(ClusterError::file("read", &path))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().map_err(ClusterError::command("read the audit log"))
}
