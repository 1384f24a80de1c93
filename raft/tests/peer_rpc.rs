//! Questions between replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::peer::v1::{AcceptMovesQuestion, ProxyReportsQuestion, ShardsAnswer, ShardsQuestion};
use smc_types::ids::ReplicaId;

use super::replicas::{Cluster, eventually};
use crate::peer_rpc::{AskError, NotAnswered, PeerHandler};

const LIMIT: Duration = Duration::from_secs(5);

/// Answers with who asked, does not know about moves, and never answers about reports and sidecars.
struct Handler;

impl PeerHandler for Handler {
    fn answer(&self, from: ReplicaId, question: Question) -> BoxFuture<'static, Result<Answer, NotAnswered>> {
        async move {
            match question {
                Question::Shards(_) => {
                    let connected = BTreeMap::from([(from.0, 7)]);
                    Ok(Answer::Shards(ShardsAnswer { connected, ..ShardsAnswer::default() }))
                }
                Question::AcceptMoves(AcceptMovesQuestion { count: 0 }) => Err(NotAnswered::Busy),
                Question::AcceptMoves(_) => Err(NotAnswered::Unknown),
                Question::ProxyReports(_) | Question::Sidecars(_) | Question::Revision(_) => {
                    std::future::pending().await
                }
            }
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_answers_once_it_has_a_handler_and_says_why_it_does_not() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let shards = || Question::Shards(ShardsQuestion {});
    let early = cluster.group(0).ask(ReplicaId(1), shards(), LIMIT).await.unwrap_err();
    assert!(matches!(early, AskError::Unreachable(_)), "{early}");

    assert!(cluster.group(1).answer_with(Arc::new(Handler)));
    assert!(!cluster.group(1).answer_with(Arc::new(Handler)), "it is not replaced");
    for from in [0, 1, 2] {
        let answer = cluster.group(from).ask(ReplicaId(1), shards(), LIMIT).await.unwrap();
        let Answer::Shards(ShardsAnswer { connected, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(connected, BTreeMap::from([(from, 7)]), "the answer goes to who asked");
    }
    let moves = |count| Question::AcceptMoves(AcceptMovesQuestion { count });
    let ask = async |question, limit| cluster.group(2).ask(ReplicaId(1), question, limit).await;
    assert_eq!(ask(moves(0), LIMIT).await, Err(AskError::Busy));
    assert_eq!(ask(moves(1), LIMIT).await, Err(AskError::Unknown));
    let short = Duration::from_millis(50);
    assert_eq!(
        ask(Question::ProxyReports(ProxyReportsQuestion::default()), short).await,
        Err(AskError::Timeout(short))
    );
    let stranger = cluster.group(2).ask(ReplicaId(7), shards(), LIMIT).await;
    assert_eq!(stranger, Err(AskError::NotMember(ReplicaId(7))));

    cluster.crash(1).await;
    let gone = cluster.group(2).ask(ReplicaId(1), shards(), LIMIT).await.unwrap_err();
    assert!(matches!(gone, AskError::Unreachable(_) | AskError::Timeout(_)), "{gone}");
    cluster.start(1).await.answer_with(Arc::new(Handler));
    eventually("an answer after the restart", async || {
        cluster.group(2).ask(ReplicaId(1), shards(), LIMIT).await.ok().map(drop)
    })
    .await;
}
