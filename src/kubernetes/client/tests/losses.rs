//! What a connection that is lost costs, and a response that is not read.

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::client::stand_in::Wire;

/// How soon a connection that was lost must be noticed.
const NOTICED: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_without_a_word_is_noticed() {
    let wire = Wire::new(Duration::ZERO);
    let client = wire.client(Protocol::Http2);
    let mut answers = endless(&client, 20).await;
    // While it stands, it may be silent.
    sleep(Duration::from_mins(4)).await;
    assert!(answers.iter_mut().all(|answer| answer.body.next().now_or_never().is_none()));
    wire.lose();
    let since = Instant::now();
    let waiting = client.get("/version").map(|answer| assert!(answer.is_err()));
    let broken = join_all(answers.iter_mut().map(|answer| answer.body.next()));
    let (broken, ()) = tokio::join!(broken, waiting);
    assert!(broken.into_iter().all(|next| next.unwrap().is_err()));
    assert!(since.elapsed() <= NOTICED, "{:?}", since.elapsed());
    assert_eq!(length(&client, "/bytes/1").await, CHUNK);
    assert_eq!(wire.book.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_while_idle_costs_no_request() {
    let wire = Wire::new(Duration::ZERO);
    let client = wire.client(Protocol::Http2);
    assert_eq!(length(&client, "/bytes/1").await, CHUNK);
    wire.lose();
    sleep(NOTICED).await;
    let since = Instant::now();
    assert_eq!(length(&client, "/bytes/1").await, CHUNK);
    assert_eq!((since.elapsed(), wire.book.connections()), (Duration::ZERO, 2));
}

/// Without new requests, the connection of the watches is not idle.
#[tokio::test(start_paused = true)]
async fn a_connection_is_used_again_after_any_time() {
    let wire = Wire::new(Duration::ZERO);
    let client = wire.client(Protocol::Http2);
    let mut watch = client.get("/endless").await.unwrap();
    assert!(watch.body.next().await.unwrap().is_ok());
    for _ in 0..10 {
        sleep(Duration::from_hours(1)).await;
        assert_eq!(length(&client, "/bytes/1").await, CHUNK);
    }
    assert_eq!(wire.book.connections(), 1);
}

/// Requests go on over the same connection.
#[tokio::test(start_paused = true)]
async fn an_answer_that_pauses_for_too_long_ends() {
    for (protocol, connections) in [(Protocol::Http2, 1), (Protocol::Http1, 2)] {
        let wire = Wire::new(Duration::ZERO);
        let client = wire.client(protocol);
        let mut answer = client.get("/endless").await.unwrap();
        let mut read = 0;
        while read < CHUNK {
            read += answer.body.next().await.unwrap().unwrap().len();
        }
        let since = Instant::now();
        assert!(answer.body.next().await.unwrap().is_err());
        let took = since.elapsed();
        assert!(READ_LIMIT <= took && took < READ_LIMIT + Duration::from_secs(1), "{took:?}");
        assert_eq!(length(&client, "/bytes/1").await, CHUNK);
        assert_eq!(wire.book.connections(), connections);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_stand_unread_hold_up_no_other() {
    let wire = Wire::new(Duration::ZERO);
    let client = wire.client(Protocol::Http2);
    let unread = UNREAD_STREAMS as usize;
    let mut floods = Vec::new();
    for _ in 0..unread {
        floods.push(client.get("/flood").await.unwrap());
    }
    // Until each has filled its window.
    sleep(Duration::from_secs(1)).await;
    let whole = timeout(Duration::from_secs(1), length(&client, "/bytes/1024")).await;
    assert_eq!(whole, Ok(1024 * CHUNK));
    // The others lost nothing meanwhile.
    for flood in &mut floods {
        let mut read = 0;
        while read < 64 * CHUNK {
            read += flood.body.next().await.unwrap().unwrap().len();
        }
    }
    assert_eq!(wire.book.connections(), 1);
}
