//! Owns the cluster that tests share, and the question whether there is one.

use std::path::PathBuf;
use std::time::Duration;

use smc_kubernetes::{Cluster, ClusterOptions, Image, Programs, beside};
use tokio::sync::OnceCell;

/// Time limit to wait for another cluster with a node, for example that of `make cluster`.
const WAIT: Duration = Duration::from_mins(3);

/// The programs of Kubernetes, or `None` if `make` has found that no cluster can run, and has said
/// so. Without either word this is a failure: a test that did not run is not a test that passed.
pub(crate) fn programs() -> Option<Programs> {
    if let Some(list) = variable("SMC_KUBERNETES") {
        return Some(Programs::new(&list));
    }
    assert!(
        variable("SMC_NO_CLUSTER").is_some(),
        "SMC_KUBERNETES names the programs of Kubernetes (make sets it): `tests/setup/kubernetes DIR`"
    );
    None
}

/// The cluster that tests share. It ends with this process.
pub(crate) async fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let programs = programs()?;
    let started = CLUSTER.get_or_init(|| async {
        let options = ClusterOptions {
            name: Some("test".to_owned()),
            wait: WAIT,
            ..ClusterOptions::new(programs, images())
        };
        Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    });
    Some(started.await)
}

/// The images of the tests' pods.
fn images() -> Vec<Image> {
    let program = |name: &str| beside(name).unwrap();
    let envoy = variable("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
    vec![
        Image::smc("smc:test", &program("smc")).unwrap(),
        Image::envoy("envoy:test", &PathBuf::from(envoy)).unwrap(),
        Image::of_programs("bookstore:test", "", &[&program("smc-bookstore")]),
        Image::tools("tools:test", &[&program("smc-lab")]),
    ]
}

#[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
