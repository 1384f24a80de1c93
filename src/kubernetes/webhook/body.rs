//! Reading what a client of the webhooks sends, and computing its answer.
//!
//! Owns the bounds: of one body, of all bodies at a time ([`super::room`]), of the time, and of what is
//! computed at once. Any peer that reaches the port may send, so a body is charged as it arrives and not by
//! the length that it claims, and whatever is made of it is computed in turns, on threads of its own: the
//! threads that accept, shake hands and answer `/healthz` never wait for a stranger's object.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, SizeHint};
use smc_host::accept::Turns;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::error;

use super::room::{self, Evicted, Place, Room};

/// The most bytes of one review. The API server takes objects of 3 MiB; an update has the old one, too.
pub(crate) const MAX_REVIEW: usize = 8 << 20;

/// The most bytes of one conversion. The API server sends all objects of a list together, also where etcd has
/// thousands of them.
pub(crate) const MAX_CONVERSION: usize = 4 * MAX_REVIEW;

/// How often a body counts: while its buffer grows, the old one is beside it.
const COPIES: usize = 2;

/// What the bodies of all reviews may hold, in bytes, as long as they are read or answered.
const REVIEWS: room::Bounds = room::Bounds { total: 64 << 20, fair: COPIES * MAX_REVIEW };

/// The same for conversions: the largest, and another one of the same size.
const CONVERSIONS: room::Bounds = room::Bounds { total: 128 << 20, fair: COPIES * MAX_CONVERSION };

/// How long a body may take. The API server sends it at once.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a body may take beyond what it takes at [`MIN_RATE`]: a few packets that are sent again.
const START: Duration = Duration::from_secs(1);

/// Bytes a second. A body that arrives more slowly is closed early.
const MIN_RATE: u32 = 256 << 10;

/// The longest body whose answer is computed in a turn of the quick ones, in bytes. Most reviews are some
/// KiB, and do not wait for those of several MiB.
const QUICK: usize = 64 << 10;

/// How long a request may wait for its turn. The API server waits ten seconds for a review.
const TURN_LIMIT: Duration = Duration::from_secs(4);

/// Bytes of an answer that are handed over at once.
const PIECE: usize = 16 << 10;

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is longer than allowed.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// There is no room for more of it, or no turn for it in time.
    #[error("too many requests at once")]
    Busy,
    /// It did not arrive in time.
    #[error("the body arrives too slowly")]
    Slow,
    /// The connection was interrupted.
    #[error("the body was interrupted")]
    BrokeOff,
    /// It is not what was asked for.
    #[error("the body cannot be read: {0}")]
    Unreadable(&'static str),
    /// The answer could not be computed.
    #[error("the answer could not be computed")]
    Interrupted,
}

impl From<Evicted> for BodyError {
    fn from(_: Evicted) -> Self {
        Self::Busy
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::BrokeOff | Self::Unreadable(_) => StatusCode::BAD_REQUEST,
            Self::Interrupted => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.to_string()).into_response()
    }
}

/// The address that a request comes from; an extension of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The room for the bodies of one kind of requests, and the turns in which they are answered. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    room: Room,
    /// One turn each, so that what is decoded is bounded by two objects.
    quick: Turns,
    long: Turns,
}

/// A body that has arrived, in its place in the room until it is answered.
#[derive(Debug)]
pub(crate) struct Text {
    bodies: Bodies,
    peer: IpAddr,
    shared: Arc<Shared>,
}

/// What a thread that computes has in common with the request, which may be gone before it.
#[derive(Debug)]
struct Shared {
    text: String,
    place: Place,
}

impl Bodies {
    /// For reviews.
    pub(crate) fn of_reviews() -> Self {
        Self::new(REVIEWS)
    }

    /// For conversions.
    pub(crate) fn of_conversions() -> Self {
        Self::new(CONVERSIONS)
    }

    fn new(bounds: room::Bounds) -> Self {
        Self { room: Room::new(bounds), quick: Turns::new(1), long: Turns::new(1) }
    }

