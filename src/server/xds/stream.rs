//! The driver of one xDS stream: passes requests and new states to the session, and its responses to
//! the proxy.
//!
//! Owns the stream's limits in time and rate, and its end. The protocol is in [`smc_xds::session`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smc_host::timer::until;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;
use smc_xds::session::{Event, RejectedResource, Request, Response, Scope, Step, Variant, Verdict};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::yield_now;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::{Instrument, debug, info, info_span, warn};

use super::codec::{self, Received};
use super::context::{Context, Peer};
use super::end_reason::EndReason;
use super::open_stream::OpenStream;
use super::proxies::StreamGuard;
use super::rate_limit::Opening;
use super::request_body::Reservation;
use crate::followers::{Follower, News};
use crate::problems::{MAX_REJECTIONS_PER_PROXY, Rejection, StreamProblems};
use crate::registry::admission::NotAdmitted;

/// How often the admission of an open stream is checked again without another cause: catches a
/// certificate that expired while the stream was open.
const RECHECK_INTERVAL: Duration = Duration::from_mins(10);

/// How long the queue of a stream may take to accept its final status.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a stream looks whether this replica has caught up with what its proxy holds.
const CATCH_UP_CHECK: Duration = Duration::from_millis(100);

/// How long a stream waits for that. A watch of the API server lags by less than a second, and its follower
/// comes back within a few. The wait ends before the 15 s after which Envoy gives up a cluster that warms. An
/// API server that was restored from a backup counts from an earlier number again.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(10);

/// How often a stream looks after that, on a replica that has read nothing since its start: it may be all of
/// them, for hours.
const LONG_CHECK: Duration = Duration::from_secs(5);

/// The number of names of rejected resources in a log line. There may be thousands in one response.
const MAX_LOGGED_NAMES: usize = 8;

/// The queue of a stream's responses.
type Outbound = mpsc::Sender<codec::Outbound>;

/// The time until the next look of a stream that waits since then.
fn pause(behind_since: Option<Instant>) -> Duration {
    let long = behind_since.is_some_and(|since| since.elapsed() >= CATCH_UP_LIMIT);
    if long { LONG_CHECK } else { CATCH_UP_CHECK }
}

/// Charges a peer for a stream. A peer that opens them far faster than it may loses its connection: HTTP/2
/// gives no other way to slow it down.
pub(super) fn charge(peer: &Peer) -> Result<(), Status> {
    let Opening::Refused { report } = peer.connection.allowance.rate_limit.open_stream(Instant::now()) else {
        return Ok(());
    };
    if let Some(count) = report {
        let proxy = peer.certificate.common_names.first();
        warn!(peer = %peer.connection.peer, proxy, count, "streams opened too fast; connection closed");
    }
    peer.connection.abort.cancel();
    Err(Status::resource_exhausted("the proxy opens streams faster than it may"))
}

/// Opens a stream for an authenticated peer: spawns its driver and returns. An error while draining.
pub(super) fn open(
    context: Arc<Context>,
    peer: Peer,
    variant: Variant,
    scope: Scope,
    requests: Streaming<Received>,
    outbound: Outbound,
) -> Result<(), Status> {
    if context.draining.is_cancelled() {
        return Err(NotAdmitted::Draining.status());
    }
    if !context.proxies.accepts() {
        // The port is closed: without this connection Envoy goes on to another replica.
        peer.connection.close.cancel();
        return Err(NotAdmitted::Draining.status());
    }
    let span = info_span!("stream", peer = %peer.connection.peer, proxy = tracing::field::Empty);
    let tasks = context.tasks.clone();
    let driver = Driver { context, variant, scope, peer, requests, outbound };
    tasks.spawn(driver.run().instrument(span));
    Ok(())
}

struct Driver {
    context: Arc<Context>,
    variant: Variant,
    scope: Scope,
    peer: Peer,
    requests: Streaming<Received>,
    outbound: Outbound,
}

