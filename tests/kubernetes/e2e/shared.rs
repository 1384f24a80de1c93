//! Owns the clusters that tests share, and the question whether there are any.

use std::ops::Deref;
use std::path::PathBuf;

use smc_test_kubernetes::{
    BOOKSTORE_IMAGE, Cluster, ClusterOptions, ENVOY_IMAGE, Image, Programs, SMC_IMAGE, beside,
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::{rights, two_meshes};

/// A cluster of this process. It starts when a test asks for it, and ends with the process.
#[derive(Debug)]
struct Place {
    name: &'static str,
    cluster: OnceCell<Cluster>,
    /// Set once SMC is installed in it.
    installed: OnceCell<()>,
}

impl Place {
    const fn named(name: &'static str) -> Self {
        Self { name, cluster: OnceCell::const_new(), installed: OnceCell::const_new() }
    }
}

static SHARED: Place = Place::named("test");

/// For tests that break a cluster and repair it, one at a time. All others would wait for them in vain.
static BROKEN: Place = Place::named("test-broken");
static USE: Mutex<()> = Mutex::const_new(());

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

/// The programs for clusters without a node: those of envtest, if a person names them.
pub(crate) fn api_programs() -> Option<Programs> {
    match variable("KUBEBUILDER_ASSETS") {
        Some(assets) => Some(Programs::new(&assets)),
        None => programs(),
    }
}

/// A shared cluster, for one test.
#[derive(Debug)]
pub(crate) struct Shared {
    cluster: &'static Cluster,
    /// Set once SMC is installed in the cluster.
    pub(crate) installed: &'static OnceCell<()>,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

/// The cluster, with other tests in it.
pub(crate) async fn cluster() -> Option<Shared> {
    started(&SHARED, None).await
}

/// Another cluster, for a test that breaks it and repairs it.
pub(crate) async fn alone() -> Option<Shared> {
    started(&BROKEN, Some(USE.lock().await)).await
}

async fn started(place: &'static Place, alone: Option<MutexGuard<'static, ()>>) -> Option<Shared> {
    let programs = programs()?;
    let started = place.cluster.get_or_init(|| async {
        let options = ClusterOptions {
            name: Some(place.name.to_owned()),
            // The API server compacts etcd every five minutes, longer than these tests take.
            api_server_flags: vec!["--etcd-compaction-interval=10s".to_owned()],
            audited: vec![rights::controllers(), two_meshes::blue_controllers()],
            keep: variable("SMC_KEEP").is_some(),
            ..ClusterOptions::new(programs, images())
        };
        Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    });
    Some(Shared { cluster: started.await, installed: &place.installed, _alone: alone })
}

/// The images of the tests' pods.
pub(crate) fn images() -> Vec<Image> {
    let program = |name: &str| beside(name).unwrap();
    let built = |name: &str| programs().and_then(|programs| programs.find(name).ok());
    let envoy = variable("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
    vec![
        Image::smc(SMC_IMAGE, &program("smc")),
        Image::envoy(ENVOY_IMAGE, &PathBuf::from(envoy)).unwrap(),
        Image::of_programs(BOOKSTORE_IMAGE, "", &[&program("smc-bookstore")]),
        Image::tools("tools:test", &[&program("smc-lab")]),
        Image::of_programs(
            "contour:test",
            "",
            &[&built("contour").expect("tests/setup/kubernetes builds Contour")],
        ),
    ]
}

#[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
pub(crate) fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
