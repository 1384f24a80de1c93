use std::time::Duration;

use smc_authority::rules::Admission;
use smc_types::ids::{ProxyName, ProxyUuid, ServiceAccountId, WorkloadId};
use smc_types::time::Timestamp;
use smc_xds::session::{Scope, Variant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::metrics::Metrics;
use crate::xds::end_reason::EndReason;
use crate::xds::proxies::{ConnectionGuard, StreamGuard};

/// A proxy with one connection and one stream.
struct Proxy {
    stream: StreamGuard,
    _connection: ConnectionGuard,
}

impl Proxy {
    fn connect(proxies: &Proxies, number: u8) -> Self {
        let workload = WorkloadId::new("shop", &format!("pod-{number}")).unwrap();
        let admission = Admission {
            proxy: ProxyName::new(ProxyUuid::derived(&workload), "shop").unwrap(),
            workload,
            service_account: ServiceAccountId::new("shop", "buyer").unwrap(),
            serial: serial(number),
            first_claim: false,
        };
        let peer = "127.0.0.1:4000".parse().unwrap();
        let mut connection = proxies.accept(peer, &CancellationToken::new()).unwrap();
        connection.identify(&admission.proxy, admission.serial);
        let stream = OpenStream::new(admission, Variant::Delta, Scope::Aggregated, peer, Timestamp(0));
        let stream = proxies.enter(&connection.connection, stream).unwrap().unwrap();
        Self { stream, _connection: connection }
    }

    /// The gRPC code that the stream was requested to end with.
    async fn ended(&self) -> Option<Code> {
        let stopped = tokio::time::timeout(Duration::ZERO, self.stream.stream.stopped()).await.ok()?;
        Some(EndReason::from(stopped).status().map_or(Code::Ok, |status| status.code()))
    }
}

fn serial(number: u8) -> SerialNumber {
    SerialNumber::draw([number; 16])
}

fn connect(count: u8) -> (Proxies, Vec<Proxy>) {
    let proxies = Proxies::new(usize::from(count), watch::Sender::default().subscribe(), Metrics::new());
    let connected = (0..count).map(|number| Proxy::connect(&proxies, number)).collect();
    (proxies, connected)
}

async fn ended(connected: &[Proxy]) -> Vec<Option<Code>> {
    let mut ended = Vec::new();
    for proxy in connected {
        ended.push(proxy.ended().await);
    }
    ended
}

#[tokio::test]
async fn exactly_the_selected_streams_end_with_the_status_of_the_reason() {
    let table = [
        (StopReason::Released, Code::PermissionDenied),
        (StopReason::Superseded, Code::Aborted),
        (StopReason::Moved, Code::Ok),
    ];
    for (reason, code) in table {
        let (proxies, connected) = connect(4);
        let selected = [serial(1), serial(3)];
        assert_eq!(proxies.end(|stream| selected.contains(&stream.admission.serial), reason), 2);
        assert_eq!(ended(&connected).await, [None, Some(code), None, Some(code)], "{reason:?}");
    }
}

#[tokio::test]
async fn a_release_ends_the_stream_and_the_connection_of_its_certificate() {
    let (proxies, connected) = connect(3);
    proxies.end_released(&|released| *released == serial(1));
    assert_eq!(ended(&connected).await, [None, Some(Code::PermissionDenied), None]);
    let closing = connected.iter().map(|proxy| proxy.stream.connection.close.is_cancelled());
    assert_eq!(closing.collect::<Vec<_>>(), [false, true, false]);
}
