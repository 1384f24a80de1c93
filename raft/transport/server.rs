//! Answers the requests of other replicas.
//!
//! Owns the step from a message to a call of openraft, after [`super::route`] has accepted it. Errors of
//! this replica are logged here, and only their occurrence is reported to the sender.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use openraft::ReadPolicy;
use openraft::alias::SnapshotOf;
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest};
use smc_authority::ledger::GENERATION;
use smc_host::env::Clock;
use smc_host::log_limit::LogLimit;
use smc_host::network::Listener;
use smc_proto::peer::v1 as peer;
use smc_proto::raft::v1 as pb;
use smc_proto::raft::v1::raft_server::{Raft, RaftServer};
use smc_types::ids::ReplicaId;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http;
use tonic::{Request, Response, Status, Streaming};
use tower::util::MapResponseLayer;
use tracing::{info, warn};

use super::MAX_MESSAGE;
use super::listener::{Peer, listen};
use super::route::{Misrouted, Receiver, Sender, name_group};
use super::tls::ReplicaTls;
use crate::majority_read;
use crate::membership::{self, ChangeError};
use crate::peer_rpc::{self, Answering, NotAnswered};
use crate::state::machine;
use crate::storage::group_id::GroupId;
use crate::storage::identity::Identity;
use crate::storage::snapshots::{ReceiveError, Receiving, Snapshots, StoredSnapshot};
use crate::types::{Entry, Proposal, TypeConfig};
use crate::wire::{self, Malformed, Wire, snapshot_meta};

/// How long the sender of a snapshot may take for its next chunk.
const CHUNK_PATIENCE: Duration = Duration::from_secs(30);

/// Concurrent requests of one connection. openraft has one per kind and peer; proposals come in batches.
const STREAMS: u32 = 64;

/// The gRPC service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) raft: machine::Raft,
    pub(crate) identity: Identity,
    pub(crate) snapshots: Snapshots,
    /// Locked while a snapshot is received: two at once would mix their chunks.
    pub(crate) receiving: Arc<Mutex<()>>,
    /// The clock that other replicas compare theirs with.
    pub(crate) clock: Arc<dyn Clock>,
    /// Answers what the controllers of other members ask.
    pub(crate) answering: Answering,
    /// Refused messages in the log: a replica with an outdated view of its group repeats them.
    refusals: Arc<LogLimit>,
}

/// Serves until `stopping`.
pub(crate) async fn serve(
    service: Service,
    listener: Box<dyn Listener>,
    tls: ReplicaTls,
    stopping: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let (connections, listening) = listen(listener, TlsAcceptor::from(tls.server), stopping.clone());
    let server = RaftServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let serving = tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .layer(MapResponseLayer::new(undated))
        .add_service(server)
        .serve_with_incoming_shutdown(connections, stopping.cancelled_owned());
    let (served, ()) = tokio::join!(serving, listening);
    served
}

/// Keeps hyper from dating a response by the system's clock: no replica reads the date, and a simulation
/// repeats its packets without it.
fn undated(mut response: http::Response<tonic::body::Body>) -> http::Response<tonic::body::Body> {
    response.headers_mut().insert(http::header::DATE, http::HeaderValue::from_static(""));
    response
}

impl Service {
    /// The service of one replica. `clock` is the one that other replicas compare theirs with.
    pub(crate) fn new(
        raft: machine::Raft,
        identity: Identity,
        snapshots: Snapshots,
        clock: Arc<dyn Clock>,
        answering: Answering,
    ) -> Self {
        let (receiving, refusals) = (Arc::default(), Arc::default());
        Self { raft, identity, snapshots, receiving, clock, answering, refusals }
    }

    fn refuse(&self, error: &Misrouted) -> Status {
        if let Some(messages) = self.refusals.note() {
            warn!(%error, messages, "refused messages of other replicas");
        }
        let mut refusal = Status::failed_precondition(error.to_string());
        match error {
            Misrouted::OtherGroup(theirs) => {
                self.identity.met(*theirs);
                name_group(&mut refusal, self.identity.group());
            }
            Misrouted::OtherIncarnation => self.identity.doubts().other_disk.notify_one(),
            _ => {}
        }
        refusal
    }

    fn receiver(&self) -> Receiver {
        let Identity { replica, incarnation, .. } = self.identity;
        Receiver { replica, incarnation, group: self.identity.group() }
    }

