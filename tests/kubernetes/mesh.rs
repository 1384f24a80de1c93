//! Owns the installation of SMC and of the bookstore in a cluster, as a person does it: the charts, then
//! manifests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Admin, ClusterError};

/// The namespace of the control plane.
pub const MESH_NAMESPACE: &str = "smc-system";
/// The image of SMC in a cluster of this package.
pub const SMC_IMAGE: &str = "smc:test";
/// The image of Envoy there.
pub const ENVOY_IMAGE: &str = "envoy:test";
/// The image of the bookstore's programs there.
pub const BOOKSTORE_IMAGE: &str = "bookstore:test";

/// How SMC is installed.
#[derive(Clone, Debug)]
pub struct MeshOptions {
    /// The directory with the charts `smc-crds` and `smc`.
    pub charts: PathBuf,
    /// The image of SMC, and that of Envoy.
    pub image: String,
    /// See `image`.
    pub envoy: String,
    /// Number of controllers.
    pub replicas: u16,
    /// More values, as `name=value`.
    pub values: Vec<String>,
}

impl Admin {
    /// Installs SMC, or upgrades it, and waits until all controllers are ready.
    pub async fn install_mesh(&self, options: &MeshOptions) -> Result<(), ClusterError> {
        let crds = options.charts.join("smc-crds").display().to_string();
        self.run_helm(&["upgrade", "--install", "smc-crds", &crds]).await?;
        let chart = options.charts.join("smc").display().to_string();
        let replicas = format!("replicas={}", options.replicas);
        let (repository, tag) = options.image.rsplit_once(':').unwrap_or((&options.image, "latest"));
        let (tag, envoy) = (format!("image.tag={tag}"), format!("envoy.image={}", options.envoy));
        let repository = format!("image.repository={repository}");
        let mut args = vec!["upgrade", "--install", "smc", &chart, "--wait", "--timeout", "4m"];
        for value in [&repository, &tag, &envoy, &replicas].into_iter().chain(&options.values) {
            args.extend(["--set", value]);
        }
        self.run_helm(&args).await
    }

    async fn run_helm(&self, args: &[&str]) -> Result<(), ClusterError> {
        let namespaced = [args, &["--namespace", MESH_NAMESPACE, "--create-namespace"]].concat();
        self.helm(&namespaced).await?.require(format!("helm {}", args.join(" ")))
    }
}

/// The manifests of the bookstore in `directory`, as one text: the namespaces first, with `image`.
pub fn bookstore(directory: &Path, image: &str) -> Result<String, ClusterError> {
    let entries = fs::read_dir(directory).map_err(ClusterError::file("read", directory))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort_by_key(|path| (!path.ends_with("namespaces.yaml"), path.clone()));
    let mut all = String::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(ClusterError::file("read", &path))?;
        all.push_str("---\n");
        all.push_str(&in_cluster(&text, image));
    }
    Ok(all)
}

/// One manifest of the bookstore, as it is in a cluster with this image.
pub fn in_cluster(manifest: &str, image: &str) -> String {
    manifest.replace("image: smc-bookstore\n", &format!("image: {image}\n"))
}
