//! Bodies that come in pieces, too long, too late, and too many.

use std::convert::Infallible;
use std::future::poll_fn;

use super::*;

/// A body of these pieces, after which nothing more comes and the stream stays open.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None => Poll::Pending,
        }
    }
}

fn frame(length: usize, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&[0][..], &length[..], content].concat()
}

fn message(content: &[u8]) -> Vec<u8> {
    frame(content.len(), content)
}

fn body(bytes: &[u8], piece: usize, unhandled: &Unhandled) -> (RequestBody<Pieces>, Framed) {
    let pieces = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
    let now = Instant::now();
    RequestBody::new(Pieces(pieces), unhandled.clone(), RateLimit::new(now), Overhead::new(now))
}

/// What tonic gets next.
async fn next(body: &mut RequestBody<Pieces>) -> Result<Bytes, Status> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.unwrap();
    let frame = frame.map_err(|error| *error.downcast::<Status>().unwrap())?;
    Ok(frame.into_data().unwrap())
}

/// Reads until nothing more has come.
fn read(body: &mut RequestBody<Pieces>) {
    let mut context = Context::from_waker(std::task::Waker::noop());
    while Pin::new(&mut *body).poll_frame(&mut context).is_ready() {}
}

#[tokio::test]
async fn messages_come_out_whole_however_they_are_cut() {
    let long = vec![7; 40_000];
    let contents: [&[u8]; 4] = [b"first", b"", &long, b"last"];
    let bytes: Vec<u8> = contents.iter().flat_map(|content| message(content)).collect();
    for piece in [1, 2, 3, 5, 6, 7, 100, 16 << 10, bytes.len()] {
        let unhandled = Unhandled::default();
        let (mut body, framed) = body(&bytes, piece, &unhandled);
        for content in contents {
            assert_eq!(next(&mut body).await.unwrap(), &EMPTY_MESSAGE[..]);
            let message = framed.take().unwrap();
            assert_eq!(message.bytes, content, "pieces of {piece}");
            assert!(unhandled.0.load(Ordering::Relaxed) >= content.len());
        }
        assert!(framed.take().is_none());
        drop(body);
        assert_eq!(unhandled.0.load(Ordering::Relaxed), 0);
    }
}

/// Before, tonic reserved what a message said it was long, on each of 17 streams.
#[tokio::test]
async fn a_request_of_which_half_came_takes_twice_that_half() {
    let unhandled = Unhandled::default();
    for arrived in [0, 1, 20_000, 1 << 20, MAX_REQUEST_BYTES - 1] {
        let (mut body, _framed) = body(&frame(MAX_REQUEST_BYTES, &vec![1; arrived]), 16 << 10, &unhandled);
        read(&mut body);
        let partial = body.framing.partial.as_ref().unwrap();
        assert_eq!(partial.bytes.len(), arrived);
        let most = (2 * arrived).clamp(GROWTH, MAX_REQUEST_BYTES);
        assert!(partial.bytes.capacity() <= most, "{} for {arrived}", partial.bytes.capacity());
    }
}

#[tokio::test]
async fn the_unhandled_requests_of_all_streams_of_a_proxy_are_bounded_together() {
    let unhandled = Unhandled::default();
    let half = || body(&frame(MAX_REQUEST_BYTES, &[1; 1000]), 64, &unhandled);
    let mut held: Vec<_> = (0..MAX_UNHANDLED_BYTES / MAX_REQUEST_BYTES).map(|_| half()).collect();
    for (body, _) in &mut held {
        read(body);
    }
    assert_eq!(unhandled.0.load(Ordering::Relaxed), MAX_UNHANDLED_BYTES);
    let refused = next(&mut half().0).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    // Another proxy is not affected, and the end of a stream makes room.
    let (mut other, _framed) = body(&message(b"other"), 64, &Unhandled::default());
    next(&mut other).await.unwrap();
    held.pop();
    let (mut body, framed) = body(&message(b"a request"), 64, &unhandled);
    next(&mut body).await.unwrap();
    // Handled means dropped, not read.
    let message = framed.take().unwrap();
    assert_eq!(unhandled.0.load(Ordering::Relaxed), MAX_UNHANDLED_BYTES - MAX_REQUEST_BYTES + 9);
    drop(message);
    assert_eq!(unhandled.0.load(Ordering::Relaxed), MAX_UNHANDLED_BYTES - MAX_REQUEST_BYTES);
}

#[tokio::test]
async fn what_is_too_long_or_compressed_is_refused_at_its_header() {
    let compressed = [&[1][..], &message(b"x")[1..]].concat();
    let table = [
        (frame(MAX_REQUEST_BYTES + 1, b""), tonic::Code::OutOfRange),
        (frame(u32::MAX as usize, b""), tonic::Code::OutOfRange),
        (compressed, tonic::Code::Unimplemented),
    ];
    for (bytes, code) in table {
        let (mut body, _framed) = body(&bytes, 5, &Unhandled::default());
        assert_eq!(next(&mut body).await.unwrap_err().code(), code);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_request_ends_its_stream_and_silence_between_two_does_not() {
    let start = Instant::now();
    let unhandled = Unhandled::default();
    for bytes in [&message(b"half")[..7], &[0, 0]] {
        let (mut half, _framed) = body(bytes, 1, &unhandled);
        assert_eq!(next(&mut half).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    }
    assert_eq!(start.elapsed(), 2 * ARRIVAL_LIMIT);
    let (mut whole, _framed) = body(&message(b"whole"), 2, &unhandled);
    next(&mut whole).await.unwrap();
    let silence = tokio::time::timeout(10 * ARRIVAL_LIMIT, next(&mut whole));
    assert!(silence.await.is_err());
}

#[test]
fn bytes_of_requests_that_never_end_are_charged() {
    let limit = RateLimit::new(Instant::now());
    for _ in 0..8 {
        let bytes = frame(MAX_REQUEST_BYTES, &vec![1; MAX_REQUEST_BYTES - 1]);
        let pieces = VecDeque::from([Bytes::from(bytes)]);
        let overhead = Overhead::new(Instant::now());
        let (mut body, _framed) =
            RequestBody::new(Pieces(pieces), Unhandled::default(), limit.clone(), overhead);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        read(&mut body);
    }
    assert!(limit.ready_at(Instant::now()) > Instant::now() + Duration::from_secs(4));
}
