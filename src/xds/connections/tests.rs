use proptest::prelude::*;

use super::*;
use crate::resource::ResourceType;
use smc_types::ids::ProxyUuid;

const ADS: Scope = Scope::Aggregated;
const SDS: Scope = Scope::Only(ResourceType::Secret);

fn proxy(n: usize) -> ProxyName {
    ProxyName::new(ProxyUuid(uuid::Uuid::from_u128(n as u128)), "bookstore").unwrap()
}

fn serial(n: u8) -> SerialNumber {
    SerialNumber::draw([n; 16])
}

/// A new connection of proxy `n`, and the connection of that proxy that is closed for it.
fn connect(connections: &mut Connections, n: usize) -> (ConnectionId, Option<ConnectionId>) {
    let (id, _) = connections.accept().unwrap();
    (id, connections.identify(id, &proxy(n), serial(1)))
}

fn open(connections: &mut Connections, id: ConnectionId, scope: Scope) -> Opened {
    connections.open_stream(id, scope).unwrap().unwrap()
}

/// Adds a connection with a stream, of a proxy without others. Returns the connection that is closed for it.
fn connect_another(connections: &mut Connections) -> Result<Option<ConnectionId>, TooManyConnections> {
    let (id, evicted) = connections.accept()?;
    connections.identify(id, &proxy(1_000_000 + usize::try_from(id.0).unwrap()), serial(1));
    open(connections, id, ADS);
    Ok(evicted)
}

#[test]
fn the_oldest_idle_connection_of_a_proxy_is_closed_for_its_newest() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let own: Vec<_> = (0..MAX_CONNECTIONS_PER_PROXY).map(|_| connect(&mut connections, 1).0).collect();
    let (other, _) = connect(&mut connections, 2);
    open(&mut connections, own[0], ADS);
    assert_eq!(connect(&mut connections, 1).1, Some(own[1]));
    assert_eq!(connections.of(&proxy(1)).count(), MAX_CONNECTIONS_PER_PROXY);
    assert_eq!(connections.of(&proxy(2)).collect::<Vec<_>>(), [other]);
}

#[test]
fn a_proxy_with_half_open_connections_with_streams_can_connect() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let mut own = Vec::new();
    for _ in 0..MAX_CONNECTIONS_PER_PROXY {
        let (id, _) = connect(&mut connections, 1);
        open(&mut connections, id, SDS);
        own.push(id);
    }
    assert_eq!(connect(&mut connections, 1).1, Some(own[0]));
}

#[test]
fn a_connection_with_a_late_certificate_is_not_closed_for_itself() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let (early, _) = connections.accept().unwrap();
    let own: Vec<_> = (0..MAX_CONNECTIONS_PER_PROXY).map(|_| connect(&mut connections, 1).0).collect();
    assert_eq!(connections.identify(early, &proxy(1), serial(1)), Some(own[0]));
}

#[test]
fn connections_without_a_certificate_are_closed_first_with_a_stream_never() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let (anonymous, _) = connections.accept().unwrap();
    let (idle, _) = connect(&mut connections, 1);
    let (younger, _) = connections.accept().unwrap();
    while connections.len() < MAX_CONNECTIONS {
        assert_eq!(connect_another(&mut connections), Ok(None));
    }
    for expected in [anonymous, younger, idle] {
        assert_eq!(connect_another(&mut connections), Ok(Some(expected)));
    }
    assert_eq!(connect_another(&mut connections), Err(TooManyConnections { max: MAX_CONNECTIONS }));
    assert_eq!(connections.len(), MAX_CONNECTIONS);
}

#[test]
fn a_newer_aggregated_stream_of_a_proxy_ends_the_older_one() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let [(first, _), (second, _)] = [(); 2].map(|()| connect(&mut connections, 1));
    let (other, _) = connect(&mut connections, 2);
    open(&mut connections, other, ADS);
    let separate = open(&mut connections, first, SDS);
    let older = open(&mut connections, first, ADS);
    assert_eq!((separate.ended, older.ended), (vec![], vec![]));
    let newer = open(&mut connections, second, ADS);
    assert_eq!(newer.ended, [older.stream]);
    assert_eq!(open(&mut connections, second, ADS).ended, [newer.stream]);
}

#[test]
fn too_many_separate_streams_end_one_elsewhere_or_refuse_the_newest() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let [(first, _), (second, _)] = [(); 2].map(|()| connect(&mut connections, 1));
    let older: Vec<_> =
        (0..MAX_SEPARATE_STREAMS).map(|_| open(&mut connections, first, SDS).stream).collect();
    assert_eq!(connections.open_stream(first, SDS), Err(Excess::Streams));
    let kind = Scope::Only(ResourceType::Cluster);
    for expected in older {
        assert_eq!(open(&mut connections, second, kind).ended, [expected]);
    }
    assert_eq!(connections.open_stream(second, SDS), Err(Excess::Streams));
    let (other, _) = connect(&mut connections, 2);
    assert_eq!(open(&mut connections, other, SDS).ended, []);
}

