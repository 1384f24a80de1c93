//! What follows a step: all is as meant again, or `smc check` names the command that mends it.
//!
//! Owns what a person does who looks at `smc check` and types what it says.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Walk;
use crate::program::Said;

/// How long a step may take to its end by itself: a controller ends within 75 seconds, and starts within ten.
const BY_ITSELF: Duration = Duration::from_mins(3);

/// How long a finding has to stand until its command is typed. In the first seconds after a step much is in
/// passing.
const STANDS: Duration = Duration::from_secs(20);

/// How often a command is typed, where its finding comes back: a new claim may get another volume that has
/// been used.
const AGAIN: usize = 3;

const LOOK: Duration = Duration::from_secs(2);

impl Walk<'_> {
    /// Waits until all is as meant, and types what `smc check` says meanwhile. Returns what it typed.
    pub(super) async fn settle(&mut self) -> Result<Vec<String>, String> {
        let (mut since, mut finding) = (Instant::now(), None);
        let mut started = Instant::now();
        let mut typed: Vec<String> = Vec::new();
        loop {
            let check = self.smc.run(&["check"]).await;
            let said = format!("{}{}", check.output, check.errors);
            let connected = said.contains("√ their sidecars are connected");
            if check.code == Some(0) && connected && said.contains("√ every controller votes") {
                return self.as_chosen().await.map(|()| typed);
            }
            let command = mending(&said);
            if command != finding {
                (finding, since) = (command, Instant::now());
            }
            if let Some(command) = finding.clone().filter(|_| since.elapsed() >= STANDS)
                && typed.iter().filter(|before| **before == command).count() < AGAIN
            {
                eprintln!("  {command}");
                self.types(&command).await?;
                typed.push(command);
                (since, started) = (Instant::now(), Instant::now());
            }
            if started.elapsed() >= BY_ITSELF {
                return Err(said);
            }
            sleep(LOOK).await;
        }
    }

    /// Whether the controllers are as many as were chosen, with the images that were.
    async fn as_chosen(&self) -> Result<(), String> {
        let chosen = &self.chosen;
        let fields = "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].args}";
        let set = self.kubectl(&["get", "statefulset", "smc-controller", "-o", fields]).await;
        let begins = set.starts_with(&format!("{} {} ", chosen.replicas, chosen.image));
        let envoy = set.contains(&format!("\"--envoy-image={}\"", chosen.envoy));
        if begins && envoy { Ok(()) } else { Err(format!("{chosen:?} was chosen, and there is {set}")) }
    }

    async fn types(&mut self, command: &str) -> Result<(), String> {
        let words: Vec<_> = command.split(' ').collect();
        let backup = self.backup();
        match words[..] {
            ["kubectl", ref command @ ..] => {
                let output = self.smc.cluster.kubectl(command).await.unwrap();
                assert!(output.success(), "{command:?}: {}", output.stderr);
                // As the finding says: fewer afterwards.
                let count = words.last().and_then(|last| last.strip_prefix("--replicas=")?.parse().ok());
                self.chosen.replicas = count.unwrap_or(self.chosen.replicas);
            }
            ["smc", "cluster", "recover"] => {
                done_or_needless(&self.smc.run(&["cluster", "recover", "--confirm"]).await)?;
            }
            ["smc", "cluster", "restore"] => {
                done_or_needless(&self.smc.run(&["cluster", "restore", &backup, "--confirm"]).await)?;
            }
            _ => return Err(format!("no such command: {command}")),
        }
        Ok(())
    }
}

/// On a busy machine controllers may come back in the moment in which the command is typed; it refuses then.
fn done_or_needless(said: &Said) -> Result<(), String> {
    let needless = ["has a leader", "the volumes of a majority"];
    let refused = needless.iter().any(|reason| said.errors.contains(reason));
    if said.code == Some(0) || refused { Ok(()) } else { Err(format!("{said:#?}")) }
}

/// The command that a check names.
fn mending(said: &str) -> Option<String> {
    let kubectl = ["kubectl scale statefulset", "kubectl delete -n"];
    if let Some(at) = kubectl.iter().find_map(|command| said.find(command)) {
        return said[at..].lines().next().map(str::to_owned);
    }
    let known = ["smc cluster recover", "smc cluster restore"];
    known.iter().find(|command| said.contains(**command)).map(|command| (*command).to_owned())
}

#[test]
fn a_command_is_found_in_a_check() {
    let command = "kubectl scale statefulset smc-controller -n smc-system --replicas=3";
    assert_eq!(mending(&format!("make them as many: {command}\n    see docs")).unwrap(), command);
    assert_eq!(mending("`smc cluster restore BACKUP` makes").unwrap(), "smc cluster restore");
    assert_eq!(mending("√"), None);
}
