//! Tests the demo as a program.

use std::path::Path;
use std::process::Stdio;

use crate::SETTLE;
use crate::eventually::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use tokio::process::Command;

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_whose_terminal_closes_leaves_nothing_behind() {
    // Everything that the demo writes outside its namespaces is in here.
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = Command::new(smc_lab::beside("smc-demo").unwrap())
        .arg("--once")
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let base = format!("smc-lab-{}", getuid());
    let labs = temporary.path().join(&base);
    eventually("the lab starts", async || {
        let names = names_in(&labs);
        let started = names.iter().any(|name| labs.join(name).join("config.json").exists());
        if started { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;

    let id = i32::try_from(demo.id().unwrap()).unwrap();
    kill(Pid::from_raw(id), Signal::SIGHUP).unwrap();
    let status = tokio::time::timeout(SETTLE, demo.wait()).await.expect("the demo ends").unwrap();
    assert_eq!(status.code(), Some(1), "cut short, it has shown nothing: {status}");
    eventually("nothing is left", async || {
        let (left, labs) = (names_in(temporary.path()), names_in(&labs));
        if left == [base.as_str()] && labs.is_empty() { Ok(()) } else { Err(format!("{left:?} {labs:?}")) }
    })
    .await;
}
