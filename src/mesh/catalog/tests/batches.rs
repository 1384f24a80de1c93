//! Many events at once leave what they leave one by one, at sizes at which backends are made from nothing and
//! at those at which they are changed.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// A pod of one of a few accounts, addresses and labels, many of which share an address.
fn of(number: usize, state: usize) -> Object {
    let app = ["web", "api", "none"][state % 3];
    let account = format!("shop/{}", ["web", "client", "other"][state / 3 % 3]);
    let address = format!("10.0.{}.{}", number % 2, (number * 7 + state) % 60);
    Object::from(pod(&format!("shop/w{number}"), &account, app, &address))
}

fn slice_of(first: usize) -> Object {
    let addresses: Vec<_> = (first..first + 40).map(|n| format!("10.0.0.{}", n % 60)).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    Object::EndpointSlice(slice("shop/e", "shop/sliced", &[("p80", 80)], &addresses))
}

/// One change of a mesh with so many pods.
fn change(pods: usize) -> impl Strategy<Value = SourceEvent> {
    (0..pods, 0..40_usize).prop_map(|(number, state)| match state {
        0..=19 => SourceEvent::Upsert(of(number, state)),
        20..=29 => SourceEvent::Remove(of(number, 0).reference()),
        30..=35 => SourceEvent::Upsert(slice_of(number)),
        36 => SourceEvent::Remove(slice_of(0).reference()),
        _ => SourceEvent::Upsert(Object::from(service(
            "shop/api",
            "api",
            &[port([80, 81, 82][number % 3], Http)],
        ))),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_of_any_size_leaves_what_its_events_leave_one_by_one(
        most in select(&[90, 100_000][..]),
        selected in select(&[100, 100_000, 100_000][..]),
        (pods, batches) in select(&[1_usize, 3, 80, 200][..]).prop_flat_map(|pods| {
            let batch = prop_oneof![1..4_usize, 60..250_usize];
            let batch = batch.prop_flat_map(move |size| prop::collection::vec(change(pods), size));
            (Just(pods), prop::collection::vec(batch, 1..5))
        }),
    ) {
        let mut together = Catalog::with_budgets(most, selected).and(shop());
        let sliced = service("shop/sliced", "web", &[port(80, Http), port(81, Tcp)]);
        let first: Vec<_> = (0..pods).map(|n| of(n, n)).chain([Object::from(sliced), slice_of(0)]).collect();
        together.apply_all(&first.into_iter().map(SourceEvent::Upsert).collect::<Vec<_>>());
        let mut one_by_one = together.clone();
        for batch in batches {
            together.apply_all(&batch);
            for event in batch {
                one_by_one.apply(event);
            }
            prop_assert_eq!(&together, &one_by_one);
        }
    }
}