    /// Reads a text of at most `max` bytes.
    pub(crate) async fn read(&self, peer: IpAddr, body: Body, max: usize) -> Result<Text, BodyError> {
        let place = self.room.enter(peer)?;
        let bytes = place.hold(collect(body, max, &place)).await??;
        let text = String::from_utf8(bytes).map_err(|_| BodyError::Unreadable("it is no Unicode"))?;
        Ok(Text { bodies: self.clone(), peer, shared: Arc::new(Shared { text, place }) })
    }
}

async fn collect(mut body: Body, max: usize, place: &Place) -> Result<Vec<u8>, BodyError> {
    let started = Instant::now();
    let mut bytes = Vec::new();
    loop {
        let arrived = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let due = START + Duration::from_secs(1) * arrived / MIN_RATE;
        let frame = timeout_at(started + due.min(LIMIT), body.frame()).await;
        let Some(frame) = frame.map_err(|_| BodyError::Slow)? else { return Ok(bytes) };
        let Ok(data) = frame.map_err(|_| BodyError::BrokeOff)?.into_data() else { continue };
        if bytes.len() + data.len() > max {
            return Err(BodyError::TooLarge(max));
        }
        place.resize(COPIES * (bytes.len() + data.len()))?;
        bytes.extend_from_slice(&data);
    }
}

impl Text {
    /// Computes something from the text when it is this address's turn. The work goes on to its end also if
    /// the caller does not wait for it, and keeps turn and place.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<T, BodyError> {
        let turns = if self.shared.text.len() <= QUICK { &self.bodies.quick } else { &self.bodies.long };
        let waiting = self.shared.place.hold(turns.wait(self.peer));
        let turn = timeout(TURN_LIMIT, waiting).await.map_err(|_| BodyError::Busy)??;
        let shared = Arc::clone(&self.shared);
        let working = tokio::task::spawn_blocking(move || {
            shared.place.pin()?;
            let result = work(&shared.text);
            shared.place.unpin();
            drop((shared, turn));
            Ok(result)
        });
        working.await.unwrap_or_else(|interrupted| {
            error!(error = &interrupted as &dyn std::error::Error, "a review was interrupted");
            Err(BodyError::Interrupted)
        })
    }

    /// The address that it comes from.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Waits for what the answer needs, unless the request has to leave before. So much is held for it beside
    /// the text, in bytes.
    pub(crate) async fn hold<T>(&self, beside: usize, work: impl Future<Output = T>) -> Result<T, BodyError> {
        let place = &self.shared.place;
        place.resize(COPIES * self.shared.text.len() + beside)?;
        Ok(place.hold(work).await?)
    }

    /// Answers with this JSON, which has the request's place until it is sent.
    pub(crate) fn answer(self, json: Vec<u8>) -> Response {
        // Nothing computes any more, but a thread may be about to let go.
        match Arc::try_unwrap(self.shared) {
            Ok(Shared { text, place }) => {
                drop(text);
                respond(place, json)
            }
            Err(_) => BodyError::Interrupted.into_response(),
        }
    }
}

fn respond(place: Place, json: Vec<u8>) -> Response {
    if let Err(evicted) = place.put(Bytes::from(json)) {
        return BodyError::from(evicted).into_response();
    }
    let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (kind, Body::new(Answer(place))).into_response()
}

