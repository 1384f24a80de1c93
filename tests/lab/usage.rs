//! Tests the lab as a person meets it: commands without a name, containers that do not start, Deployments.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't go on fails")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use smc_lab::{Lab, LabOptions, PodInfo};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);

const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";

fn pod(name: &str, command: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{containers: [{{name: main, command: {command}}}]}}\n"
    )
}

/// A moment, before the next look.
#[expect(clippy::disallowed_methods, reason = "a test without a runtime waits for processes")]
fn sleep() {
    std::thread::sleep(Duration::from_millis(100));
}

fn mesh(objects: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("mesh.yaml"), format!("{NAMESPACE}{objects}")).unwrap();
    directory
}

/// Labs of a user of their own: no other test's lab is in this directory.
struct Labs(TempDir);

impl Labs {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_smc-lab"));
        command.args(args).env("TMPDIR", self.0.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs `smc-lab up`, and waits until its Pod runs.
    fn up(&self, name: &str, directory: &Path) -> Up {
        let mut command = self.command(&["up", "--no-controller", "--name", name]);
        let up = Up(command.arg(directory).stdout(Stdio::null()).spawn().unwrap());
        for _ in 0..300 {
            if text(&self.run(&["pods", "--name", name]).stdout).contains(" ready ") {
                return up;
            }
            sleep();
        }
        panic!("{name} did not come up");
    }
}

/// A lab that ends with the test, however that ends.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_without_a_name_says_which_lab_it_means() {
    let labs = Labs(TempDir::new().unwrap());
    let directory = mesh(&pod("client", "[sleep, infinity]"));
    let _one = labs.up("one", directory.path());
    for args in [&["pods"][..], &["exec", "shop/client", "--", "true"], &["logs", "shop/client"]] {
        let output = labs.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        assert_eq!(text(&output.stderr), "lab `one`\n", "{args:?}");
    }
    assert_eq!(text(&labs.run(&["pods", "--name", "one"]).stderr), "");

    let two = labs.up("two", directory.path());
    for args in [&["down"][..], &["pods"]] {
        let output = labs.run(args);
        let message = text(&output.stderr);
        assert!(!output.status.success() && message.contains("one, two"), "{args:?}: {output:?}");
    }
    assert!(labs.run(&["down", "--name", "two"]).status.success());
    drop(two);
    let output = labs.run(&["down"]);
    assert!(output.status.success() && text(&output.stderr) == "lab `one`\n", "{output:?}");
    assert!(!labs.run(&["pods"]).status.success(), "it is still there");
}

#[test]
fn a_missing_directory_is_told_before_a_missing_program() {
    let labs = Labs(TempDir::new().unwrap());
    let file = labs.0.path().join("file");
    fs::write(&file, "").unwrap();
    let programs = ["--smc", "/nowhere/smc", "--envoy", "/nowhere/envoy"];
    for directory in ["/nowhere/mesh", file.to_str().unwrap()] {
        let output = labs.run(&[&["up", directory], &programs[..]].concat());
        let message = text(&output.stderr);
        assert!(!output.status.success() && message.contains(directory), "{output:?}");
        assert!(!message.contains("envoy") && !message.contains("smc`"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_cannot_start_says_why() {
    let objects = pod("lost", "[no-such-program]")
        + &pod("quits", "[sh, -c, 'echo starting; echo the port is taken >&2; exit 3']");
    let directory = mesh(&objects);
    let options =
        LabOptions { ready_timeout: Duration::ZERO, ..LabOptions::without_controller(directory.path()) };
    let lab = Lab::start(options).await.unwrap();
    let says = |pods: &[PodInfo], pod: &str, words: &[&str]| {
        let problem = pods.iter().find(|info| info.pod == pod).and_then(|info| info.problem.clone());
        problem.is_some_and(|problem| words.iter().all(|word| problem.contains(word)))
    };
    lab.wait("the reasons", SOON, |pods| {
        says(pods, "shop/lost", &["no-such-program", "No such file"])
            && says(pods, "shop/quits", &["main ended: exit status: 3", "the port is taken"])
    })
    .await
    .unwrap();
    lab.stop().await.unwrap();
}

fn deployment(round: u32) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  replicas: 3
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - name: echo
        command: [smc-lab, echo, --http, '8080']
        env: [{{name: ROUND, value: '{round}'}}]
        readinessProbe: {{tcpSocket: {{port: 8080}}}}
"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_deployment_run_and_are_replaced_one_by_one() {
    let directory = mesh(&deployment(0));
    let lab = Lab::start(LabOptions::without_controller(directory.path())).await.unwrap();
    let before = lab.pods().await.unwrap();
    let names: Vec<_> = before.iter().map(|pod| pod.pod.as_str()).collect();
    assert_eq!(names, ["shop/web-0", "shop/web-1", "shop/web-2"]);
    assert!(before.iter().all(|pod| pod.ready), "{before:?}");
    lab.apply("mesh.yaml", &format!("{NAMESPACE}{}", deployment(1))).await.unwrap();
    let mut fewest = before.len();
    for _ in 0..600 {
        let now = lab.pods().await.unwrap();
        let ready: Vec<_> = now.iter().filter(|pod| pod.ready).collect();
        fewest = fewest.min(ready.len());
        if ready.len() == 3 && ready.iter().zip(&before).all(|(now, was)| now.addresses != was.addresses) {
            assert_eq!(fewest, 2, "how many were ready meanwhile");
            lab.stop().await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?}", lab.pods().await.unwrap());
}