impl Driver {
    /// Runs the stream to its end.
    async fn run(mut self) {
        let reason = match self.enter().await {
            Err(EndReason::Closed) => return debug!("stream ended before it was admitted"),
            Err(reason) => reason,
            Ok(guard) => {
                let reason = self.drive(&guard).await;
                self.context.metrics.stream_ended(self.variant, reason.reason());
                reason
            }
        };
        if let Some(refusal) = reason.refusal() {
            self.context.metrics.refused(refusal);
        }
        match &reason {
            EndReason::NotAdmitted(_) | EndReason::Full(_) => warn!(%reason, "proxy refused"),
            EndReason::Stalled | EndReason::Protocol(_) | EndReason::Superseded => {
                warn!(%reason, "stream ended");
            }
            _ => info!(%reason, "stream ended"),
        }
        if let Some(status) = reason.status() {
            let sent = timeout(CLOSE_TIMEOUT, self.outbound.send(Err(status))).await;
            if sent.is_err() || matches!(reason, EndReason::Stalled) {
                self.peer.connection.abort.cancel();
            }
        }
        if matches!(reason, EndReason::Moved) {
            // Without a GOAWAY Envoy would open its next stream on the same connection.
            self.peer.connection.close.cancel();
        }
    }

    /// Admits the peer and adds the stream to the table of proxies.
    async fn enter(&mut self) -> Result<StreamGuard, EndReason> {
        let mut served = self.context.served.clone();
        let ready_at = self.peer.connection.allowance.rate_limit.ready_at(Instant::now());
        let admitting = self.context.proxies.admitting();
        let admitted = async {
            sleep_until(ready_at).await;
            self.context.admission.admit(&self.peer.certificate, &mut served).await
        };
        let admission = tokio::select! {
            biased;
            () = self.context.draining.cancelled() => return Err(EndReason::Draining),
            () = self.outbound.closed() => return Err(EndReason::Closed),
            admitted = admitted => admitted?,
        };
        drop(admitting);
        tracing::Span::current().record("proxy", tracing::field::display(&admission.workload));
        let now = self.context.env.now();
        let connection = &self.peer.connection;
        let stream = OpenStream::new(admission, self.variant, self.scope, connection.peer, now);
        let guard = self.context.proxies.enter(connection, stream)?.ok_or(EndReason::Closed)?;
        // A release between the admission and the entry did not find this stream to end it.
        self.recheck()?;
        info!(variant = ?self.variant, scope = ?self.scope, "stream opened");
        Ok(guard)
    }

    async fn drive(&mut self, guard: &StreamGuard) -> EndReason {
        let stream = &*guard.stream;
        let proxy = &stream.admission.proxy;
        let problems = self.context.problems.stream(stream.admission.workload.clone());
        let unanswered = BTreeMap::new();
        let mut progress = StreamProgress {
            follower: self.context.followers.follow(proxy, self.context.served.clone()),
            seen: None,
            unanswered,
            held: 0,
            problems,
            more: false,
            reservation: None,
            behind_since: None,
            unproven: Some(Instant::now()),
        };
        let rate_limit = self.peer.connection.allowance.rate_limit.clone();
        let mut recheck = interval(RECHECK_INTERVAL);
        let context = Arc::clone(&self.context);
        loop {
            let ready_at = rate_limit.ready_at(Instant::now());
            let stepped = tokio::select! {
                // The first that is ready: an end before a new state, and a new state before the next
                // request.
                biased;
                () = context.draining.cancelled() => return EndReason::Draining,
                reason = stream.stopped() => return reason.into(),
                () = self.outbound.closed() => return EndReason::Closed,
                () = until(progress.deadline(context.answer_limit)) => return EndReason::Stalled,
                _ = recheck.tick() => match self.recheck() {
                    Ok(()) => continue,
                    Err(refused) => return refused.into(),
                },
                // Other tasks of the thread have their turn between the steps of a long request.
                () = yield_now(), if progress.more => {
                    stream.state().session.proceed().map_err(EndReason::from)
                }
                () = progress.follower.arrived() => self.on_state(stream, &mut progress),
                () = sleep(pause(progress.behind_since)), if progress.behind_since.is_some() => {
                    Ok(self.catch_up(stream, &mut progress))
                }
                request = next_request(&mut self.requests, ready_at), if !progress.more => match request {
                    Ok(Some(Received { request, reservation })) => {
                        rate_limit.take_request(Instant::now());
                        progress.reservation = Some(reservation);
                        Self::on_request(stream, &mut progress, request)
                    }
                    Ok(None) => return EndReason::Closed,
                    Err(status) => return status.into(),
                },
            };
            let delivered = match stepped {
                Ok(step) => {
                    rate_limit.take_work(Instant::now(), step.work);
                    progress.follow(step.more);
                    self.note_behind(stream, &mut progress);
                    self.deliver(guard, &mut progress, step).await
                }
                Err(reason) => return reason,
            };
            if let Err(reason) = delivered {
                return reason;
            }
        }
    }

