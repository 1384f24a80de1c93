//! The flags of `smc controller` that say which replica it is, and how it reaches the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use smc_host::env::Env;
use smc_issuing::seal::{KeyEncryption, missing_key};
use smc_kubernetes::stateful_set::Placement;
use smc_raft::{Connections, FoundingRegister, Group, GroupSecret, ReplicatedLedger, Settings, Storage};
use smc_types::host_port::{HostPort, ReplicaAddress};
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::runtime::Handle;
use tracing::error;

use super::stateful_set::InStatefulSet;

/// The flags of one replica.
#[derive(Debug, Args)]
pub(super) struct ReplicaArgs {
    /// Which replica this is: its ordinal, which never changes
    #[arg(long, value_name = "N", default_value_t = ReplicaId(0))]
    replica_id: ReplicaId,
    /// The address to listen on for other replicas; a replica that is alone needs none
    #[arg(long, value_name = "ADDR", requires = "initial_members")]
    raft_listen: Option<SocketAddr>,
    /// The address that other replicas connect to [default: its --initial-member, or --raft-listen]
    #[arg(long, value_name = "HOST:PORT", requires = "raft_listen")]
    raft_address: Option<HostPort>,
    /// An initial member of the group, once for each, this one included; a later replica asks them to join
    ///
    /// When all initial members can be reached and none belongs to a group, the one with the lowest id founds
    /// it. A replica that returns without its data joins the group of the others.
    #[arg(
        long = "initial-member",
        alias = "founder",
        value_name = "N=HOST:PORT",
        id = "initial_members",
        requires = "raft_listen"
    )]
    initial_members: Vec<ReplicaAddress>,
    /// Others that may belong to the group.
    #[arg(skip)]
    possible_members: Vec<ReplicaAddress>,
    /// The record of the founding.
    #[arg(skip)]
    founding: Option<Arc<dyn FoundingRegister>>,
}

/// The address of a replica that is alone: it has no peers to reach it.
pub(super) const NO_PEERS: &str = "localhost:0";

/// What is wrong with the flags.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum ReplicaArgsError {
    #[error("replica {0} is named twice as --initial-member")]
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

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl ReplicaArgs {
    /// The replica of a pod of a StatefulSet: the first one founds the group, and all ask all.
    pub(super) fn of_pod(pod: &InStatefulSet, founding: Arc<dyn FoundingRegister>) -> Self {
        let Placement { replica, raft, .. } = &pod.placement;
        let address = |(replica, address): (&ReplicaId, &HostPort)| ReplicaAddress {
            replica: *replica,
            address: address.clone(),
        };
        Self {
            replica_id: *replica,
            raft_listen: Some(pod.raft_listen),
            raft_address: raft.get(replica).cloned(),
            initial_members: raft.iter().take(1).map(address).collect(),
            possible_members: raft.iter().map(address).collect(),
            founding: Some(founding),
        }
    }

    /// Starts the replica on its disk, all of it on the runtime `raft`.
    pub(super) async fn start_on(
        self,
        raft: &Handle,
        storage: Storage,
        keys: Arc<dyn KeyEncryption>,
        env: Env,
    ) -> Result<Group, Failure> {
        raft.spawn(async move { self.start(storage, &*keys, &env).await }).await?
    }

    async fn start(self, storage: Storage, keys: &dyn KeyEncryption, env: &Env) -> Result<Group, Failure> {
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
        let (network, clock) = (Arc::clone(&env.network), Arc::clone(&env.clock));
        let connections = Connections { network, listener, clock };
        let group = Group::start(settings, storage, connections, Arc::clone(&env.entropy)).await?;
        if let Some(sealed_with) = group.local().read(|ledger| missing_key(ledger, keys)) {
            // No error: the group may have another key by now, and this disk has only not heard of it yet.
            let at_hand = keys.id();
            error!(
                sealed_with,
                at_hand,
                "the ledger is sealed with another key-encryption key than the configured one: unless the group has \
                 changed its key, restore the former one; the other replicas refuse this one until then"
            );
        }
        Ok(group)
    }

    fn settings(self, secret: GroupSecret) -> Result<Settings, ReplicaArgsError> {
        let Self {
            replica_id: replica,
            raft_listen,
            raft_address,
            initial_members: named,
            possible_members,
            founding,
        } = self;
        let mut initial_members = BTreeMap::new();
        for ReplicaAddress { replica: id, address } in named {
            if initial_members.insert(id, address.to_string()).is_some() {
                return Err(ReplicaArgsError::Twice(id));
            }
        }
        let address = match (raft_address, initial_members.get(&replica), raft_listen) {
            (Some(address), _, _) => address.to_string(),
            (None, Some(address), _) => address.clone(),
            (None, None, Some(listen)) if !listen.ip().is_unspecified() => listen.to_string(),
            (None, None, Some(_)) => return Err(ReplicaArgsError::NoAddress),
            (None, None, None) => NO_PEERS.to_owned(),
        };
        let mut settings = Settings::new(replica, address, secret);
        if !initial_members.is_empty() {
            settings.initial_members = initial_members;
        }
        let possible = possible_members.into_iter();
        settings.possible_members =
            possible.map(|member| (member.replica, member.address.to_string())).collect();
        settings.founding = founding;
        Ok(settings)
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
        assert_eq!(alone.initial_members.len(), 1);
    }

    #[test]
    fn an_initial_member_has_the_address_in_the_list() {
        // The flag, and its former name.
        for flag in ["--initial-member", "--founder"] {
            let line = format!(
                "--replica-id 1 --raft-listen 0.0.0.0:15129 {flag} 0=smc-0:15129 {flag} 1=smc-1:15129"
            );
            let initial = settings(&line).unwrap();
            assert_eq!(initial.address, "smc-1:15129");
            assert_eq!(initial.initial_members[&ReplicaId(0)], "smc-0:15129");
            let later = format!("--replica-id 3 --raft-listen 10.0.0.3:15129 {flag} 0=smc-0:15129");
            assert_eq!(settings(&later).unwrap().address, "10.0.0.3:15129");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (line, reason) in [
            ("--raft-listen 0.0.0.0:1", "--initial-member"),
            ("--initial-member 0=a:1", "--raft-listen"),
            ("--replica-id 2 --raft-listen 0.0.0.0:1 --initial-member 0=a:1", "--raft-address"),
            ("--raft-listen 0.0.0.0:1 --initial-member 0=a:1 --initial-member 0=b:1", "named twice"),
            ("--raft-listen 0.0.0.0:1 --initial-member a", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --initial-member 0=:1", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --initial-member 0=a:0", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --initial-member x=a:1", "N=HOST:PORT"),
            ("--raft-listen 0.0.0.0:1 --initial-member 0=:::1", "an IPv6 address needs brackets"),
            ("--raft-listen 0.0.0.0:1 --raft-address a --initial-member 0=a:1", "is not HOST:PORT"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