    /// Checks a message of Raft itself. The first one makes an empty replica a member of its group.
    async fn admit(&self, route: Option<&pb::Route>, peer: Option<ReplicaId>) -> Result<(), Status> {
        let group = self.receiver().raft(route, known(peer)?).map_err(|error| self.refuse(&error))?;
        self.adopt(group).await
    }

    async fn adopt(&self, group: GroupId) -> Result<(), Status> {
        match self.identity.adopt(group).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refuse(&Misrouted::OtherGroup(group))),
            Err(error) => Err(failed("join the group", &error)),
        }
    }

    fn admit_any(&self, route: Option<&pb::Route>, peer: Option<ReplicaId>) -> Result<Sender, Status> {
        self.receiver().any(route, known(peer)?).map_err(|error| self.refuse(&error))
    }

    /// Checks a message that only a member of the group may send.
    fn admit_member(&self, route: Option<&pb::Route>, peer: Option<ReplicaId>) -> Result<ReplicaId, Status> {
        let sender = self.admit_any(route, peer)?;
        sender.group.map(|_| sender.replica).ok_or_else(|| self.refuse(&Misrouted::NoGroup))
    }
}

fn peer_of<T>(request: &Request<T>) -> Option<ReplicaId> {
    request.extensions().get::<Peer>().map(|Peer(replica)| *replica)
}

fn known(peer: Option<ReplicaId>) -> Result<ReplicaId, Status> {
    peer.ok_or_else(|| Status::unauthenticated("the connection has no certificate"))
}

fn malformed(Malformed(what): Malformed) -> Status {
    Status::invalid_argument(what)
}