#[test]
fn the_names_of_all_streams_of_a_proxy_are_bounded_together() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let [(first, _), (second, _)] = [(); 2].map(|()| connect(&mut connections, 1));
    let (other, _) = connect(&mut connections, 2);
    let foreign = open(&mut connections, other, ADS).stream;
    let older = open(&mut connections, first, ADS).stream;
    assert_eq!(connections.hold(foreign, MAX_HELD_BYTES), Ok(()));
    assert_eq!(connections.hold(older, MAX_HELD_BYTES), Ok(()));
    // The older one is on its way out.
    let newer = open(&mut connections, second, ADS).stream;
    assert_eq!(connections.hold(newer, MAX_HELD_BYTES - 1), Ok(()));
    assert_eq!(connections.hold(older, MAX_HELD_BYTES), Ok(()));
    let separate = open(&mut connections, first, SDS).stream;
    assert_eq!(connections.hold(separate, 1), Ok(()));
    assert_eq!(connections.hold(separate, 2), Err(Excess::Names(MAX_HELD_BYTES + 1)));
    connections.end_stream(newer);
    assert_eq!(connections.hold(separate, 2), Ok(()));
}

#[test]
fn a_closed_connection_is_removed_and_never_returned_again() {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let (id, _) = connect(&mut connections, 1);
    let stream = open(&mut connections, id, ADS).stream;
    assert_eq!(connections.certificates().count(), 1);
    connections.close(id);
    assert_eq!(connections.open_stream(id, ADS), Ok(None));
    assert_eq!(connections.identify(id, &proxy(1), serial(1)), None);
    assert_eq!(connections.hold(stream, MAX_HELD_BYTES + 1), Ok(()));
    connections.end_stream(stream);
    connections.close(id);
    assert!(connections.is_empty() && connections.idle.is_empty() && connections.by_proxy.is_empty());
}

#[derive(Debug, Clone)]
enum Op {
    Accept,
    Identify(prop::sample::Index, usize),
    Open(prop::sample::Index, bool),
    EndStream(prop::sample::Index),
    Close(prop::sample::Index),
}

fn any_op() -> impl Strategy<Value = Op> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        3 => Just(Op::Accept),
        3 => (at(), 0..3_usize).prop_map(|(at, n)| Op::Identify(at, n)),
        6 => (at(), any::<bool>()).prop_map(|(at, aggregated)| Op::Open(at, aggregated)),
        2 => at().prop_map(Op::EndStream),
        1 => at().prop_map(Op::Close),
    ]
}

#[test]
fn a_process_with_few_descriptors_has_few_connections() {
    for (descriptors, connections) in [
        (0, 1),
        (1, 1),
        (256, 128),
        (1024, 512),
        (4096, 3584),
        (20_512, 20_000),
        (1 << 20, MAX_CONNECTIONS),
        (u64::MAX, MAX_CONNECTIONS),
    ] {
        assert_eq!(max_connections(descriptors), connections, "{descriptors}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_bounds_and_the_indexes_hold_whatever_happens(ops in proptest::collection::vec(any_op(), 1..300)) {
        let mut connections = Connections::new(MAX_CONNECTIONS);
        let (mut ids, mut unnamed, mut streams) = (vec![], vec![], vec![]);
        for op in ops {
            match op {
                Op::Accept => {
                    let (id, _) = connections.accept().unwrap();
                    ids.push(id);
                    unnamed.push(id);
                }
                Op::Identify(at, n) if !unnamed.is_empty() => {
                    let id = unnamed.remove(at.index(unnamed.len()));
                    connections.identify(id, &proxy(n), serial(1));
                }
                Op::Open(at, aggregated) if !ids.is_empty() => {
                    let scope = if aggregated { ADS } else { SDS };
                    if let Ok(Some(opened)) = connections.open_stream(ids[at.index(ids.len())], scope) {
                        streams.push(opened.stream);
                    }
                }
                Op::EndStream(at) if !streams.is_empty() => {
                    connections.end_stream(streams[at.index(streams.len())]);
                }
                Op::Close(at) if !ids.is_empty() => connections.close(ids[at.index(ids.len())]),
                _ => {}
            }
            let idle: BTreeSet<_> = connections
                .open
                .iter()
                .filter(|(_, connection)| connection.streams.is_empty())
                .map(|(id, connection)| (connection.owner.is_some(), *id))
                .collect();
            prop_assert_eq!(&connections.idle, &idle);
            let mut by_proxy: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            for (id, connection) in &connections.open {
                if let Some((proxy, _)) = &connection.owner {
                    by_proxy.entry(proxy.clone()).or_default().insert(*id);
                }
            }
            prop_assert_eq!(&connections.by_proxy, &by_proxy);
            for (proxy, own) in &by_proxy {
                prop_assert!(own.len() <= MAX_CONNECTIONS_PER_PROXY);
                let own = connections.connections_of(proxy).flat_map(|connection| connection.streams.values());
                let (aggregated, separate): (Vec<_>, Vec<_>) = own.partition(|stream| stream.scope == ADS);
                prop_assert!(aggregated.len() <= 1 && separate.len() <= MAX_SEPARATE_STREAMS);
            }
        }
    }
}