/// An answer on its way. HTTP/2 takes no more of it than the peer reads, so a peer that reads nothing holds
/// its share of the room and no more.
struct Answer(Place);

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Evicted;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Evicted>>> {
        let next = self.0.take(PIECE).map(|piece| (!piece.is_empty()).then(|| Frame::data(piece)));
        Poll::Ready(next.transpose())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.left() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{StreamExt, stream};

    use super::*;

    const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const API_SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// A body of a piece of so many bytes now, and then one each second.
    fn slow(bytes: usize) -> Body {
        let later = stream::repeat_with(move || vec![b'x'; bytes]).then(async |piece| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, io::Error>(piece)
        });
        Body::from_stream(stream::once(async move { Ok(vec![b'x'; bytes]) }).chain(later))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_refused_for_its_size_its_slowness_and_its_content() {
        let bodies = Bodies::of_reviews();
        let read = async |body: Body, max: usize| {
            let started = Instant::now();
            let read = bodies.read(STRANGER, body, max).await.map(|text| text.shared.text.clone());
            (read, started.elapsed().as_secs())
        };
        assert_eq!(read(Body::from("{\"a\": 1}"), 10).await, (Ok("{\"a\": 1}".to_owned()), 0));
        assert_eq!(read(Body::from("{\"a\": 11111}"), 10).await, (Err(BodyError::TooLarge(10)), 0));
        assert!(matches!(read(Body::from(vec![0xff]), 10).await, (Err(BodyError::Unreadable(_)), 0)));
        let silent = Body::from_stream(stream::pending::<io::Result<&'static str>>());
        assert_eq!(read(silent, 10).await, (Err(BodyError::Slow), 1));
        assert_eq!(read(slow(1), MAX_REVIEW).await, (Err(BodyError::Slow), 1));
        // Faster than the least rate, and without an end.
        assert_eq!(read(slow(1 << 20), MAX_CONVERSION).await, (Err(BodyError::Slow), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_do_not_hold_the_room_against_another_address() {
        let bodies = Bodies::of_reviews();
        let strangers: Vec<_> = (0..64)
            .map(|number| {
                let bodies = bodies.clone();
                let address = [10, 1, 0, number % 4].into();
                tokio::spawn(
                    async move { bodies.read(address, slow(MAX_REVIEW / 2), MAX_REVIEW).await.err() },
                )
            })
            .collect();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let body = Body::from("x".repeat(3 << 20));
            let text = bodies.read(API_SERVER, body, MAX_REVIEW).await.unwrap();
            assert_eq!(text.compute(str::len).await, Ok(3 << 20));
        }
        for stranger in strangers {
            assert!(stranger.await.unwrap().is_some());
        }
    }

    /// One thread for all tasks, as if all others were busy: it goes on while an object is computed. Each
    /// computation says that it has begun and ends when it is allowed to, and no time passes meanwhile, so
    /// the machine's pace decides nothing.
    #[tokio::test(start_paused = true)]
    async fn an_address_waits_for_one_turn_of_each_other_and_nothing_else_waits() {
        let bodies = Bodies::of_reviews();
        let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let (allow, allowed) = std::sync::mpsc::channel();
        let allowed = Arc::new(std::sync::Mutex::new(allowed));
        let compute = async |peer| {
            let text = bodies.read(peer, Body::from("{}"), MAX_REVIEW).await.unwrap();
            let (begin, allowed) = (begin.clone(), Arc::clone(&allowed));
            text.compute(move |_| {
                begin.send(peer).unwrap();
                let allowed = allowed.try_lock().expect("one computation at a time");
                allowed.recv_timeout(Duration::from_mins(1)).expect("the other tasks go on");
            })
            .await
        };
        let mut flood = Box::pin(futures_util::future::join_all((0..20).map(|_| compute(STRANGER))));
        assert!(futures_util::poll!(&mut flood).is_pending());
        let mut honest = Box::pin(compute(API_SERVER));
        assert!(futures_util::poll!(&mut honest).is_pending());
        let order = async {
            let mut order = Vec::new();
            while order.len() < 21 {
                order.push(timeout(TURN_LIMIT, begun.recv()).await.expect("the next one begins").unwrap());
                allow.send(()).unwrap();
            }
            order
        };
        let (flood, honest, order) = tokio::join!(flood, honest, order);
        assert!(flood.iter().all(Result::is_ok) && honest == Ok(()));
        assert_eq!(order.iter().position(|peer| *peer == API_SERVER), Some(2), "{order:?}");
    }

    #[tokio::test]
    async fn work_that_panics_fails_its_own_request_and_gives_its_turn_back() {
        let bodies = Bodies::of_reviews();
        let text = bodies.read(STRANGER, Body::from("{}"), MAX_REVIEW).await.unwrap();
        let failed = text.compute(|text| assert_eq!(text, "")).await;
        assert_eq!(failed, Err(BodyError::Interrupted));
        assert_eq!(text.compute(|_| 1).await, Ok(1));
    }
}
