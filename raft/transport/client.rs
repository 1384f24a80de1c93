//! Requests to other replicas.
//!
//! Owns one lazy connection for each purpose and peer, so that a heartbeat never waits behind a snapshot.
//! Every call has a deadline: a suspended peer neither answers nor refuses.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use openraft::alias::SnapshotOf;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};
use openraft::{OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2, alias::VoteOf};
use smc_host::network::{Io, Network};
use smc_proto::peer::v1 as peer;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_proto::raft::v1 as pb;
use smc_proto::raft::v1::raft_client::RaftClient;
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

use super::MAX_MESSAGE;
use super::route::named_group;
use super::tls::{ReplicaTls, server_name};
use crate::check_quorum::CheckQuorum;
use crate::peer_rpc::AskError;
use crate::storage::group_id::GroupId;
use crate::storage::identity::Identity;
use crate::storage::snapshots::StoredSnapshot;
use crate::types::{Replica, TypeConfig};
use crate::wire::{self, Malformed, Wire};

/// From the first packet to the end of the handshake, within one network.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// The longest that a receiver of a snapshot may take over one chunk, or over installing it all.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(30);

/// How long another replica may take to answer a small request.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// How long a membership change may take: a new member has to catch up.
pub(crate) const CHANGE_PATIENCE: Duration = Duration::from_mins(6);

/// Chunks in flight: one is sent while the next is read.
const CHUNKS_AHEAD: usize = 2;

/// Makes connections to other replicas. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) network: Arc<dyn Network>,
    pub(crate) tls: ReplicaTls,
    pub(crate) identity: Identity,
    pub(crate) check_quorum: CheckQuorum,
    /// Where connections run, also those that a task elsewhere asks for: the runtime that the replica was
    /// started on.
    pub(crate) runtime: Handle,
}

/// Why a request to another replica failed.
#[derive(Debug, Clone, Error)]
pub(crate) enum CallError {
    /// Neither this replica nor the one that was asked leads.
    #[error("the replica is not the leader")]
    NotLeader,
    /// The replica could not be reached, or failed.
    #[error("the replica refused, or could not be reached: {0}")]
    Failed(String),
    /// The replica did not answer in time.
    #[error("the replica did not answer within {0:?}")]
    Timeout(Duration),
    /// The replica refused; a retry will not help.
    #[error("{0}")]
    Refused(String),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::FailedPrecondition | Code::InvalidArgument => Self::Refused(status.message().to_owned()),
            _ => Self::Failed(status.message().to_owned()),
        }
    }
}

impl Dialer {
    /// A connection to `target`, made on first use and again after it was lost.
    pub(crate) fn peer(&self, target: ReplicaId, replica: &Replica) -> Peer {
        let (dialer, address) = (self.clone(), replica.address.clone());
        let connector = tower::service_fn(move |_: Uri| {
            let (dialer, address) = (dialer.clone(), address.clone());
            async move { dialer.connect(target, address).await.map(TokioIo::new) }
        });
        // The channel's task starts here, and may outlive a caller on a runtime that is busy.
        let _entered = self.runtime.enter();
        // Not the address, which the connector has, nor the name that TLS verifies.
        let endpoint = Endpoint::from_static("http://replica.smc.internal")
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(false);
        let client = RaftClient::new(endpoint.connect_with_connector_lazy(connector))
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let (identity, check_quorum) = (self.identity.clone(), self.check_quorum.clone());
        Peer { identity, check_quorum, target, incarnation: replica.incarnation, client }
    }