/// An error of this replica.
fn failed(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Status {
    warn!(error, "cannot {what}");
    Status::unavailable(format!("the replica cannot {what}"))
}

/// A request for the leader that reached another replica.
fn not_leader() -> Status {
    Status::unavailable("this replica is not the leader")
}

fn vote_request(request: &pb::VoteRequest) -> Result<VoteRequest<TypeConfig>, Malformed> {
    let mut rpc = VoteRequest::new(wire::vote(request.vote)?, wire::read(request.last)?);
    rpc.leadership_transfer = request.leadership_transfer;
    Ok(rpc)
}

fn vote_response(answer: &openraft::raft::VoteResponse<TypeConfig>) -> Response<pb::VoteResponse> {
    Response::new(pb::VoteResponse {
        vote: Some(answer.vote.to_wire()),
        granted: answer.vote_granted,
        last: wire::write(answer.last_log_id.as_ref()),
    })
}

#[tonic::async_trait]
impl Raft for Service {
    type InstallSnapshotStream = BoxStream<'static, Result<pb::SnapshotAnswer, Status>>;

    async fn append_entries(
        &self,
        request: Request<pb::AppendEntriesRequest>,
    ) -> Result<Response<pb::AppendEntriesResponse>, Status> {
        use pb::append_entries_response::Result as Pb;

        let peer = peer_of(&request);
        let request = request.into_inner();
        self.admit(request.route.as_ref(), peer).await?;
        let entries = request.entries.into_iter().map(Entry::from_wire).collect::<Result<Vec<_>, _>>();
        let rpc = AppendEntriesRequest {
            vote: wire::vote(request.vote).map_err(malformed)?,
            prev_log_id: wire::read(request.previous).map_err(malformed)?,
            entries: entries.map_err(malformed)?,
            leader_commit: wire::read(request.committed).map_err(malformed)?,
        };
        let answer = self.raft.append_entries(rpc).await.map_err(|error| failed("append entries", &error))?;
        let result = match answer {
            AppendEntriesResponse::Success => Pb::Success(pb::Success {}),
            AppendEntriesResponse::PartialSuccess(matching) => {
                Pb::Partial(pb::PartialSuccess { matching: wire::write(matching.as_ref()) })
            }
            AppendEntriesResponse::Conflict => Pb::Conflict(pb::Conflict {}),
            AppendEntriesResponse::HigherVote(vote) => Pb::HigherVote(vote.to_wire()),
        };
        Ok(Response::new(pb::AppendEntriesResponse { result: Some(result) }))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        self.admit(request.get_ref().route.as_ref(), peer_of(&request)).await?;
        let rpc = vote_request(request.get_ref()).map_err(malformed)?;
        self.raft.vote(rpc).await.map(|answer| vote_response(&answer)).map_err(|error| failed("vote", &error))
    }

    async fn pre_vote(
        &self,
        request: Request<pb::VoteRequest>,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        self.admit(request.get_ref().route.as_ref(), peer_of(&request)).await?;
        let rpc = vote_request(request.get_ref()).map_err(malformed)?;
        self.raft
            .pre_vote(rpc)
            .await
            .map(|answer| vote_response(&answer))
            .map_err(|error| failed("vote", &error))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        self.admit(request.get_ref().route.as_ref(), peer_of(&request)).await?;
        let request = request.into_inner();
        let from = wire::vote(request.from).map_err(malformed)?;
        let last = wire::read(request.last).map_err(malformed)?;
        let rpc = TransferLeaderRequest::new(from, ReplicaId(request.to), last);
        let answer = self.raft.handle_transfer_leader(rpc).await;
        let answer = answer.map_err(|error| failed("take over", &error))?;
        let refused = answer.err().map(|error| error.to_string()).unwrap_or_default();
        Ok(Response::new(pb::TransferLeaderResponse { refused }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotPart>>,
    ) -> Result<Response<Self::InstallSnapshotStream>, Status> {
        let peer = peer_of(&request);
        let mut parts = request.into_inner();
        let Some(pb::snapshot_part::Part::Offer(offer)) = next_part(&mut parts).await? else {
            return Err(Status::invalid_argument("a snapshot transfer begins with an offer"));
        };
        self.admit(offer.route.as_ref(), peer).await?;
        let lock = Arc::clone(&self.receiving).try_lock_owned();
        let lock = lock.map_err(|_| Status::unavailable("another snapshot is being received"))?;
        let vote = wire::vote(offer.vote).map_err(malformed)?;
        let header = offer.header.ok_or_else(|| Status::invalid_argument("the offer has no header"))?;
        let receiving = self.snapshots.receive(&header).map_err(not_received)?;
        info!(from = ?peer, bytes = header.bytes, resumed_at_chunk = receiving.next, "receiving a snapshot");
        let reception = Reception { service: self.clone(), parts, vote, receiving, _receiving_lock: lock };
        let first = pb::snapshot_answer::Answer::FromChunk(reception.receiving.next);
        let installed = async move { reception.install().await.map(pb::snapshot_answer::Answer::Vote) };
        let answers = stream::once(async move { Ok(first) })
            .chain(stream::once(installed))
            .map_ok(|answer| pb::SnapshotAnswer { answer: Some(answer) });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn propose(
        &self,
        request: Request<pb::ProposeRequest>,
    ) -> Result<Response<pb::ProposeResponse>, Status> {
        self.admit_member(request.get_ref().route.as_ref(), peer_of(&request))?;
        let proposal = Proposal(request.into_inner().proposal);
        match self.raft.client_write(proposal).await {
            Ok(_) => Ok(Response::new(pb::ProposeResponse {})),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Err(not_leader()),
            Err(error) => Err(failed("append a proposal", &error)),
        }
    }

    async fn read_index(
        &self,
        request: Request<pb::ReadIndexRequest>,
    ) -> Result<Response<pb::ReadIndexResponse>, Status> {
        self.admit_member(request.get_ref().route.as_ref(), peer_of(&request))?;
        match self.raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((read, _)) => Ok(Response::new(pb::ReadIndexResponse { index: read.index() })),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => Err(not_leader()),
            Err(error) => Err(failed("confirm that it leads", &error)),
        }
    }

    async fn last_entry(
        &self,
        request: Request<pb::LastEntryRequest>,
    ) -> Result<Response<pb::LastEntryResponse>, Status> {
        // Of this incarnation: a replica that lost its disk has lost what it acknowledged.
        let peer = known(peer_of(&request))?;
        self.receiver().raft(request.get_ref().route.as_ref(), peer).map_err(|error| self.refuse(&error))?;
        let last = majority_read::last_entry(&self.raft).await;
        let index = last.map_err(|error| failed("read the end of its log", &error))?;
        Ok(Response::new(pb::LastEntryResponse { index }))
    }

    async fn describe(
        &self,
        request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        self.admit_any(request.get_ref().route.as_ref(), peer_of(&request))?;
        let (now, commands) = (Some(self.clock.now().0), GENERATION);
        Ok(Response::new(pb::DescribeResponse {
            now,
            commands,
            ..membership::describe(&self.raft, &self.identity)
        }))
    }

    async fn members(
        &self,
        request: Request<pb::MembersRequest>,
    ) -> Result<Response<pb::MembersResponse>, Status> {
        self.admit_member(request.get_ref().route.as_ref(), peer_of(&request))?;
        let committed = membership::committed(&self.raft).await.map_err(|error| not_changed(&error))?;
        Ok(Response::new(pb::MembersResponse { membership: Some(committed.to_wire()) }))
    }

    async fn change_membership(
        &self,
        request: Request<pb::ChangeMembershipRequest>,
    ) -> Result<Response<pb::ChangeMembershipResponse>, Status> {
        self.admit_any(request.get_ref().route.as_ref(), peer_of(&request))?;
        let change = request.into_inner().change;
        let change = change.ok_or_else(|| Status::invalid_argument("the request asks for no change"))?;
        membership::change(&self.raft, change).await.map_err(|error| not_changed(&error))?;
        Ok(Response::new(pb::ChangeMembershipResponse {}))
    }

    async fn ask(&self, request: Request<pb::AskRequest>) -> Result<Response<pb::AskResponse>, Status> {
        let from = self.admit_member(request.get_ref().route.as_ref(), peer_of(&request))?;
        // A newer version's question has a field that this version does not know, and reads as none.
        let question = request.into_inner().question.and_then(|question| question.question);
        let question = question.ok_or_else(|| peer_rpc::status(NotAnswered::Unknown))?;
        let answer = self.answering.answer(from, question).await.map_err(peer_rpc::status)?;
        Ok(Response::new(pb::AskResponse { answer: Some(peer::Answer { answer: Some(answer) }) }))
    }
}

fn not_changed(error: &ChangeError) -> Status {
    match error {
        ChangeError::NotLeader => not_leader(),
        ChangeError::Refused(_) => Status::failed_precondition(error.to_string()),
        ChangeError::Failed(_) => Status::unavailable(error.to_string()),
    }
}

fn not_received(error: ReceiveError) -> Status {
    match error {
        ReceiveError::Refused(what) => Status::invalid_argument(what),
        ReceiveError::Storage(error) => failed("store the snapshot", &error),
    }
}

async fn next_part(
    parts: &mut Streaming<pb::SnapshotPart>,
) -> Result<Option<pb::snapshot_part::Part>, Status> {
    let next = timeout(CHUNK_PATIENCE, parts.message()).await;
    let next = next.map_err(|_| Status::deadline_exceeded("the next chunk did not come"))??;
    Ok(next.and_then(|part| part.part))
}

/// A snapshot transfer after its offer.
struct Reception {
    service: Service,
    parts: Streaming<pb::SnapshotPart>,
    vote: crate::types::Vote,
    receiving: Receiving,
    _receiving_lock: OwnedMutexGuard<()>,
}

impl Reception {
    /// Receives all chunks and installs the snapshot. Returns this replica's vote after that.
    async fn install(mut self) -> Result<pb::Vote, Status> {
        while let Some(part) = next_part(&mut self.parts).await? {
            let pb::snapshot_part::Part::Chunk(chunk) = part else {
                return Err(Status::invalid_argument("a snapshot is offered once"));
            };
            self.receiving.put(chunk).map_err(not_received)?;
        }
        let disk = self.service.identity.disk();
        let receiving = self.receiving;
        let finished = disk.run(move |_| Ok(receiving.finish())).await;
        let snapshot: StoredSnapshot =
            finished.map_err(ReceiveError::Storage).and_then(|finished| finished).map_err(not_received)?;
        let meta = snapshot_meta(&snapshot.header).map_err(malformed)?;
        let snapshot: SnapshotOf<TypeConfig, StoredSnapshot> = openraft::Snapshot { meta, snapshot };
        let installed = self.service.raft.install_full_snapshot(self.vote, snapshot).await;
        let installed = installed
            .map_err(|error| failed("install the snapshot", &io::Error::other(error.to_string())))?;
        Ok(installed.vote.to_wire())
    }
}
