//! Trust in a small mesh under any order of events: the holders of valid certificates trust each
//! other, and every proxy trusts every controller.

mod model;

use proptest::prelude::*;

use super::*;
use crate::rules::RootRole;
use model::{Event, Mesh, PROXIES};

fn any_event() -> impl Strategy<Value = Event> {
    let proxy = || 0..PROXIES;
    let span = prop_oneof![
        4 => 1..3u32,
        4 => 20..60u32,
        1 => 24 * 30..24 * 400u32,
    ];
    prop_oneof![
        4 => span.prop_map(|hours| Event::Wait(HOUR * hours)),
        3 => proxy().prop_map(Event::Connect),
        1 => proxy().prop_map(Event::Disconnect),
        4 => proxy().prop_map(Event::Push),
        1 => proxy().prop_map(Event::PushRefusingRoots),
        4 => Just(Event::Settle),
        2 => proxy().prop_map(Event::Bootstrap),
        1 => proxy().prop_map(Event::Release),
        4 => Just(Event::Renew),
        3 => proxy().prop_map(Event::Forget),
        2 => (0..2u8).prop_map(Event::Serve),
        4 => (0..2u8).prop_map(Event::Acknowledge),
        1 => Just(Event::RotateIssuing),
        2 => Just(Event::RotateRoot),
        6 => any::<bool>().prop_map(Event::Plan),
        1 => (0..4u8).prop_map(Event::Repeat),
        1 => Just(Event::Prune),
        3 => proptest::option::weighted(0.9, any_roles()).prop_map(Event::Declare),
    ]
}

fn any_roles() -> impl Strategy<Value = [Option<RootRole>; 3]> {
    use RootRole::{Active, Inactive, Passive};

    let role = || {
        proptest::sample::select(vec![None, None, Some(Passive), Some(Active), Some(Active), Some(Inactive)])
    };
    [role(), role(), role()]
}

/// A case that only a certain order of rare events reaches.
#[test]
fn a_proxy_that_refused_a_root_is_waited_for_also_after_it_disconnects() {
    for disconnects in [true, false] {
        let mut mesh = Mesh::new(Book::new());
        let old = mesh.book.authority().root.serial;
        let happen = |mesh: &mut Mesh, events: &[Event]| {
            for event in events {
                mesh.happen(*event);
                mesh.check().unwrap();
            }
        };
        let refused = [Event::RotateRoot, Event::Wait(40 * HOUR), Event::Renew, Event::PushRefusingRoots(0)];
        happen(&mut mesh, &refused);
        if disconnects {
            happen(&mut mesh, &[Event::Disconnect(0), Event::Settle]);
        }
        let acknowledged = [Event::Acknowledge(0), Event::Acknowledge(1), Event::Push(1)];
        happen(&mut mesh, &acknowledged);
        happen(&mut mesh, &[Event::Wait(20 * HOUR), Event::Plan(true)]);
        happen(&mut mesh, &[Event::Wait(HOUR), Event::Renew, Event::Push(1), Event::Serve(0)]);
        assert_eq!(mesh.book.authority().root.serial, old, "{disconnects}");
        happen(&mut mesh, &[Event::Settle, Event::Wait(60 * HOUR), Event::Plan(true), Event::Settle]);
        assert_ne!(mesh.book.authority().root.serial, old, "{disconnects}");
    }
}

/// Every proxy holds a certificate and is cut off, and every identity is taken for unused.
#[test]
fn a_next_root_waits_for_certificates_that_are_forgotten_in_use() {
    let mut mesh = Mesh::new(Book::of_the_latest_rules());
    let old = mesh.book.authority().root.serial;
    let happen = |mesh: &mut Mesh, events: &[Event]| {
        for event in events {
            mesh.happen(*event);
            mesh.check().unwrap();
        }
    };
    let cut_off: Vec<_> = (0..PROXIES).map(Event::Disconnect).chain([Event::Wait(2 * HOUR)]).collect();
    happen(&mut mesh, &cut_off);
    happen(&mut mesh, &(0..PROXIES).map(Event::Forget).collect::<Vec<_>>());
    assert_eq!(mesh.book.ledger.service_certificates().count(), 0);
    happen(&mut mesh, &[Event::RotateRoot, Event::Acknowledge(0), Event::Acknowledge(1)]);
    let signs = [Event::Wait(HOUR), Event::Plan(true), Event::Connect(1), Event::Renew, Event::Push(1)];
    happen(&mut mesh, &signs);
    assert_eq!(mesh.book.authority().root.serial, old);
    happen(&mut mesh, &[Event::Wait(60 * HOUR), Event::Plan(true), Event::Settle]);
    assert_ne!(mesh.book.authority().root.serial, old);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn holders_of_valid_certificates_trust_each_other_in_any_order_of_events(
        events in proptest::collection::vec(any_event(), 0..120),
        latest in any::<bool>(),
    ) {
        let mut mesh = Mesh::new(if latest { Book::of_the_latest_rules() } else { Book::new() });
        for event in events {
            mesh.happen(event);
            mesh.check()?;
        }
    }
}