    /// Passes the proxy's view of a new state to the session.
    fn on_state(&self, stream: &OpenStream, progress: &mut StreamProgress) -> Result<Step, EndReason> {
        let Some(News { state: served, changed }) = progress.follower.take() else {
            return Ok(progress.unchanged());
        };
        let proxy = &stream.admission.proxy;
        let same = served.proxies.get(proxy).is_some_and(|known| {
            known.class.account == stream.admission.service_account
                && known.workload == stream.admission.workload
        });
        if !same {
            // Either the certificate no longer fits, because the pod is gone or is another one, or the
            // pod has another name.
            self.recheck()?;
            return Err(EndReason::Renamed);
        }
        let Some(view) = served.view(proxy) else { return Ok(progress.unchanged()) };
        let step = stream.state().session.on_view(&view, &changed);
        progress.seen = Some(view);
        Ok(step)
    }

    /// Tells the session how far this replica has come, or that it does not come any further.
    fn catch_up(&self, stream: &OpenStream, progress: &mut StreamProgress) -> Step {
        let latest = self.context.served.borrow().as_ref().and_then(|served| served.revision.clone());
        // What such a replica serves is a copy from before its start, and no API server has said that it
        // counts from an earlier number.
        let read_nothing = latest.is_some_and(|revision| revision.known.is_empty());
        let waited = progress.behind_since.map(|since| since.elapsed());
        if waited.is_some_and(|waited| waited >= CATCH_UP_LIMIT) && !read_nothing {
            progress.behind_since = None;
            self.context.metrics.held_back("gave_up");
            warn!(proxy = %stream.admission.workload, "proxy holds newer resources; sending this replica's anyway");
            return stream.state().session.give_up();
        }
        progress.follower.revision().map_or_else(
            || progress.unchanged(),
            |revision| stream.state().session.on_reached(&revision.known),
        )
    }

    /// Notes whether the proxy holds newer resources than this replica.
    fn note_behind(&self, stream: &OpenStream, progress: &mut StreamProgress) {
        let holds_back = stream.state().session.holds_back();
        if holds_back {
            progress.behind_since.get_or_insert_with(Instant::now);
        } else if progress.behind_since.take().is_some() {
            self.context.metrics.held_back("caught_up");
        }
    }

    fn on_request(
        stream: &OpenStream,
        progress: &mut StreamProgress,
        request: Request,
    ) -> Result<Step, EndReason> {
        let mut state = stream.state();
        if let Some(node) = request.node() {
            stream.admission.check_node(node.id()).map_err(NotAdmitted::from)?;
            printable(&node.user_agent()).trim().clone_into(&mut state.user_agent);
        }
        Ok(state.session.on_request(request, progress.seen.as_ref())?)
    }

    /// Records the events of a step and sends its responses, unless the proxy exceeds its limits.
    async fn deliver(
        &self,
        guard: &StreamGuard,
        progress: &mut StreamProgress,
        step: Step,
    ) -> Result<(), EndReason> {
        let stream = &*guard.stream;
        let held = stream.state().session.held_bytes();
        if held != progress.held {
            progress.held = held;
            guard.hold(held)?;
        }
        let rejected = step
            .events
            .iter()
            .any(|event| matches!(event, Event::Answered { verdict: Verdict::Rejected { .. }, .. }));
        for event in step.events {
            self.note(stream, progress, event);
        }
        if rejected || progress.problems.reported() {
            progress.problems.set(rejections(stream, progress.seen.as_ref()));
        }
        for response in step.responses {
            let (kind, count) = (response.kind, response.resources.len() + response.removed.len());
            self.send(stream, response).await?;
            progress.unanswered.insert(kind, Instant::now());
            self.context.metrics.pushed(kind, count);
        }
        Ok(())
    }