    async fn connect(
        &self,
        target: ReplicaId,
        address: String,
    ) -> io::Result<tokio_rustls::client::TlsStream<Box<dyn Io>>> {
        let name = server_name(target).map_err(io::Error::other)?;
        let connecting = async {
            let socket = self.network.dial(address).await?;
            TlsConnector::from(Arc::clone(&self.tls.client)).connect(name, socket).await
        };
        timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

impl RaftNetworkFactory<TypeConfig> for Dialer {
    type Network = Peer;

    async fn new_client(&mut self, target: ReplicaId, replica: &Replica) -> Peer {
        self.peer(target, replica)
    }
}

/// Another replica. Cheap to clone; clones share its connection.
#[derive(Clone)]
pub(crate) struct Peer {
    identity: Identity,
    check_quorum: CheckQuorum,
    target: ReplicaId,
    incarnation: u64,
    client: RaftClient<Channel>,
}

impl Peer {
    fn route(&self) -> pb::Route {
        pb::Route {
            group: self.identity.group().map(GroupId::bytes).unwrap_or_default(),
            from: self.identity.replica.0,
            to: self.target.0,
            to_incarnation: self.incarnation,
        }
    }

    /// The incarnation that the peer is known to have; 0 if it is not known.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Appends a proposal, if the peer is the leader. Returns when the leader has applied it.
    pub(crate) async fn propose(&self, proposal: Bytes, limit: Duration) -> Result<(), CallError> {
        let request = pb::ProposeRequest { route: Some(self.route()), proposal };
        let mut client = self.client.clone();
        self.within(limit, client.propose(request)).await.map(drop)
    }

    /// The read index: what must be applied here before a read, if the peer is the leader.
    pub(crate) async fn read_index(&self, limit: Duration) -> Result<u64, CallError> {
        let mut client = self.client.clone();
        let request = pb::ReadIndexRequest { route: Some(self.route()) };
        Ok(self.within(limit, client.read_index(request)).await?.index)
    }

    /// The index of the last entry of the peer's log.
    pub(crate) async fn last_entry(&self, limit: Duration) -> Result<u64, CallError> {
        let mut client = self.client.clone();
        let request = pb::LastEntryRequest { route: Some(self.route()) };
        Ok(self.within(limit, client.last_entry(request)).await?.index)
    }

    /// The peer's identity, and its group as it sees it.
    pub(crate) async fn describe(&self, limit: Duration) -> Result<pb::DescribeResponse, CallError> {
        let mut client = self.client.clone();
        self.within(limit, client.describe(pb::DescribeRequest { route: Some(self.route()) })).await
    }

    /// The members as the group has committed them, if the peer is the leader.
    pub(crate) async fn members(&self, limit: Duration) -> Result<pb::Membership, CallError> {
        let mut client = self.client.clone();
        let members =
            self.within(limit, client.members(pb::MembersRequest { route: Some(self.route()) })).await?;
        members.membership.ok_or_else(|| CallError::Failed("the answer names no members".to_owned()))
    }

    /// Changes the membership, if the peer is the leader.
    pub(crate) async fn change_membership(
        &self,
        change: pb::change_membership_request::Change,
        limit: Duration,
    ) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let request = pb::ChangeMembershipRequest { route: Some(self.route()), change: Some(change) };
        self.within(limit, client.change_membership(request)).await.map(drop)
    }

    /// Asks the peer's controller.
    pub(crate) async fn ask(&self, question: Question) -> Result<Answer, AskError> {
        let question = Some(peer::Question { question: Some(question) });
        let request = pb::AskRequest { route: Some(self.route()), question };
        let answer = self.client.clone().ask(request).await?.into_inner().answer;
        answer.and_then(|answer| answer.answer).ok_or(AskError::Unknown)
    }

    async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CallError> {
        match timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.refused(status).into()),
            Err(_) => Err(CallError::Timeout(limit)),
        }
    }

    /// Notes what a refusal says of the group of the replica that refuses.
    fn refused(&self, status: Status) -> Status {
        if let Some(group) = named_group(&status) {
            self.identity.met(group);
        }
        status
    }

    /// Makes one of openraft's calls, with its deadline and errors.
    async fn call<T>(
        &self,
        action: RPCTypes,
        option: &RPCOption,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RPCError<TypeConfig>> {
        let limit = option.hard_ttl();
        match timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(Unreachable::new(&self.refused(status)).into()),
            Err(_) => {
                let (id, target) = (self.identity.replica, self.target);
                Err(Timeout { action, id, target, timeout: limit }.into())
            }
        }
    }
}

fn malformed(error: Malformed) -> RPCError<TypeConfig> {
    NetworkError::new(&error).into()
}

fn vote_request(route: pb::Route, rpc: &VoteRequest<TypeConfig>) -> pb::VoteRequest {
    pb::VoteRequest {
        route: Some(route),
        vote: Some(rpc.vote.to_wire()),
        last: wire::write(rpc.last_log_id.as_ref()),
        leadership_transfer: rpc.leadership_transfer,
    }
}

