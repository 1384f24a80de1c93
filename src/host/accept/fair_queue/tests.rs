use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_millis(1);

fn at(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, n).into()
}

/// Enters connections of these addresses, and returns the addresses in the order of their turns.
fn turns_of(addresses: &[u8]) -> Vec<u8> {
    let mut queue = Queue::new(1);
    assert_eq!(queue.enter(at(0)), None);
    let numbers: BTreeMap<_, _> =
        addresses.iter().map(|&n| (queue.enter(at(n)).expect("the turn is taken"), n)).collect();
    std::iter::from_fn(|| queue.next()).map(|number| numbers[&number]).collect()
}

#[test]
fn addresses_have_their_turns_one_after_the_other() {
    for (came, turns, sentence) in [
        (vec![], vec![], "nothing waits"),
        (vec![1, 1, 1], vec![1, 1, 1], "one address may have all"),
        (vec![1, 2, 3], vec![1, 2, 3], "in the order in which they came"),
        (vec![1, 1, 1, 1, 2], vec![1, 2, 1, 1, 1], "a crowd delays another address by one turn"),
        (vec![1, 1, 2, 2, 3], vec![1, 2, 3, 1, 2], "all have one before any has two"),
    ] {
        assert_eq!(turns_of(&came), turns, "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_goes_on_when_a_turn_ends() {
    let turns = Turns::new(2);
    let first = turns.wait(at(1)).await;
    let _second = turns.wait(at(1)).await;
    let third = turns.wait(at(2));
    tokio::pin!(third);
    assert!(timeout(SOON, &mut third).await.is_err());
    assert_eq!(turns.waiting(), 1);
    drop(first);
    let _third = third.await;
    assert_eq!(turns.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_gives_up_takes_no_turn_with_it() {
    let turns = Turns::new(1);
    let first = turns.wait(at(1)).await;
    assert!(timeout(SOON, turns.wait(at(2))).await.is_err());
    assert_eq!(turns.waiting(), 0);
    let mut called = Box::pin(turns.wait(at(3)));
    assert!(timeout(SOON, &mut called).await.is_err());
    drop(first);
    // It is called, and never learns of it.
    drop(called);
    timeout(SOON, turns.wait(at(4))).await.expect("the turn is free again");
}

proptest! {
    /// Never more turns than there are, none lost, none given while another address waits longer.
    #[test]
    fn turns_are_neither_lost_nor_made(at_once in 1..4_usize, steps in prop::collection::vec((0..3_u8, 0..4_u8), 1..200)) {
        let mut queue = Queue::new(at_once);
        let (mut held, mut waiting) = (0, Vec::new());
        for (step, n) in steps {
            match step {
                0 => match queue.enter(at(n)) {
                    None => held += 1,
                    Some(number) => waiting.push((number, n)),
                },
                1 if held > 0 => match queue.next() {
                    Some(number) => waiting.retain(|(other, _)| *other != number),
                    None => held -= 1,
                },
                2 if !waiting.is_empty() => {
                    let (number, n) = waiting.remove(usize::from(n) % waiting.len());
                    queue.leave(at(n), number);
                }
                _ => {}
            }
            prop_assert_eq!(queue.free + held, at_once);
            prop_assert!(queue.free == 0 || waiting.is_empty());
            let known: usize = queue.waiting.values().map(|waiting| waiting.numbers.len()).sum();
            prop_assert_eq!(known, waiting.len());
            prop_assert_eq!(queue.order.len(), queue.waiting.len());
        }
    }
}
