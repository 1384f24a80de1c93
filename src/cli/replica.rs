//! The flags of `smc controller` that say which replica it is, and how it reaches the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use smc_raft::{Connections, Group, GroupSecret, ReplicaId, Settings, Storage, Timing};
use thiserror::Error;

use crate::ca::seal::KeyEncryption;
use crate::env::{Env, NoEntropy};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct ReplicaArgs {
    /// Which replica this is: its ordinal, which it keeps for good
    #[arg(long, value_name = "N", default_value_t = ReplicaId(0))]
    replica_id: ReplicaId,
    /// Where the other replicas connect to; a replica that is alone needs none
    #[arg(long, value_name = "ADDR", requires = "founders")]
    raft_listen: Option<SocketAddr>,
    /// Where they are told to connect [default: this replica's address among the founders, or --raft-listen]
    #[arg(long, value_name = "HOST:PORT", requires = "raft_listen")]
    raft_address: Option<String>,
    /// A replica that founds the group, once for each, this one included; a newcomer asks them to be let in
    ///
    /// When all founders can be reached and none belongs to a group, the one with the lowest id founds it. A replica
    /// that comes back without its data joins the group that the others are in.
    #[arg(long = "founder", value_name = "N=HOST:PORT", id = "founders", requires = "raft_listen")]
    founders: Vec<Founder>,
}

/// `N=HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Founder {
    id: ReplicaId,
    address: String,
}

/// What is wrong with the flags.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum ReplicaArgsError {
    #[error("{0:?} is not of the form N=HOST:PORT")]
    NotAFounder(String),
    #[error("replica {0} is named twice among the founders")]
    Twice(ReplicaId),
    #[error("the others need an address of this replica: give --raft-address")]
    NoAddress,
}

/// The port of the group cannot be taken.
#[derive(Debug, Error)]
#[error("cannot listen on {address} for other replicas")]
struct CannotListen {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

impl FromStr for Founder {
    type Err = ReplicaArgsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (id, address) = text.split_once('=')?;
            let (host, port) = address.rsplit_once(':')?;
            let valid = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0);
            valid.then_some(Self { id: id.parse().ok()?, address: address.to_owned() })
        };
        parse().ok_or_else(|| ReplicaArgsError::NotAFounder(text.to_owned()))
    }
}

/// What numbers of sessions, disks and groups are drawn from: the system, not a seed, since they have to differ from
/// those of the last start. Where randomness works once, it works.
pub(super) fn random_numbers(env: &Env) -> Result<impl Fn() -> u64 + Send + Sync + use<>, NoEntropy> {
    env.random_u64()?;
    let entropy = env.clone();
    Ok(move || entropy.random_u64().unwrap_or_default())
}

impl ReplicaArgs {
    /// Starts the replica on its disk.
    pub(super) async fn start(
        self,
        storage: Storage,
        keys: &dyn KeyEncryption,
        env: &Env,
    ) -> Result<Group, Box<dyn std::error::Error + Send + Sync>> {
        let listen = self.raft_listen;
        let settings = Settings {
            other_secrets: keys.other_group_secrets(),
            founded_before: keys.founding_note()?,
            ..self.settings(keys.group_secret())?
        };
        let listener = match listen {
            None => None,
            Some(address) => {
                let listening = env.network.listen(address).await;
                Some(listening.map_err(|source| CannotListen { address, source })?)
            }
        };
        let draw = random_numbers(env)?;
        let connections = Connections { network: Arc::clone(&env.network), listener };
        Ok(Group::start(settings, storage, connections, Arc::new(draw)).await?)
    }

    fn settings(self, secret: GroupSecret) -> Result<Settings, ReplicaArgsError> {
        let Self { replica_id: replica, raft_listen, raft_address, founders: named } = self;
        let mut founders = BTreeMap::new();
        for Founder { id, address } in named {
            if founders.insert(id, address).is_some() {
                return Err(ReplicaArgsError::Twice(id));
            }
        }
        let address = match (raft_address, founders.get(&replica), raft_listen) {
            (Some(address), _, _) => address,
            (None, Some(address), _) => address.clone(),
            (None, None, Some(listen)) if !listen.ip().is_unspecified() => listen.to_string(),
            (None, None, Some(_)) => return Err(ReplicaArgsError::NoAddress),
            // Alone: nobody asks.
            (None, None, None) => "localhost:0".to_owned(),
        };
        if founders.is_empty() {
            founders.insert(replica, address.clone());
        }
        Ok(Settings {
            replica,
            address,
            founders,
            timing: Timing::default(),
            secret,
            founded_before: None,
            other_secrets: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use zeroize::Zeroizing;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        replica: ReplicaArgs,
    }

    fn settings(line: &str) -> Result<Settings, String> {
        let words = std::iter::once("smc").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let secret = GroupSecret::new(Zeroizing::new([0; 32]));
        cli.replica.settings(secret).map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags_it_is_a_replica_alone() {
        let alone = settings("").unwrap();
        assert_eq!(alone.replica, ReplicaId(0));
        assert_eq!(alone.founders.len(), 1);
    }

    #[test]
    fn a_founder_is_where_the_founders_say() {
        let line =
            "--replica-id 1 --raft-listen 0.0.0.0:15129 --founder 0=smc-0:15129 --founder 1=smc-1:15129";
        let founder = settings(line).unwrap();
        assert_eq!(founder.address, "smc-1:15129");
        assert_eq!(founder.founders[&ReplicaId(0)], "smc-0:15129");
        let newcomer = "--replica-id 3 --raft-listen 10.0.0.3:15129 --founder 0=smc-0:15129";
        assert_eq!(settings(newcomer).unwrap().address, "10.0.0.3:15129");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (line, reason) in [
            ("--raft-listen 0.0.0.0:1", "--founder"),
            ("--founder 0=a:1", "--raft-listen"),
            ("--replica-id 2 --raft-listen 0.0.0.0:1 --founder 0=a:1", "--raft-address"),
            ("--raft-listen 0.0.0.0:1 --founder 0=a:1 --founder 0=b:1", "named twice"),
            ("--raft-listen 0.0.0.0:1 --founder a", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --founder 0=:1", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --founder 0=a:0", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --founder x=a:1", "N=HOST:PORT"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
