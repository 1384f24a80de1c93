//! A person with a page in hand, in front of a shell.

use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use smc_test_kubernetes::beside;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::page::{Block, Page, fits};
use crate::shared::programs;

/// How long the commands of one block may take: an installation waits up to five minutes for its pods.
const PATIENCE: Duration = Duration::from_mins(8);

/// A command that runs until it is ended. It is typed into a terminal of its own.
const LONG_RUNNING: &str = "smc controller ";

/// A person with a page in hand. Dropping it ends what runs in its terminals.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    page: &'a Page,
    /// The person's directory: a checkout, and a safe place.
    directory: TempDir,
    environment: Vec<(&'static str, OsString)>,
    /// What the page calls differently from what it is here: its words, and those typed in their place.
    replaced: Vec<(&'static str, String)>,
    /// Shell that is typed before each block.
    before: String,
    /// The long-running command, and what was typed for it.
    running: Option<Child>,
    started: String,
}

/// By its code 79, `smc` says that something is left to be done. A transfer fails where another replica was
/// elected meanwhile, as on a busy machine: a person types it again.
const SMC: &str = "smc() {
  local code=0
  for _ in 1 2 3 4 5; do
    code=0; command smc \"$@\" || code=$?
    [ \"$code $1 ${2:-}\" = '1 cluster transfer' ] || break
    sleep 2
  done
  [ $code = 0 ] || [ $code = 79 ]
}
";

impl<'a> Reader<'a> {
    pub(super) fn of(page: &'a Page) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a-safe-place")).unwrap();
        let charts = std::fs::canonicalize("../../charts").unwrap();
        std::os::unix::fs::symlink(charts, directory.path().join("charts")).unwrap();
        let before = SMC.to_owned();
        let (environment, replaced) = (Vec::new(), Vec::new());
        Self { page, directory, environment, replaced, before, running: None, started: String::new() }
    }

    /// Gives the person's shell a variable.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Gives the person's shell a function.
    pub(super) fn with_function(mut self, function: &str) -> Self {
        self.before.push_str(function);
        self.before.push('\n');
        self
    }

    /// Names what the page calls `words`, in what is typed and in its output.
    pub(super) fn naming(mut self, words: &'static str, here: String) -> Self {
        self.replaced.push((words, here));
        self
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Types all commands of a section.
    pub(super) async fn follow(&mut self, section: &str) {
        self.follow_blocks(section, 0..self.page.len(section)).await;
    }

    /// Types some of a section's blocks, and compares their output with the one beside them.
    pub(super) async fn follow_blocks(&mut self, section: &str, blocks: Range<usize>) {
        for Block { commands, shown } in self.page.take(section, blocks) {
            if commands.starts_with(LONG_RUNNING) {
                self.start(commands).await;
                continue;
            }
            let output = self.types(commands).await;
            if let Some(shown) = shown {
                assert!(fits(shown, &output), "{commands}\nthe page shows:\n{shown}\nand this is:\n{output}");
            }
        }
    }

    /// Sees that all works.
    pub(super) async fn healthy(&self) {
        self.types("command smc check --wait 3m").await;
    }

    /// Types commands into a shell, each of which has to succeed. Returns their output, as the page
    /// has it.
    pub(super) async fn types(&self, commands: &str) -> String {
        let mut shell = self.shell(&format!("{}{}", self.before, self.here(commands)));
        let ended = timeout(PATIENCE, shell.output()).await.expect("the commands end").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (mut output, errors) = (text(&ended.stdout), text(&ended.stderr));
        assert!(ended.status.success(), "{commands}\n{output}\n{errors}\n{}", self.log());
        for (words, here) in &self.replaced {
            output = output.replace(here, words);
        }
        output
    }

    /// Types a long-running command into a terminal of its own, and waits until the replica has a leader.
    async fn start(&mut self, command: &str) {
        assert!(self.running.is_none(), "one controller at a time runs on a machine");
        command.clone_into(&mut self.started);
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        let mut shell = self.shell(&format!("exec {}", self.here(command)));
        shell.stdout(log.try_clone().unwrap()).stderr(log);
        self.running = Some(shell.spawn().unwrap());
        self.until("command smc cluster status | grep -qw leader").await;
    }

    /// Types the long-running command once more.
    pub(super) async fn start_again(&mut self) {
        let command = self.started.clone();
        self.start(&command).await;
    }

    /// Ends the long-running command, as a service manager does.
    pub(super) async fn stop(&mut self) {
        let mut running = self.running.take().expect("a controller runs");
        let pid = i32::try_from(running.id().expect("it has not ended")).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let ended = timeout(PATIENCE, running.wait()).await.expect("it ends").unwrap();
        assert!(ended.success(), "{ended}\n{}", self.log());
    }

    /// Waits until a command succeeds.
    pub(super) async fn until(&self, command: &str) {
        let looking =
            format!("for _ in {{1..300}}; do if {command}; then exit 0; fi; sleep 0.2; done; exit 1");
        self.types(&looking).await;
    }

    /// What is typed here for what the page says.
    fn here(&self, commands: &str) -> String {
        let replaced = |text: String, (words, here): &(&str, String)| text.replace(words, here);
        self.replaced.iter().fold(commands.to_owned(), replaced)
    }

    fn shell(&self, commands: &str) -> Command {
        let directory = |program: PathBuf| program.parent().unwrap().display().to_string();
        let programs = programs().unwrap();
        let own = ["kubectl", "helm"].map(|name| directory(programs.find(name).unwrap()));
        let path = format!("{}:{}:/usr/bin:/bin", directory(beside("smc").unwrap()), own.join(":"));
        let mut shell = Command::new("bash");
        shell
            .args(["-euxo", "pipefail", "-c", commands])
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.directory.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        shell
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("controller.log")
    }

    /// What the long-running command said.
    fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}
