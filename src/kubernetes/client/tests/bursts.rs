//! How many connections are made when many requests need one at once.

use std::iter::repeat_n;
use std::sync::Arc;

use futures_util::{FutureExt, poll};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::client::stand_in::{Fate, Wire};

const DELAY: Duration = Duration::from_millis(100);

/// A client of HTTP/2, and its network.
fn wired() -> (Arc<Wire>, Client) {
    let wire = Wire::new(DELAY);
    let client = wire.client(Protocol::Http2);
    (wire, client)
}

/// Twenty requests at once: how many of them were answered, and after what time the last one ended.
async fn burst(client: &Client) -> (usize, Duration) {
    let since = Instant::now();
    let answered = join_all((0..20).map(|_| client.get("/version"))).await;
    (answered.iter().filter(|answer| answer.is_ok()).count(), since.elapsed())
}

#[tokio::test(start_paused = true)]
async fn first_requests_wait_for_one_connection() {
    let (wire, client) = wired();
    let answers = endless(&client, 20).await;
    assert_eq!((wire.book.connections(), answers.len()), (1, 20));
    // Nor does one come later: what has waited needs none any more.
    sleep(Duration::from_mins(10)).await;
    assert_eq!(wire.book.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn connections_that_broke_are_replaced_by_one() {
    let (wire, client) = wired();
    for connections in 2..10 {
        let mut answers = endless(&client, 20).await;
        wire.cut();
        for answer in &mut answers {
            assert!(answer.body.next().await.unwrap().is_err());
        }
        drop(endless(&client, 20).await);
        assert_eq!(wire.book.connections(), connections);
    }
}

/// The client learns of it with its next request. What it began before goes on.
#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_leave_is_left_over_one_connection() {
    let (wire, client) = wired();
    let mut before = endless(&client, 20).await;
    wire.ask_to_leave();
    sleep(DELAY).await;
    let _after = endless(&client, 20).await;
    assert_eq!(wire.book.connections(), 2);
    assert!(before.iter_mut().all(|answer| answer.body.next().now_or_never().is_none()));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_refused_fails_one_request() {
    let (wire, client) = wired();
    wire.fates([Fate::Refused, Fate::Refused]);
    assert_eq!(burst(&client).await, (18, 3 * DELAY));
    assert_eq!(wire.book.connections(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_holds_up_the_others_for_two_seconds() {
    let (wire, client) = wired();
    wire.fates([Fate::Hangs]);
    // The request whose attempt it is gets the connection of the next one, too.
    let (answered, took) = burst(&client).await;
    assert!(answered == 20 && took < Duration::from_millis(2200), "{answered}, {took:?}");
    assert_eq!(wire.book.connections(), 2);
}

/// As that of a load balancer without a server behind it.
#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_at_once_is_not_waited_for() {
    let (wire, client) = wired();
    for _ in 0..3 {
        wire.fates([Fate::Breaks]);
        let (answered, took) = burst(&client).await;
        assert!(answered < 20 && took <= Duration::from_millis(2200), "{answered}, {took:?}");
        assert_eq!(burst(&client).await.0, 20);
        wire.cut();
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_fails_all_requests_in_time() {
    let (wire, client) = wired();
    wire.fates(repeat_n(Fate::Hangs, 5));
    let (answered, took) = burst(&client).await;
    assert!(answered == 0 && took <= CONNECT_LIMIT + DELAY, "{answered}, {took:?}");
    assert_eq!(wire.book.connections(), 5);
    let (answered, took) = burst(&client).await;
    assert!(answered == 20 && took <= 2 * DELAY, "{answered}, {took:?}");
    assert_eq!(wire.book.connections(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_for_long_is_asked_in_turn() {
    let (wire, client) = wired();
    wire.fates(repeat_n(Fate::Refused, 20));
    assert_eq!(burst(&client).await, (0, 20 * DELAY));
    assert_eq!(burst(&client).await, (20, DELAY));
    assert_eq!(wire.book.connections(), 21);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_passes_its_turn_on() {
    let (wire, client) = wired();
    let first = timeout(DELAY / 2, client.get("/version"));
    let second = async {
        sleep(DELAY / 4).await;
        client.get("/version").await
    };
    let since = Instant::now();
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_err() && second.is_ok());
    assert_eq!(since.elapsed(), DELAY / 2 + DELAY);
    assert_eq!(wire.book.connections(), 2);
}

/// A caller may leave a request alone, as one of several in a `select!` that waits for another.
#[tokio::test(start_paused = true)]
async fn a_request_that_its_caller_leaves_alone_holds_up_no_other() {
    let (wire, client) = wired();
    let mut left = client.get("/version");
    while wire.book.connections() == 0 {
        assert!(poll!(&mut left).is_pending());
        tokio::task::yield_now().await;
    }
    let (answered, took) = burst(&client).await;
    assert!(answered == 20 && took < Duration::from_millis(2200), "{answered}, {took:?}");
    assert!(left.await.is_ok());
    assert_eq!(wire.book.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn in_http_1_all_but_the_first_connection_are_made_at_once() {
    let wire = Wire::new(DELAY);
    let client = wire.client(Protocol::Http1);
    let since = Instant::now();
    let _answers = endless(&client, 20).await;
    assert_eq!(since.elapsed(), 2 * DELAY);
    assert_eq!(wire.book.connections(), 20);
    assert_eq!(wire.book.versions(), [("HTTP/1.1".to_owned(), 20)].into());
}
