//! The end of a cluster: whatever dies, nothing of it is left on the machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longer than the keeper takes to remove cgroups and the directory.
const LIMIT: Duration = Duration::from_secs(20);

/// The directories of Kubernetes' programs, if a cluster can run here.
fn programs() -> Option<std::ffi::OsString> {
    #[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
    let (programs, reason) = (std::env::var_os("SMC_KUBERNETES"), std::env::var_os("SMC_NO_CLUSTER"));
    assert!(programs.is_some() || reason.is_some(), "SMC_KUBERNETES names the programs (make sets it)");
    programs
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_smc-cluster"))
}

fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("smc-cluster-{}", nix::unistd::geteuid())).join(name)
}

/// Starts a cluster in a process of its own, and waits until it is up.
fn up(name: &str, flags: &[&str]) -> Child {
    let mut child =
        program().args(["up", "--bare", "--name", name]).args(flags).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n", "the cluster is up");
    child
}

fn kill_hard(pid: u32) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
}

fn keeper(name: &str) -> u32 {
    fs::read_to_string(directory(name).join("keeper.pid")).unwrap().parse().unwrap()
}

/// The command lines of a cluster's processes: every component is started with a path in the directory.
fn processes(name: &str) -> Vec<String> {
    let path = format!("{}/", directory(name).display());
    let commands = fs::read_dir("/proc").unwrap().flatten().map(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).replace('\0', " ")
    });
    commands.filter(|command| command.contains(&path)).collect()
}

/// What is left of a cluster: processes, mounts, cgroups, directory.
fn left(name: &str) -> Vec<String> {
    let directory = directory(name);
    let text = directory.display().to_string();
    let mut left = processes(name);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(&text)).map(ToOwned::to_owned));
    cgroups(Path::new("/sys/fs/cgroup"), &format!("smc-cluster-{name}"), 4, &mut left);
    if directory.exists() {
        left.push(text);
    }
    left
}

fn cgroups(directory: &Path, name: &str, depth: u32, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name() == name {
            found.push(entry.path().display().to_string());
        } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cgroups(&entry.path(), name, depth - 1, found);
        }
    }
}

/// Waits until `find` finds nothing of the cluster `name`.
async fn wait_until_none(find: fn(&str) -> Vec<String>, name: &str) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let found = find(name);
        if found.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "left: {found:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_cluster_whatever_dies() {
    nothing_is_left("ends-node", &[]).await;
}

#[tokio::test]
async fn nothing_is_left_of_an_api_server_whatever_dies() {
    nothing_is_left("ends-api", &["--api-only"]).await;
}

async fn nothing_is_left(name: &str, flags: &[&str]) {
    if programs().is_none() {
        return;
    }
    let mut owner = up(name, flags);
    assert!(left(name).len() > 3, "this test finds what there is: {:?}", left(name));
    kill_hard(owner.id());
    owner.wait().unwrap();
    wait_until_none(left, name).await;

    let mut owner = up(name, flags);
    let down = program().args(["down", "--name", name]).status().unwrap();
    assert!(down.success());
    assert_eq!(left(name), [""; 0]);
    owner.wait().unwrap();

    let mut owner = up(name, flags);
    kill(Pid::from_raw(i32::try_from(owner.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(owner.wait().unwrap().success());
    assert_eq!(left(name), [""; 0]);

    // Both at once: the processes are gone, and the next cluster removes the files.
    let mut owner = up(name, flags);
    kill_hard(keeper(name));
    kill_hard(owner.id());
    owner.wait().unwrap();
    wait_until_none(processes, name).await;
    let mut owner = up(name, flags);
    kill(Pid::from_raw(i32::try_from(owner.id()).unwrap()), Signal::SIGINT).unwrap();
    assert!(owner.wait().unwrap().success());
    assert_eq!(left(name), [""; 0]);
}
