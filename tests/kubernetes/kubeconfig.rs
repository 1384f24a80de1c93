//! Owns kubeconfigs: where the API server is, and with which certificate a component connects.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;

use crate::ClusterError;
use crate::pki::Keys;

/// Writes the kubeconfig of the client `name` for the API server at `address`. It refers to the files
/// of keys and has none itself.
pub(crate) fn write(path: &Path, keys: &Keys, name: &str, address: SocketAddr) -> Result<(), ClusterError> {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "smc", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority": keys.ca(),
        }}],
        "users": [{ "name": name, "user": {
            "client-certificate": keys.certificate(name),
            "client-key": keys.key(name),
        }}],
        "contexts": [{ "name": "smc", "context": { "cluster": "smc", "user": name } }],
        "current-context": "smc",
    });
    let _ = fs::remove_file(path);
    let opened = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    opened
        .and_then(|mut file| file.write_all(format!("{text:#}\n").as_bytes()))
        .map_err(ClusterError::file("write", path))
}