    async fn send(&self, stream: &OpenStream, response: Response) -> Result<(), EndReason> {
        let response = match self.outbound.try_send(Ok(Box::new(response))) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(EndReason::Closed),
            Err(TrySendError::Full(response)) => response,
        };
        tokio::select! {
            biased;
            () = self.context.draining.cancelled() => Err(EndReason::Draining),
            reason = stream.stopped() => Err(reason.into()),
            sent = timeout(self.context.answer_limit, self.outbound.send(response)) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(EndReason::Closed),
                Err(_) => Err(EndReason::Stalled),
            },
        }
    }

    fn note(&self, stream: &OpenStream, progress: &mut StreamProgress, event: Event) {
        let proxy = &stream.admission.workload;
        match event {
            Event::Subscribed { kind } => debug!(%proxy, kind = kind.short(), "subscribed"),
            Event::Answered { kind, verdict } => self.note_verdict(stream, progress, kind, &verdict),
            Event::UnknownType { url } => warn!(%proxy, url = printable(&url), "type not served"),
        }
    }

    fn note_verdict(
        &self,
        stream: &OpenStream,
        progress: &mut StreamProgress,
        kind: ResourceType,
        verdict: &Verdict,
    ) {
        let proxy = &stream.admission.workload;
        let sent_at = progress.unanswered.remove(&kind);
        if let Some(opened) = progress.unproven.take() {
            let rejected = matches!(verdict, Verdict::Rejected { .. });
            self.context.proxies.answered(opened.elapsed(), rejected);
        }
        match verdict {
            Verdict::Acked { resources, removed, .. } => {
                self.context.metrics.acked(kind, sent_at.map(|at| at.elapsed()));
                stream.state().acked_at = Some(self.context.env.now());
                debug!(%proxy, kind = kind.short(), resources, removed, "update acknowledged");
            }
            Verdict::Rejected { names, message, conclusive, .. } => {
                self.context.metrics.rejected(kind);
                stream.state().rejections += 1;
                let (message, count) = (printable(message), names.len());
                let names = &names[..count.min(MAX_LOGGED_NAMES)];
                warn!(%proxy, kind = kind.short(), count, ?names, message, conclusive, "update rejected");
            }
        }
    }

    /// Checks that the peer would still be admitted.
    fn recheck(&self) -> Result<(), NotAdmitted> {
        let served = self.context.served.borrow().clone();
        self.context.admission.check(&self.peer.certificate, served.as_deref())?;
        Ok(())
    }
}

/// How far a stream has followed the served states and its proxy the responses.
struct StreamProgress {
    follower: Follower,
    /// The view that the session has.
    seen: Option<View>,
    /// When the unanswered response of each type was sent. The session has at most one per type.
    unanswered: BTreeMap<ResourceType, Instant>,
    /// The memory of the session's names as last recorded in the table, in bytes.
    held: usize,
    /// The resources that the proxy rejected and still lacks.
    problems: StreamProblems,
    /// The session has more to do before the next request.
    more: bool,
    /// Since when the proxy is known to hold newer resources than this replica.
    behind_since: Option<Instant>,
    /// The room that the request takes which the session has not finished.
    reservation: Option<Reservation>,
    /// When the stream was admitted, until its first answer.
    unproven: Option<Instant>,
}

impl StreamProgress {
    /// Notes whether the session has more to do.
    fn follow(&mut self, more: bool) {
        self.more = more;
        if !more {
            drop(self.reservation.take());
        }
    }

    /// A step that does nothing.
    fn unchanged(&self) -> Step {
        Step { more: self.more, ..Step::default() }
    }

    /// The deadline for the oldest unanswered response; `None` if all are answered.
    fn deadline(&self, limit: Duration) -> Option<Instant> {
        self.unanswered.values().min().map(|&sent| sent + limit)
    }
}

/// The resources that the proxy rejected and still lacks, with the objects that `view` says they are made of.
fn rejections(stream: &OpenStream, view: Option<&View>) -> Vec<Rejection> {
    let rejected = stream.state().session.rejected(MAX_REJECTIONS_PER_PROXY);
    let rejection = |RejectedResource { kind, name, message }| Rejection {
        resource: format!("{}/{name}", kind.short()),
        reason: printable(&message),
        made_of: view
            .and_then(|view| view.get(kind, &name))
            .map(|resource| Arc::clone(&resource.made_of))
            .unwrap_or_default(),
    };
    rejected.into_iter().map(rejection).collect()
}

/// The next request, read no earlier than `ready_at`.
async fn next_request(
    requests: &mut Streaming<Received>,
    ready_at: Instant,
) -> Result<Option<Received>, Status> {
    sleep_until(ready_at).await;
    requests.message().await
}

/// Text from a peer, fit for a log line: without control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
