//! The commands of the documents, run as a person types them: taken from the fenced blocks, in order, in a
//! cluster of their own, with the images and paths that the documents name.
//!
//! Owns which sections are run, and in which order: the three ways of installation are written beside each
//! other, and a cluster has one of them at a time. A block that is left out has its reason here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use smc_test_kubernetes::{Cluster, ClusterOptions, ENVOY_IMAGE, Image, SMC_IMAGE, beside};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::shared::{self, programs};

/// How long the commands of one section may take: an installation waits up to five minutes for its pods.
const PATIENCE: Duration = Duration::from_mins(8);

/// The application that moves into the mesh.
const APPLICATION: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: bookstore}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: bookstore}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: 'tools:test', command: [smc-lab, echo, --http, '8080']}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: bookstore}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: caller, namespace: bookstore}
spec:
  selector: {matchLabels: {app: caller}}
  template:
    metadata: {labels: {app: caller}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: caller, image: 'tools:test', command: [smc-lab, fetch, --lines, --count, '100000', --interval, 500ms, --url, 'http://web.bookstore/']}
";

/// The shell blocks of a document, by the heading that they stand under.
fn blocks(document: &str) -> BTreeMap<String, Vec<String>> {
    let mut blocks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut heading, mut open) = (String::new(), None);
    for line in document.lines() {
        let text = line.trim_start();
        match (text, &mut open) {
            // Where a block belongs to an item of a list, it is indented.
            ("```sh", None) => open = Some((line.len() - text.len(), String::new())),
            ("```", Some((_, block))) => {
                blocks.entry(heading.clone()).or_default().push(std::mem::take(block));
                open = None;
            }
            (_, Some((indent, block))) => {
                block.push_str(line.get(*indent..).unwrap_or_default());
                block.push('\n');
            }
            (text, None) => {
                if let Some(title) = text.strip_prefix('#') {
                    title.trim_start_matches('#').trim().clone_into(&mut heading);
                }
            }
        }
    }
    blocks
}

/// A person with the document in hand.
struct Reader<'a> {
    cluster: &'a Cluster,
    blocks: BTreeMap<String, Vec<String>>,
    /// The sections that are done.
    followed: BTreeSet<String>,
    /// The person's directory: a checkout, and a safe place.
    directory: TempDir,
}

impl<'a> Reader<'a> {
    fn of(document: &str, cluster: &'a Cluster) -> Self {
        let document = std::fs::read_to_string(Path::new("../../docs").join(document)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a-safe-place")).unwrap();
        let charts = std::fs::canonicalize("../../charts").unwrap();
        std::os::unix::fs::symlink(charts, directory.path().join("charts")).unwrap();
        Self { cluster, blocks: blocks(&document), followed: BTreeSet::new(), directory }
    }
}

impl Reader<'_> {
    /// Types all commands of a section.
    async fn follow(&mut self, section: &str) {
        self.skip(section);
        for block in &self.blocks[section] {
            self.types(block).await;
        }
    }

    /// Sees that all works.
    async fn healthy(&self) {
        self.types("command smc check --wait 2m").await;
    }

    /// Does without a section.
    fn skip(&mut self, section: &str) {
        assert!(self.blocks.contains_key(section), "no commands under {section:?}");
        self.followed.insert(section.to_owned());
    }

    /// Types commands into a shell. Each has to succeed, or to say by its code that something is left to be
    /// done.
    async fn types(&self, commands: &str) {
        let commands = &format!("smc() {{ command smc \"$@\" || [ $? = 79 ]; }}\n{commands}");
        let directory = |program: std::path::PathBuf| program.parent().unwrap().display().to_string();
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
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = timeout(PATIENCE, shell.output()).await.expect("the commands end").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (output, errors) = (text(&ended.stdout), text(&ended.stderr));
        assert!(ended.status.success(), "{commands}\n{output}\n{errors}");
    }
}

/// One test, since its parts are steps in one cluster.
#[tokio::test]
async fn the_commands_of_the_installation_page_work_as_they_are_typed() {
    let Some(programs) = programs() else { return };
    let images = shared::images().into_iter().map(|image| {
        let name = match image.name.as_str() {
            SMC_IMAGE => "registry.example/smc:0.1.0",
            ENVOY_IMAGE => "docker.io/envoyproxy/envoy:v1.40.0",
            other => other,
        };
        Image { name: name.to_owned(), ..image }
    });
    let options = ClusterOptions::new(programs, images.collect::<Vec<Image>>());
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let mut reader = Reader::of("install.md", &cluster);
    cluster.apply(APPLICATION).await.unwrap();

    // It builds the image, which takes an hour, and the cluster has it.
    reader.skip("The image");
    reader.follow("With the program smc").await;
    reader.types("kubectl rollout status deployment -n bookstore --timeout=2m; sleep 5").await;
    reader.follow("Allow traffic first, then close").await;
    reader.types("grep -q 'kind: TrafficTarget' policy.yaml").await;
    reader.follow("More controllers, fewer controllers").await;
    reader.healthy().await;
    reader.follow("Key-encryption key").await;
    reader.follow("Take a namespace out of the mesh").await;
    reader.follow("Upgrade and uninstall").await;
    reader.follow("For good").await;
    reader.follow("With kubectl, or GitOps").await;
    reader.healthy().await;
    reader.types("smc uninstall").await;
    reader.follow("For good").await;
    reader.follow("With helm").await;
    reader.follow("From helm to smc").await;
    reader.healthy().await;
    reader.follow("From smc to helm").await;
    reader.healthy().await;
    let left: Vec<_> = reader.blocks.keys().filter(|section| !reader.followed.contains(*section)).collect();
    assert!(left.is_empty(), "commands that are not run, under {left:?}");
    cluster.stop().await.unwrap();
}
