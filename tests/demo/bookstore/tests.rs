//! Runs the programs against one another on loopback, without a mesh: their normal behaviour, and
//! their reports of failures.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use smc_testkit::held_port::HeldPort;
use smc_types::host_port::{Host, HostPort};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::client::{HttpRequest, HttpResponse, send_once};
use super::database::{Database, DatabaseArgs};
use super::identity::{CLIENT_CERT_HEADER, IDENTITY_SEEN_HEADER};
use super::record::{CallError, Journal, METHOD_TCP, Outcome, Received, Record};
use super::shopper::{Role, Shopper, ShopperArgs};
use super::store::{Store, StoreArgs, VERSION_HEADER, Version};
use super::warehouse::{Warehouse, WarehouseArgs};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Running programs, and everything they recorded.
struct Programs {
    shutdown: CancellationToken,
    journal: Journal,
    records: mpsc::Receiver<Record>,
    tasks: Vec<JoinHandle<()>>,
}

impl Programs {
    fn new() -> Self {
        let (journal, records) = Journal::new();
        Self { shutdown: CancellationToken::new(), journal, records, tasks: Vec::new() }
    }

    async fn database(&mut self) -> SocketAddr {
        let database = Database::bind(DatabaseArgs { listen: ANY, health_listen: ANY }).await.unwrap();
        let address = database.address().unwrap();
        self.tasks.push(tokio::spawn(database.run(self.journal.clone(), self.shutdown.clone())));
        address
    }

    async fn warehouse(&mut self, database: SocketAddr) -> SocketAddr {
        let args =
            WarehouseArgs { listen: ANY, health_listen: ANY, database: target(database), timeout_ms: 500 };
        let warehouse = Warehouse::bind(args).await.unwrap();
        let address = warehouse.address().unwrap();
        self.tasks.push(tokio::spawn(warehouse.run(self.journal.clone(), self.shutdown.clone())));
        address
    }

    async fn store(&mut self, store_version: Version, warehouse: SocketAddr) -> SocketAddr {
        let args = StoreArgs {
            store_version,
            listen: ANY,
            health_listen: ANY,
            bookwarehouse: target(warehouse),
            timeout_ms: 800,
        };
        let store = Store::bind(args).await.unwrap();
        let address = store.address().unwrap();
        self.tasks.push(tokio::spawn(store.run(self.journal.clone(), self.shutdown.clone())));
        address
    }

    async fn shopper(&mut self, role: Role, bookstore: HostPort, bookwarehouse: HostPort) {
        let args = ShopperArgs {
            bookstore,
            bookwarehouse,
            rate: 200,
            calls_per_connection: 3,
            trespass_every: 4,
            timeout_ms: 300,
            listen: ANY,
            health_listen: ANY,
        };
        let shopper = Shopper::bind(role, args).await.unwrap();
        self.tasks.push(tokio::spawn(shopper.run(self.journal.clone(), self.shutdown.clone())));
    }

    async fn take(&mut self, count: usize) -> Vec<Record> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let next = tokio::time::timeout(TIME_LIMIT, self.records.recv()).await;
            taken.push(next.expect("a record in time").expect("the journal is open"));
        }
        taken
    }

    async fn close(mut self) {
        self.shutdown.cancel();
        self.records.close();
        for program in self.tasks {
            tokio::time::timeout(TIME_LIMIT, program).await.expect("a program ends in time").unwrap();
        }
    }
}

fn target(address: SocketAddr) -> HostPort {
    address.to_string().parse().unwrap()
}

fn http_request(method: Method, path: &str, body: &str) -> HttpRequest {
    HttpRequest {
        method,
        path: path.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_owned()),
    }
}

async fn get(address: SocketAddr, path: &str) -> HttpResponse {
    send_once(&target(address), http_request(Method::GET, path, ""), TIME_LIMIT).await.unwrap()
}

/// A server that handles every connection with `serve`.
async fn stub_server<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (SocketAddr, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream).await;
        }
    });
    (address, server)
}

