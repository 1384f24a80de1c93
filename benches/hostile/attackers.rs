//! The hostile proxies, as a process of their own.

use std::process::Stdio;

use serde_json::Value;
use smc_benches::Result;
use smc_benches::controller::PATIENCE;
use smc_testkit::ads::Credentials;
use smc_testkit::hostile::{self, Done};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// What a hostile proxy was issued, and the controllers that it attacks.
pub(crate) struct Hostile {
    pub(crate) bootstrap: String,
    pub(crate) addresses: Vec<String>,
}

/// The process. Dropping it kills it.
pub(crate) struct Attackers(Child);

impl Attackers {
    /// Starts the attack.
    pub(crate) async fn start(hostile: &Hostile) -> Result<Self> {
        let mut child = Command::new("nice")
            .args(["-n", "19"])
            .arg(std::env::current_exe()?)
            .args(["--json", "--attack"])
            .args(&hostile.addresses)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.as_mut().ok_or("the attackers have no input")?;
        stdin.write_all(hostile.bootstrap.as_bytes()).await?;
        stdin.write_all(b"\0").await?;
        Ok(Self(child))
    }

    /// Ends the attack. Returns what it got done ([`Done::counts`]).
    pub(crate) async fn stop(mut self) -> Result<[u64; 3]> {
        drop(self.0.stdin.take());
        let mut stdout = self.0.stdout.take().ok_or("the attackers have no output")?;
        let mut counts = String::new();
        timeout(PATIENCE, stdout.read_to_string(&mut counts)).await??;
        Ok(serde_json::from_str(&counts)?)
    }
}

/// Attacks the controllers at `addresses` until the standard input ends. It begins with a bootstrap and a
/// NUL. Returns what it got done ([`Done::counts`]).
pub(crate) async fn attack(addresses: &[String]) -> Result<Value> {
    let mut stdin = tokio::io::stdin();
    let mut bootstrap = Vec::new();
    loop {
        match stdin.read_u8().await? {
            0 => break,
            byte => bootstrap.push(byte),
        }
    }
    let own = Credentials::read(&String::from_utf8(bootstrap)?).ok_or("not a bootstrap")?;
    let done = Done::default();
    let mut attackers = hostile::attack(addresses, &own, &done);
    stdin.read_to_end(&mut Vec::new()).await?;
    attackers.shutdown().await;
    Ok(serde_json::to_value(done.counts())?)
}
