//! Owns the terminal of a person who types the commands of a document: a shell in namespaces of its own, so
//! that every port is free there. All that it started ends with it, and it ends with the test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use smc_lab::{Privilege, beside};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a command may take: the longest starts a controller, or a lab.
const PATIENCE: Duration = Duration::from_mins(1);

/// A shell, which reads the commands.
pub(crate) struct Terminal {
    shell: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// How many commands were typed.
    typed: u32,
    /// Is removed after the shell was killed.
    directory: TempDir,
}

/// What a command that has ended leaves.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its code.
    pub(crate) code: String,
    /// What it wrote, on standard output and standard error.
    pub(crate) output: String,
}

/// A command that runs beside the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running(u32);

impl Terminal {
    /// Opens one in a clone of the repository, in which `make build` has succeeded.
    pub(crate) async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        clone_and_build(directory.path());
        let mut command: Command = Privilege::find().await.unwrap().unshare();
        let mut shell = command
            .args(["--", "bash"])
            .current_dir(directory.path())
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", directory.path().join("home"))
            .env("TMPDIR", directory.path().join("tmp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, answers) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let answers = BufReader::new(answers).lines();
        let mut terminal = Self { shell, input, answers, typed: 0, directory };
        // The lock of iptables' tables is in /run. The programs are built: this test comes with them.
        for command in ["ip link set lo up", "mount -t tmpfs run /run", "make() { [ \"$*\" = build ]; }"] {
            let ended = terminal.types(command).await;
            assert_eq!(ended.code, "0", "{command}: {}", ended.output);
        }
        terminal
    }

    /// The directory in which the commands run.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Types a command, and waits for its end.
    pub(crate) async fn types(&mut self, command: &str) -> Ended {
        self.typed += 1;
        let output = self.output_of(self.typed);
        self.send(&format!("{{\n{command}\n}} >{output} 2>&1 </dev/null; echo $?\n")).await;
        let answer = timeout(PATIENCE, self.answers.next_line()).await;
        let output = self.read(Running(self.typed));
        let Ok(answer) = answer else { panic!("does not end: {command}\n{output}") };
        let code = answer.unwrap().unwrap_or_else(|| panic!("the shell has ended: {command}\n{output}"));
        Ended { code, output }
    }

    /// Types a command into a terminal beside this one, with the same environment, and leaves it running.
    pub(crate) async fn leaves(&mut self, command: &str) -> Running {
        self.typed += 1;
        let output = self.output_of(self.typed);
        let ended = format!("{output}.ended");
        let subshell = format!("({command}\n) >{output} 2>&1 </dev/null");
        self.send(&format!("({subshell}; code=$?; echo $code >{ended}; exit $code) &\n")).await;
        Running(self.typed)
    }

    /// Whether a command that was left running has ended.
    pub(crate) fn has_ended(&self, command: Running) -> bool {
        Path::new(&format!("{}.ended", self.output_of(command.0))).exists()
    }

    /// What a command has written.
    pub(crate) fn read(&self, command: Running) -> String {
        let output = fs::read_to_string(self.output_of(command.0)).unwrap_or_default();
        // As it is without TMPDIR.
        output.replace(&*self.directory.path().join("tmp").to_string_lossy(), "/tmp")
    }

    fn output_of(&self, number: u32) -> String {
        self.directory.path().join(format!("outputs/{number}")).display().to_string()
    }

    async fn send(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    /// Closes it, with all that runs in it.
    pub(crate) async fn close(self) {
        let Self { directory, mut shell, input, .. } = self;
        drop(input);
        timeout(PATIENCE, shell.wait()).await.expect("the shell ends").unwrap();
        directory.close().unwrap();
    }
}

/// What the commands find: the tests of the repository, among them the mesh of the demo; the programs, and
/// Envoy as `tests/setup/envoy` leaves it, in the cache.
fn clone_and_build(directory: &Path) {
    let repository = fs::canonicalize("../..").unwrap();
    symlink(repository.join("tests"), directory.join("tests")).unwrap();
    let setup = fs::read_to_string("../setup/envoy").unwrap();
    let version = setup.lines().find_map(|line| line.strip_prefix("version=")).unwrap();
    let cache = directory.join("home/.cache/smc");
    let envoy = cache.join(format!("envoy-{version}"));
    for made in
        [&envoy.join("bin"), &cache.join("target"), &directory.join("tmp"), &directory.join("outputs")]
    {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(envoy.join("complete"), "").unwrap();
    let programs = beside("smc-lab").unwrap();
    symlink(programs.parent().unwrap(), cache.join("target/release")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
    let binary = std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
    symlink(binary, envoy.join("bin/envoy")).unwrap();
}
