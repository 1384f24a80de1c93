//! Tests that a proxy pays for everything that it sends: for frames of HTTP/2 of every type, and for
//! connections. Measures what it makes the replica read and do, and what a neighbour notices of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::time_provider::DefaultTimeProvider;
use smc_testkit::ads::Credentials;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::raw_flood::{Port, Says, Sent, flood, frames};
use crate::replicas::{Random, Replicas, eventually};

/// How long the proxy floods the replica in each way.
const FLOOD: Duration = Duration::from_secs(4);

/// Connections of the proxy in each way: as many as it may have.
const CONNECTIONS: usize = 8;

/// The bytes that a proxy may send at once.
const AT_ONCE: u64 = 4 << 20;

/// What the kernel holds for a connection, on both sides, in bytes. Measured: up to 4.2 MiB.
const KERNEL: u64 = 6 << 20;

/// The bytes of a proxy in a second, with room for its headers.
const PER_SECOND: u64 = 128 << 10;

/// The processor time that the replica may take for a flood, the neighbour's part included. Without a charge
/// it is that of a whole core, 4 s. Measured: 0.12 to 0.24 s.
const PROCESSOR: Duration = Duration::from_secs(1);

/// The handshakes that a proxy gets: those at once, with some that are under way, and those of a second at a
/// slow address.
const HANDSHAKES: u64 = 100;
const HANDSHAKES_PER_SECOND: u64 = 20;

/// How long a neighbour may take to connect and be served. It is some 20 ms on a quiet machine.
const NEIGHBOUR: Duration = Duration::from_secs(2);

/// Serves a neighbour again and again for as long as the flood lasts; the times that it took, in order.
async fn neighbour(replicas: &Replicas, bootstrap: &serde_json::Value, what: &str) -> Vec<Duration> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < FLOOD {
        let asked = Instant::now();
        let served = timeout(NEIGHBOUR, replicas.is_served(0, bootstrap)).await;
        assert_eq!(served, Ok(true), "{what}: a neighbour was not served within {NEIGHBOUR:?}");
        took.push(asked.elapsed());
        // Less often than a proxy may connect.
        sleep(Duration::from_millis(150)).await;
    }
    took.sort();
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_pays_for_its_frames_of_every_type_and_its_connections() {
    let replicas = Replicas::start(1, Random::seed() & 0xffff).await;
    let honest = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await;
    assert!(replicas.is_served(0, &honest.bootstrap).await, "claimed");
    let connections = Says { name: "connections", opening: vec![7; 64], again: Vec::new() };
    let mut report = Vec::new();
    for (number, says) in (1..).zip([frames(), vec![connections]].concat()) {
        // Each with a proxy and an address of its own, which has used up nothing yet.
        let issued = eventually("a certificate", async || replicas.bootstrap(0, number).await).await;
        assert!(replicas.is_served(0, &issued.bootstrap).await, "claimed");
        let own = Credentials::read(&issued.bootstrap.to_string()).unwrap();
        let tls = Some((Arc::new(own.tls(Arc::new(DefaultTimeProvider))), own.server_name.clone()));
        let from = [127, 88, u8::try_from(number).unwrap(), 1].into();
        let port = Port { address: replicas.xds(0), tls, from, away: Duration::ZERO };
        let (sent, name, before) = (Sent::default(), says.name, replicas.processor_time(0));
        let senders: JoinSet<()> = flood(&port, vec![says; CONNECTIONS], &sent);
        let took = neighbour(&replicas, &honest.bootstrap, name).await;
        let processor = replicas.processor_time(0).saturating_sub(before);
        drop(senders);
        report.push((name, sent, processor, took));
    }
    eprintln!("within {FLOOD:?}: bytes, connections, processor time; a neighbour's median and longest time");
    for (name, sent, processor, took) in &report {
        let (bytes, connections) =
            (sent.bytes.load(Ordering::Relaxed), sent.handshakes.load(Ordering::Relaxed));
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        eprintln!("{name:30} {bytes:>10} {connections:>6} {processor:>8?} {median:?} {longest:?}");
    }
    for (name, sent, processor, _) in &report {
        let (bytes, handshakes) =
            (sent.bytes.load(Ordering::Relaxed), sent.handshakes.load(Ordering::Relaxed));
        let seconds = FLOOD.as_secs() + NEIGHBOUR.as_secs();
        assert!(bytes <= AT_ONCE + seconds * PER_SECOND + handshakes * KERNEL, "{name}: {bytes} bytes");
        assert!(
            handshakes <= HANDSHAKES + seconds * HANDSHAKES_PER_SECOND,
            "{name}: {handshakes} handshakes"
        );
        assert!(*processor <= PROCESSOR, "{name}: {processor:?}");
    }
    replicas.passed.store(true, Ordering::Relaxed);
}
