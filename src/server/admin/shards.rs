//! The shards of all replicas: what each should serve, and what it says that it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use smc_authority::ledger::{ReplicaPhase, ReplicaRecord};
use smc_proto::admin::v1 as pb;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::peer::v1::{ShardsAnswer, ShardsQuestion};
use smc_raft::{AskError, Group};
use smc_types::ids::{ProxyName, ReplicaId};

use crate::shards::Shards;

/// How long a replica may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Asks all members, and divides `proxies` among the ready ones. O(proxies).
pub(super) async fn report(group: &Group, shards: &Shards, proxies: Vec<ProxyName>) -> pb::GetShardsResponse {
    let placement = shards.placement();
    let members = group.status().members.into_iter().map(|member| member.id);
    let replicas: BTreeSet<_> = members.chain(placement.phases.keys().copied()).collect();
    let asked = replicas.iter().map(async |replica| {
        let answer = group.ask(*replica, Question::Shards(ShardsQuestion {}), ANSWER_LIMIT).await;
        (*replica, answer)
    });
    let answers = join_all(asked).await;
    let mut owned: BTreeMap<Option<ReplicaId>, u64> = BTreeMap::new();
    for proxy in proxies {
        *owned.entry(shards.owner_in(&placement, proxy.uuid)).or_default() += 1;
    }
    let count = |owner| owned.get(&owner).copied().unwrap_or_default();
    let shard = |(replica, answer): (ReplicaId, Result<Answer, AskError>)| {
        shard(replica, placement.phases.get(&replica), count(Some(replica)), answer)
    };
    pb::GetShardsResponse {
        epoch: placement.epoch,
        shards: answers.into_iter().map(shard).collect(),
        unowned: count(None),
    }
}

fn shard(
    replica: ReplicaId,
    record: Option<&ReplicaRecord>,
    owned: u64,
    answer: Result<Answer, AskError>,
) -> pb::Shard {
    let (answer, problem) = match answer {
        Ok(Answer::Shards(answer)) => (answer, String::new()),
        Ok(_) => (ShardsAnswer::default(), "it answered another question".to_owned()),
        Err(error) => (ShardsAnswer::default(), error.to_string()),
    };
    let elsewhere = answer.connected.iter().filter(|(owner, _)| **owner != replica.0);
    pb::Shard {
        replica: replica.0,
        phase: record.map_or(pb::ReplicaPhase::Unspecified, |record| phase(record.phase)).into(),
        since: record.map_or(0, |record| record.since.0),
        owned,
        problem,
        seen_epoch: answer.epoch,
        connected: answer.connected.values().sum(),
        to_move: elsewhere.map(|(_, count)| count).sum(),
        moves_in_flight: answer.moves_in_flight,
        moved: answer.moved,
        refused: answer.refused,
    }
}

fn phase(phase: ReplicaPhase) -> pb::ReplicaPhase {
    match phase {
        ReplicaPhase::Joining => pb::ReplicaPhase::Joining,
        ReplicaPhase::Ready => pb::ReplicaPhase::Ready,
        ReplicaPhase::Draining => pb::ReplicaPhase::Draining,
        ReplicaPhase::Down => pb::ReplicaPhase::Down,
    }
}

#[cfg(test)]
mod tests {
    use smc_types::time::Timestamp;

    use super::*;

    const ONE: ReplicaId = ReplicaId(1);

    #[test]
    fn what_another_should_serve_is_to_be_moved() {
        let record = ReplicaRecord { phase: ReplicaPhase::Ready, run: 7, since: Timestamp(5) };
        let answer =
            ShardsAnswer { epoch: 3, connected: [(0, 2), (1, 10), (2, 1)].into(), ..ShardsAnswer::default() };
        let shard = shard(ONE, Some(&record), 11, Ok(Answer::Shards(answer)));
        assert_eq!((shard.owned, shard.connected, shard.to_move), (11, 13, 3));
        assert_eq!((shard.phase(), shard.since, shard.seen_epoch), (pb::ReplicaPhase::Ready, 5, 3));
    }

    #[test]
    fn a_replica_without_an_answer_is_reported_with_the_reason() {
        let shard = shard(ONE, None, 0, Err(AskError::Timeout(ANSWER_LIMIT)));
        assert_eq!(shard.problem, "the replica did not answer within 2s");
        assert_eq!(shard.phase(), pb::ReplicaPhase::Unspecified);
    }
}
