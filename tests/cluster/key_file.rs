//! Tests the making of a key-encryption key by a controller that dies meanwhile.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;

use crate::replicas::{eventually, program};

/// Starts a controller that creates its key; `limit` is a shell command that comes first.
fn controller(directory: &Path, limit: &str) -> tokio::process::Child {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "sh", "-c", &format!("{limit}; exec \"$0\" \"$@\"")])
        .arg(program())
        .args(["controller", "--create-kek", "--xds-listen", "127.0.0.1:0", "--kek-file"])
        .arg(directory.join("kek"))
        .arg("--mesh-dir")
        .arg(directory.join("mesh"))
        .arg("--data-dir")
        .arg(directory.join("data"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
async fn a_controller_that_dies_while_it_makes_its_key_leaves_none() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("mesh")).unwrap();
    let kek = directory.path().join("kek");
    // The kernel kills a process that writes a file beyond the limit: here, with the first byte.
    let mut dying = controller(directory.path(), "ulimit -c 0; ulimit -f 0");
    let died = timeout(Duration::from_mins(1), dying.wait()).await.unwrap().unwrap();
    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(!died.success() && !kek.exists(), "{died}; it left {names:?}");
    assert!(names.iter().any(|name| name.starts_with("kek.")), "it died earlier, and left {names:?}");

    let _controller = controller(directory.path(), ":");
    eventually("the key", async || kek.exists().then_some(())).await;
    assert_eq!(std::fs::read(&kek).unwrap().len(), 65, "the key is whole as soon as it is there");
    eventually("the founding", async || directory.path().join("kek.founded").exists().then_some(())).await;
}
