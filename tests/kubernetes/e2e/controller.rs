//! A controller that runs beside an API server without a node.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use smc_test_kubernetes::{Cluster, MESH_NAMESPACE, beside};
use smc_testkit::memory::memory_kib;
use tempfile::TempDir;

/// How long a controller may take until the API server trusts it. The leader looks every ten seconds.
const ADMISSION: Duration = Duration::from_secs(75);

/// A pod of the mesh.
const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: first, namespace: shop}, \
                   spec: {containers: [{name: app, image: app}]}}";

/// What the API server says to a pod of the mesh: `None` if it takes it.
pub(crate) async fn refusal(cluster: &Cluster) -> Result<Option<String>, String> {
    let applied = cluster.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], POD).await;
    let applied = applied.map_err(|error| error.chain())?;
    Ok((!applied.success()).then_some(applied.stderr))
}

/// Waits until a pod of the mesh is admitted: until the leader has written the roots that the API server
/// trusts, every one is refused.
pub(crate) async fn admits(cluster: &Cluster) {
    let admitted = || async { refusal(cluster).await?.map_or(Ok(()), Err) };
    let waited = cluster.wait("a pod to be admitted", ADMISSION, admitted).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// A program that is killed when the thread ends that started it, so also with a killed test.
pub(crate) fn process(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
    command
}

/// A running program. It ends when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The arguments of a controller that serves the webhooks at an address, where the API server reaches it
/// without a Service.
fn of_webhooks(address: SocketAddr) -> [String; 4] {
    [
        format!("--webhook-listen={address}"),
        format!("--webhook-address={address}"),
        "--init-image=smc:test".to_owned(),
        "--envoy-image=envoy:test".to_owned(),
    ]
}

/// A controller beside the cluster. It ends when this is dropped.
pub(crate) struct Controller {
    process: Process,
    directory: TempDir,
}

impl Controller {
    /// Starts a controller whose webhooks are at this address.
    pub(crate) fn start(cluster: &Cluster, webhooks: SocketAddr) -> Self {
        Self::with(&[], cluster, webhooks)
    }

    /// As [`Self::start`], with more arguments.
    pub(crate) fn with(arguments: &[&str], cluster: &Cluster, webhooks: SocketAddr) -> Self {
        let more = arguments.iter().map(|argument| (*argument).to_owned());
        let arguments = of_webhooks(webhooks).into_iter().chain(more);
        Self::start_by(process(&beside("smc").unwrap()), cluster, arguments)
    }

    /// Starts a controller that has one argument besides those that all have.
    pub(crate) fn with_alone(argument: String, cluster: &Cluster) -> Self {
        Self::start_by(process(&beside("smc").unwrap()), cluster, [argument])
    }

    /// As [`Self::start`], with the clock that is in a file (`smc-wrong-clock`).
    pub(crate) fn with_clock(clock: &Path, cluster: &Cluster, webhooks: SocketAddr) -> Self {
        let mut program = process(&beside("smc-wrong-clock").unwrap());
        program.env("SMC_TEST_CLOCK", clock);
        Self::start_by(program, cluster, of_webhooks(webhooks))
    }

    fn start_by(
        mut program: Command,
        cluster: &Cluster,
        arguments: impl IntoIterator<Item = String>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let log = std::fs::File::create(path("log")).unwrap();
        let process = program
            .args(["controller", "--kubernetes", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .arg("--data-dir")
            .arg(path("data"))
            .arg("--kek-file")
            .arg(path("kek"))
            .arg("--admin-socket")
            .arg(path("admin.sock"))
            .args(["--create-kek", "--xds-listen", "127.0.0.1:0", "--mesh-namespace", MESH_NAMESPACE])
            .args(["--log-level", "info,smc_kubernetes::source=debug"])
            .args(arguments)
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process: Process(process), directory }
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Its resident memory, in MiB.
    pub(crate) fn memory_mib(&self) -> u64 {
        memory_kib(self.process.0.id(), "VmRSS").unwrap() / 1024
    }

    /// What `smc ARGUMENTS` prints, asked of this controller, whatever its verdict.
    pub(crate) fn smc(&self, arguments: &[&str]) -> Result<String, String> {
        let mut smc = Command::new(beside("smc").unwrap());
        let smc = smc.args(arguments).arg("--admin-socket").arg(self.directory.path().join("admin.sock"));
        let output = smc.output().map_err(|error| error.to_string())?;
        if output.stdout.is_empty() {
            return Err(format!("{output:?}"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
