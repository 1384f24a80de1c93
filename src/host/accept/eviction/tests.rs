use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn at(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, n).into()
}

fn room(total: usize, per_address: usize) -> Room {
    Room::new(Bounds { total, per_address, fair: FAIR })
}

/// Adds as many connections from an address, for which none may leave.
fn fill(room: &mut Room, address: IpAddr, count: usize) -> Vec<Ticket> {
    let enter = |_| {
        let (ticket, evicted) = room.enter(address);
        assert_eq!(evicted, []);
        ticket
    };
    (0..count).map(enter).collect()
}

#[test]
fn an_address_that_has_its_places_loses_its_own_oldest() {
    let mut room = room(100, 3);
    let other = fill(&mut room, at(1), 1);
    let own = fill(&mut room, at(2), 3);
    for oldest in own {
        assert_eq!(room.enter(at(2)).1, [oldest]);
    }
    assert_eq!((room.waiting.len(), room.waiting.contains_key(&other[0])), (4, true));
}

#[test]
fn in_a_full_room_the_address_with_most_loses_its_oldest() {
    let mut room = room(30, 20);
    let early = fill(&mut room, at(1), FAIR);
    let many = fill(&mut room, at(2), 20);
    fill(&mut room, at(3), 2);
    for (newcomer, oldest) in (4..).zip(&many[..many.len() - FAIR]) {
        assert_eq!(room.enter(at(newcomer)).1, [*oldest]);
    }
    assert_eq!(room.enter(at(100)).1, [early[0]], "where none has more than its share, the oldest leaves");
}

/// Such as an API server, whose connection is the oldest of all.
#[test]
fn an_address_with_the_fair_number_loses_none_while_another_has_more() {
    let mut room = Room::new(Bounds { total: 256, per_address: 128, fair: 2 });
    let honest = fill(&mut room, at(0), 2);
    for round in 0..20 {
        for stranger in 1..=40 {
            for _ in 0..8 {
                room.enter(at(stranger));
            }
        }
        let replaced = room.enter(at(0)).0;
        assert!(honest.iter().all(|ticket| room.waiting.contains_key(ticket)), "round {round}");
        room.leave(replaced);
    }
}

#[test]
fn strangers_cannot_touch_the_places_of_an_address_that_is_vouched_for() {
    let mut room = room(10, 4);
    let member = fill(&mut room, at(1), 4);
    room.vouch(at(1));
    for n in 0..100 {
        room.enter(at(2 + n % 50));
    }
    assert!(member.iter().all(|ticket| room.waiting.contains_key(ticket)));
    assert_eq!(room.waiting.len(), 14, "they do not take the places of strangers either");
    assert_eq!(room.enter(at(1)).1, [member[0]]);
}

#[test]
fn addresses_are_vouched_for_until_newer_ones_have_been() {
    let mut room = room(2, 4);
    room.vouch(at(0));
    let own = fill(&mut room, at(0), 4);
    for n in 1..u8::try_from(MAX_VOUCHED).unwrap() {
        room.vouch(at(n));
    }
    let ticket = room.enter(at(200)).0;
    assert!(room.strangers.contains(&ticket) && room.strangers.len() == 1);
    room.vouch(at(100));
    assert_eq!(room.enter(at(200)).1, own, "those of the forgotten address are a stranger's now");
    assert_eq!(room.strangers.len(), 2);
}

#[test]
fn an_ipv6_network_and_a_mapped_ipv4_address_count_as_one_address() {
    for (one, other, same) in [
        ("10.0.0.1", "::ffff:10.0.0.1", true),
        ("10.0.0.1", "10.0.0.2", false),
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true),
        ("2001:db8::1", "2001:db8:0:1::1", false),
    ] {
        let [one, other] = [one, other].map(|text| source(text.parse().unwrap()));
        assert_eq!(one == other, same, "{one} {other}");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Enter(u8),
    Leave(usize),
    Vouch(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..40u8).prop_map(|n| Op::Enter(n.saturating_sub(20))),
        1 => (0..64usize).prop_map(Op::Leave),
        1 => (0..20u8).prop_map(Op::Vouch),
    ]
}