#[tokio::test]
async fn without_a_mesh_everything_is_allowed_and_a_sale_reaches_the_database() {
    let mut programs = Programs::new();
    let database = programs.database().await;
    let warehouse = programs.warehouse(database).await;
    let store = programs.store(Version::V2, warehouse).await;
    programs.shopper(Role::Bookbuyer, target(store), target(warehouse)).await;

    let mut seen = std::collections::BTreeSet::new();
    for record in programs.take(60).await {
        match record {
            Record::Call(call) => {
                let tcp = call.method == METHOD_TCP;
                assert_eq!(call.outcome(), if tcp { Outcome::Answered } else { Outcome::Status(200) });
                assert_eq!(call.version.as_deref(), (call.to == "bookstore").then_some("v2"), "{call:?}");
                assert_eq!(call.identity_seen.as_deref(), (!tcp).then_some("none"), "{call:?}");
                seen.insert(format!("{} {} {} {}", call.from, call.to, call.method, call.path));
            }
            Record::Received(Received { at, from, method, path, .. }) => {
                assert_eq!(from, None);
                seen.insert(format!("at {at} {method} {path}"));
            }
        }
    }
    let expected = [
        "at bookstore-v2 GET /admin",
        "at bookstore-v2 GET /books-bought",
        "at bookstore-v2 GET /buy/a-new-book",
        "at bookwarehouse POST /restock",
        "at database TCP RESTOCK",
        "bookbuyer bookstore GET /admin",
        "bookbuyer bookstore GET /books-bought",
        "bookbuyer bookstore GET /buy/a-new-book",
        "bookbuyer bookwarehouse POST /restock",
        "bookstore-v2 bookwarehouse POST /restock",
        "bookwarehouse database TCP RESTOCK",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    programs.close().await;
}

#[tokio::test]
async fn the_identity_from_the_sidecar_is_returned_and_recorded() {
    let mut programs = Programs::new();
    let database = programs.database().await;
    let warehouse = programs.warehouse(database).await;
    let store = programs.store(Version::V1, warehouse).await;

    let identity = "spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer";
    let mut with_identity = http_request(Method::GET, "/books-bought", "");
    let header = HeaderValue::from_str(&format!("Hash=ab;URI={identity}")).unwrap();
    with_identity.headers.insert(CLIENT_CERT_HEADER, header);
    let response = send_once(&target(store), with_identity, TIME_LIMIT).await.unwrap();
    assert_eq!(response.header(IDENTITY_SEEN_HEADER).as_deref(), Some(identity));
    assert_eq!(response.header(VERSION_HEADER).as_deref(), Some("v1"));
    let [Record::Received(received)] = &programs.take(1).await[..] else { panic!("not a received record") };
    assert_eq!((received.at.as_str(), received.from.as_deref()), ("bookstore-v1", Some(identity)));
    programs.close().await;
}

#[tokio::test]
async fn every_server_answers_an_unknown_request_with_its_own_error() {
    let mut programs = Programs::new();
    let database = programs.database().await;
    let warehouse = programs.warehouse(database).await;
    let store = programs.store(Version::V1, warehouse).await;
    for (address, method, path, body, expected) in [
        (store, Method::GET, "/", "", 404),
        (store, Method::POST, "/books-bought", "", 405),
        (store, Method::GET, "/buy/", "", 400),
        (store, Method::GET, "/buy/a%20b", "", 400),
        (store, Method::GET, "/buy/a-new-book", "", 200),
        (warehouse, Method::GET, "/restock", "", 405),
        (warehouse, Method::POST, "/", "", 404),
        (warehouse, Method::POST, "/restock", "", 400),
        (warehouse, Method::POST, "/restock", "a b", 400),
        (warehouse, Method::POST, "/restock", "a\nb", 400),
        (warehouse, Method::POST, "/restock", &" ".repeat(5000)[..], 413),
        (warehouse, Method::POST, "/restock", "a", 200),
    ] {
        let response =
            send_once(&target(address), http_request(method.clone(), path, body), TIME_LIMIT).await.unwrap();
        assert_eq!(response.status, expected, "{method} {path} {body:.40}");
    }
    programs.close().await;
}

#[tokio::test]
async fn the_health_port_answers_only_probes() {
    let args = StoreArgs {
        store_version: Version::V1,
        listen: ANY,
        health_listen: ANY,
        bookwarehouse: "127.0.0.1:1".parse().unwrap(),
        timeout_ms: 100,
    };
    let store = Store::bind(args).await.unwrap();
    let health = store.health_address().unwrap();
    let (journal, _records) = Journal::new();
    let shutdown = CancellationToken::new();
    let program = tokio::spawn(store.run(journal, shutdown.clone()));
    assert_eq!(get(health, "/health").await.status, 200);
    assert_eq!(get(health, "/books-bought").await.status, 404);
    shutdown.cancel();
    tokio::time::timeout(TIME_LIMIT, program).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_sale_without_a_warehouse_is_not_made() {
    let mut programs = Programs::new();
    let away = HeldPort::loopback();
    let store = programs.store(Version::V1, away.address).await;
    assert_eq!(get(store, "/buy/a-new-book").await.status, 502);
    let records = programs.take(2).await;
    let Record::Call(call) = &records[0] else { panic!("not a call: {records:?}") };
    assert_eq!(call.outcome(), Outcome::Failed(CallError::ConnectionRefused));
    programs.close().await;
}

#[tokio::test]
async fn each_kind_of_failure_has_its_own_error() {
    let (closing, a) = stub_server(|stream| async move { drop(stream) }).await;
    let (silent, b) = stub_server(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let (babbling, c) = stub_server(|mut stream| async move {
        let _ = stream.read(&mut [0; 64]).await;
        let _ = stream.write_all(b"READY\n").await;
    })
    .await;
    let refusing = HeldPort::loopback();
    for (server, expected) in [
        (target(closing), CallError::ConnectionClosed),
        (target(silent), CallError::TimedOut),
        (target(babbling), CallError::Protocol),
        (target(refusing.address), CallError::ConnectionRefused),
        // An empty label, so that no name server is asked.
        (HostPort { host: Host::Name("book..store".to_owned()), port: 14001 }, CallError::NameNotResolved),
    ] {
        let mut programs = Programs::new();
        programs.shopper(Role::Bookthief, server.clone(), server.clone()).await;
        for record in programs.take(3).await {
            let Record::Call(call) = record else { panic!("a thief receives nothing: {record:?}") };
            assert_eq!(call.outcome(), Outcome::Failed(expected), "{server}");
            assert_eq!((call.version, call.identity_seen), (None, None));
        }
        programs.close().await;
    }
    for server in [a, b, c] {
        server.abort();
    }
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_causes_no_error() {
    let (address, server) = stub_server(|stream| async move {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
            line.clear();
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    })
    .await;
    let mut programs = Programs::new();
    programs.shopper(Role::Bookthief, target(address), target(address)).await;
    for record in programs.take(20).await {
        let Record::Call(call) = record else { panic!("a thief receives nothing: {record:?}") };
        assert_eq!(call.outcome(), Outcome::Status(200));
    }
    programs.close().await;
    server.abort();
}

#[tokio::test]
async fn the_database_speaks_first_and_refuses_unknown_commands() {
    let mut programs = Programs::new();
    let database = programs.database().await;
    for (command, expected) in [
        ("RESTOCK a\n", "OK 1\n"),
        ("RESTOCK b\n", "OK 2\n"),
        ("DROP TABLE\n", "ERR there is RESTOCK <book>\n"),
        ("RESTOCK\n", "ERR there is RESTOCK <book>\n"),
    ] {
        let mut stream = TcpStream::connect(database).await.unwrap();
        let mut greeting = [0; 6];
        tokio::time::timeout(TIME_LIMIT, stream.read_exact(&mut greeting)).await.unwrap().unwrap();
        assert_eq!(&greeting, b"READY\n");
        stream.write_all(command.as_bytes()).await.unwrap();
        let mut reply = String::new();
        // After the reply the server closes.
        tokio::time::timeout(TIME_LIMIT, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
        assert_eq!(reply, expected, "{command:?}");
    }
    programs.close().await;
}

#[tokio::test]
async fn the_database_closes_on_an_endless_line() {
    let mut programs = Programs::new();
    let database = programs.database().await;
    let mut stream = TcpStream::connect(database).await.unwrap();
    stream.write_all(&[b'x'; 4096]).await.unwrap();
    let mut heard = Vec::new();
    // The read may fail with a reset, as the server closes with unread bytes.
    let _ = tokio::time::timeout(TIME_LIMIT, stream.read_to_end(&mut heard)).await.unwrap();
    assert!(heard.is_empty() || heard == b"READY\n", "{heard:?}");
    programs.close().await;
}

#[tokio::test]
async fn a_warehouse_checks_the_greeting_of_its_database() {
    let (impostor, server) = stub_server(|mut stream| async move {
        let _ = stream.write_all(b"220 mail ready\r\n").await;
    })
    .await;
    let mut programs = Programs::new();
    let warehouse = programs.warehouse(impostor).await;
    let order = http_request(Method::POST, "/restock", "a");
    assert_eq!(send_once(&target(warehouse), order, TIME_LIMIT).await.unwrap().status, 502);
    let records = programs.take(1).await;
    let Record::Call(call) = &records[0] else { panic!("not a call: {records:?}") };
    assert_eq!(call.outcome(), Outcome::Failed(CallError::Protocol));
    programs.close().await;
    server.abort();
}

#[tokio::test]
async fn shutdown_does_not_wait_for_idle_connections() {
    let mut programs = Programs::new();
    let database = programs.database().await;
    let warehouse = programs.warehouse(database).await;
    let _idle_http = TcpStream::connect(warehouse).await.unwrap();
    let mut idle_tcp = TcpStream::connect(database).await.unwrap();
    idle_tcp.read_exact(&mut [0; 6]).await.unwrap();
    let before = tokio::time::Instant::now();
    programs.close().await;
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
}
