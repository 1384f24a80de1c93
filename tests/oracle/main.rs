//! Policy, judged by real Envoys: random meshes and random requests, compared with what the policy oracle
//! ([`smc_policy`]) says of them.
//!
//! Each mesh is YAML. The controller's code reads and translates it, as ever; the oracle reads it on its
//! own. Of what Envoys are sent, only the places are changed (`config.rs`): listeners are Unix sockets, the
//! destination of an intercepted connection comes by the PROXY protocol, and what is let through is
//! answered by Envoy itself. Matching, RBAC rules, TLS contexts and certificates are untouched. One Envoy
//! runs the sidecars of many meshes at once. A disagreement is made as small as possible, and printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking; helpers outside of #[test] functions are tests, too"
)]

mod certificates;
mod client;
mod clusters;
mod config;
mod envoy;
mod generate;
mod http2;
mod inbound;
mod judge;
mod outbound;
mod outside;
mod outsiders;
mod requests;
mod shrink;
mod tally;

use generate::Case;
use judge::{Disagreement, Emission};
use smc_policy::Version;
use smc_testkit::setting::setting;
use tally::Tally;

/// Meshes in one Envoy.
const BATCH: usize = 20;

/// Judges `cases` meshes from the seed on, until a disagreement.
fn search(
    case: fn(u64) -> Case,
    seed: u64,
    cases: u64,
    emission: Emission,
    tally: &mut Tally,
) -> Option<Disagreement> {
    let seeds: Vec<u64> = (seed..seed + cases).collect();
    for seeds in seeds.chunks(BATCH) {
        let cases: Vec<_> = seeds.iter().map(|seed| case(*seed)).collect();
        eprintln!("meshes from seed {}", seeds[0]);
        if let Some(found) = judge::judge(&cases, emission, tally) {
            eprintln!("to be made smaller: {found}");
            return Some(found);
        }
    }
    None
}

/// `SMC_CASES` meshes from `SMC_SEED` on, on which both agree.
fn agreed(case: fn(u64) -> Case, cases: u64) -> Tally {
    let (seed, cases) = (setting("SMC_SEED").unwrap_or(1), setting("SMC_CASES").unwrap_or(cases));
    let mut tally = Tally::default();
    let found = search(case, seed, cases, Emission::AsServed, &mut tally);
    eprintln!("SMC_SEED={seed} SMC_CASES={cases}: {tally}");
    if let Some(found) = found {
        panic!("{}", shrink::smallest(found, Emission::AsServed));
    }
    tally
}

#[test]
fn envoys_decide_as_the_policy_oracle_does() {
    agreed(generate::case, 40).assert_that_it_says_something();
}

/// Of what comes from outside of the mesh.
#[test]
fn envoys_let_in_of_outside_what_the_policy_oracle_does() {
    agreed(outsiders::case, 24).assert_that_some_are_let_in();
}

/// Each hole that an ingress could have, put in on purpose.
#[test]
fn the_search_finds_each_condition_of_an_ingress_that_is_left_out() {
    for emission in
        [Emission::ClaimedAddressesDecide, Emission::AddressesForgotten, Emission::ServerNamesForgotten]
    {
        let found = search(outsiders::case, 1, 400, emission, &mut Tally::default()).expect("it is found");
        assert!(
            found.to_string().contains("Envoy lets it in: true, the oracle: false"),
            "{emission:?}: {found}"
        );
    }
}

/// The harness itself: the smallest disagreement that a fault leads to, which is put in on purpose.
fn find(emission: Emission) -> Disagreement {
    let mut tally = Tally::default();
    let found = search(generate::case, 1, 400, emission, &mut tally).expect("it is found");
    let found = shrink::smallest(found, emission);
    eprintln!("{tally}\n{found}");
    found
}

/// Without the second half of a header's condition, a header that is sent twice passes if one value matches,
/// which is what a security review found.
#[test]
fn the_search_finds_headers_of_which_any_value_suffices() {
    let found = find(Emission::AnyHeaderValueSuffices);
    assert!(found.to_string().contains("Envoy allows it, and the oracle does not"), "{found}");
    let headers = &found.case.requests[0].headers;
    let repeated = |(at, (name, _)): (usize, &(String, Vec<u8>))| {
        headers[..at].iter().any(|(before, _)| before.eq_ignore_ascii_case(name))
    };
    assert!(headers.iter().enumerate().any(repeated), "a header is there twice: {found}");
}

#[test]
fn the_search_finds_what_passes_over_http2_alone() {
    let found = find(Emission::Http2Passes);
    assert!(found.to_string().contains("Envoy allows it, and the oracle does not"), "{found}");
    assert_eq!(found.case.requests[0].version, Version::Http2, "it does not pass in HTTP/1.1: {found}");
}

#[test]
fn the_search_finds_services_on_one_port_with_exchanged_names() {
    let found = find(Emission::ServerNamesExchanged);
    let services = found.case.objects.iter().filter(|object| object["kind"] == "Service");
    assert!(services.count() >= 2, "{found}");
}
