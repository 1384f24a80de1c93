//! The files of a controller whose mesh is a shop.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The YAML of the namespace `shop`, in the mesh, with pods `pod-0`, `pod-1` and so on of one account.
pub fn manifest(pods: u64) -> String {
    let mut mesh = String::from(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}\n\
         ---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: buyer, namespace: shop}\n",
    );
    for pod in 0..pods {
        write!(
            mesh,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{pod}, namespace: shop}}\n\
             spec: {{serviceAccountName: buyer, containers: [{{name: app, image: app}}]}}\n"
        )
        .unwrap();
    }
    mesh
}

/// Writes a key-encryption key that only its owner may read, as the controller demands: 32 bytes, or their
/// digits in hexadecimal. No secret, since a test chose it.
pub fn key_file(file: &Path, key: impl AsRef<[u8]>) {
    fs::write(file, key).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}