fn vote_response(answer: pb::VoteResponse) -> Result<VoteResponse<TypeConfig>, Malformed> {
    Ok(VoteResponse::new(wire::vote(answer.vote)?, wire::read(answer.last)?, answer.granted))
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = StoredSnapshot;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        use pb::append_entries_response::Result as Pb;

        if self.check_quorum.is_lost(rpc.vote) {
            return Err(Unreachable::from_string(
                "no quorum has answered this leader for long, so it stops sending",
            )
            .into());
        }
        let request = pb::AppendEntriesRequest {
            route: Some(self.route()),
            vote: Some(rpc.vote.to_wire()),
            previous: wire::write(rpc.prev_log_id.as_ref()),
            entries: rpc.entries.iter().map(Wire::to_wire).collect(),
            committed: wire::write(rpc.leader_commit.as_ref()),
        };
        let mut client = self.client.clone();
        let answer = self.call(RPCTypes::AppendEntries, &option, client.append_entries(request)).await?;
        match answer.result.ok_or(Malformed("the answer is empty")).map_err(malformed)? {
            Pb::Success(_) => Ok(AppendEntriesResponse::Success),
            Pb::Partial(partial) => {
                Ok(AppendEntriesResponse::PartialSuccess(wire::read(partial.matching).map_err(malformed)?))
            }
            Pb::Conflict(_) => Ok(AppendEntriesResponse::Conflict),
            Pb::HigherVote(vote) => {
                Ok(AppendEntriesResponse::HigherVote(wire::vote(Some(vote)).map_err(malformed)?))
            }
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let mut client = self.client.clone();
        let request = vote_request(self.route(), &rpc);
        vote_response(self.call(RPCTypes::Vote, &option, client.vote(request)).await?).map_err(malformed)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let mut client = self.client.clone();
        let request = vote_request(self.route(), &rpc);
        vote_response(self.call(RPCTypes::Vote, &option, client.pre_vote(request)).await?).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<TypeConfig>,
        snapshot: SnapshotOf<TypeConfig, StoredSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let offer = pb::SnapshotOffer {
            route: Some(self.route()),
            vote: Some(vote.to_wire()),
            header: Some(snapshot.snapshot.header.clone()),
        };
        let sending = send_snapshot(self.client.clone(), offer, &snapshot.snapshot);
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = sending => {
                let vote = sent.map_err(|error| NetworkError::new(&error))?;
                Ok(SnapshotResponse::new(vote))
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<openraft::raft::TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = pb::TransferLeaderRequest {
            route: Some(self.route()),
            from: Some(req.from_leader().to_wire()),
            to: req.to_node_id().0,
            last: wire::write(req.last_log_id()),
        };
        let mut client = self.client.clone();
        let answer = self.call(RPCTypes::TransferLeader, &option, client.transfer_leader(request)).await?;
        if answer.refused.is_empty() {
            return Ok(Ok(()));
        }
        Err(NetworkError::from_string(format!("the replica does not take over: {}", answer.refused)).into())
    }
}

/// Why a snapshot was not transferred. The next attempt resumes where this one ended.
#[derive(Debug, Error)]
enum SendError {
    #[error("the receiver refused the snapshot, or the connection was lost: {0}")]
    Refused(String),
    #[error("the receiver made no progress for {} s", SNAPSHOT_PATIENCE.as_secs())]
    Stalled,
    #[error("a newer snapshot replaced this one")]
    Replaced,
    #[error("cannot read the snapshot")]
    Read(#[from] io::Error),
    #[error("the receiver's answer is malformed")]
    Answer(#[from] Malformed),
}

impl From<Status> for SendError {
    fn from(status: Status) -> Self {
        Self::Refused(status.message().to_owned())
    }
}

async fn with_patience<T>(step: impl Future<Output = T>) -> Result<T, SendError> {
    timeout(SNAPSHOT_PATIENCE, step).await.map_err(|_| SendError::Stalled)
}

async fn send_snapshot(
    mut client: RaftClient<Channel>,
    offer: pb::SnapshotOffer,
    snapshot: &StoredSnapshot,
) -> Result<VoteOf<TypeConfig>, SendError> {
    use pb::snapshot_answer::Answer;
    use pb::snapshot_part::Part;

    let (parts, outgoing) = mpsc::channel(CHUNKS_AHEAD);
    let part = |part| pb::SnapshotPart { part: Some(part) };
    let closed = |_| SendError::Refused("it closed the stream".to_owned());
    parts.send(part(Part::Offer(offer))).await.map_err(closed)?;
    let answers = with_patience(client.install_snapshot(ReceiverStream::new(outgoing))).await??;
    let mut answers = answers.into_inner();
    let ended = || SendError::Refused("it ended the stream".to_owned());
    let first = with_patience(answers.message()).await??.ok_or_else(ended)?;
    let from = match first.answer.ok_or(Malformed("the answer is empty"))? {
        Answer::FromChunk(from) => from,
        Answer::Vote(vote) => return Ok(wire::vote(Some(vote))?),
    };
    for number in from..snapshot.header.chunks {
        let chunk = snapshot.chunk(number)?.ok_or(SendError::Replaced)?;
        tokio::select! {
            sent = with_patience(parts.send(part(Part::Chunk(chunk)))) => sent?.map_err(closed)?,
            // An early answer is a refusal, or the vote of a newer leader.
            early = answers.message() => return last_answer(early?.ok_or_else(ended)?),
        }
    }
    drop(parts);
    last_answer(with_patience(answers.message()).await??.ok_or_else(ended)?)
}

fn last_answer(answer: pb::SnapshotAnswer) -> Result<VoteOf<TypeConfig>, SendError> {
    match answer.answer {
        Some(pb::snapshot_answer::Answer::Vote(vote)) => Ok(wire::vote(Some(vote))?),
        _ => Err(Malformed("the last answer is no vote").into()),
    }
}