/// The same decision, by looking through a list.
#[derive(Default)]
struct Model {
    waiting: Vec<(Ticket, IpAddr)>,
    vouched: Vec<IpAddr>,
}

impl Model {
    fn at(&self, address: IpAddr) -> Vec<Ticket> {
        self.waiting.iter().filter(|(_, at)| *at == address).map(|(ticket, _)| *ticket).collect()
    }

    fn enter(&mut self, bounds: Bounds, address: IpAddr) -> Vec<Ticket> {
        let mut evicted = Vec::new();
        if self.at(address).len() >= bounds.per_address {
            evicted.push(self.at(address)[0]);
        }
        let leave =
            |waiting: &mut Vec<(Ticket, IpAddr)>, gone: Ticket| waiting.retain(|(ticket, _)| *ticket != gone);
        for gone in &evicted {
            leave(&mut self.waiting, *gone);
        }
        loop {
            let strangers: Vec<_> =
                self.waiting.iter().filter(|(_, at)| !self.vouched.contains(at)).copied().collect();
            if strangers.len() < bounds.total + usize::from(self.vouched.contains(&address)) {
                break;
            }
            let most = strangers.iter().map(|(_, at)| self.at(*at).len()).max().unwrap();
            let of_most = |at: IpAddr| most <= bounds.fair || self.at(at).len() == most;
            let victim = strangers.iter().find(|(_, at)| of_most(*at)).unwrap().0;
            leave(&mut self.waiting, victim);
            evicted.push(victim);
        }
        evicted
    }

    fn vouch(&mut self, address: IpAddr) {
        self.vouched.retain(|known| *known != address);
        self.vouched.push(address);
        if self.vouched.len() > MAX_VOUCHED {
            self.vouched.remove(0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_room_is_bounded_fair_and_decides_as_its_model(
        total in 1..40usize,
        per_address in 1..30usize,
        fair in 0..20usize,
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let bounds = Bounds { total, per_address, fair };
        let mut room = Room::new(bounds);
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Enter(n) => {
                    let before = model.waiting.clone();
                    let (ticket, evicted) = room.enter(at(n));
                    prop_assert_eq!(&evicted, &model.enter(bounds, at(n)));
                    model.waiting.push((ticket, at(n)));
                    for (gone, from) in before.iter().filter(|(ticket, _)| evicted.contains(ticket)) {
                        let newer = before.iter().filter(|(ticket, _)| ticket > gone).count();
                        // No peer is cut off before as many newer ones have come as the bounds allow for.
                        prop_assert!(newer + 1 >= fair.min(total).min(per_address));
                        prop_assert!(*from == at(n) || !model.vouched.contains(from));
                    }
                }
                Op::Leave(n) => {
                    if let Some((ticket, _)) = model.waiting.get(n).copied() {
                        model.waiting.remove(n);
                        room.leave(ticket);
                        room.leave(ticket);
                    }
                }
                Op::Vouch(n) => {
                    room.vouch(at(n));
                    model.vouch(at(n));
                }
            }
            prop_assert!(model.waiting.iter().all(|(_, from)| model.at(*from).len() <= per_address));
            prop_assert!(room.waiting.len() <= total + (MAX_VOUCHED + 1) * per_address);
            prop_assert_eq!(room.waiting.iter().map(|(t, a)| (*t, *a)).collect::<Vec<_>>(), &model.waiting[..]);
        }
        for (ticket, _) in model.waiting {
            room.leave(ticket);
        }
        prop_assert!(room.waiting.is_empty() && room.by_address.is_empty());
        prop_assert!(room.strangers.is_empty() && room.crowds.is_empty());
    }
}
