//! Versions of kinds as text, behind the hash in the version of a resource.
//!
//! Owns the syntax: `@P2kdS1x`. A letter and a number for each kind that has a version, the lowest version
//! first; the number is the difference to the version before it, in base 36. Every resource of every response
//! carries the text, so it is short: eight kinds with versions of seven digits take 46 bytes at most. Equal
//! versions are equal texts.
//!
//! A letter that is not known here belongs to a later SMC, and says nothing. Nor does one decimal number for
//! all kinds, which an earlier SMC wrote.

use smc_types::object_ref::Kind;

use super::Versions;
use crate::resource::InvalidVersion;

/// What stands between the hash and the versions.
pub(super) const MARK: char = '@';

/// The letters that kinds can have: `A` to `Z`. The digits of numbers are the other letters.
const LETTERS: usize = 26;

const BASE: u64 = 36;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The digits of the largest number.
const MAX_DIGITS: usize = 13;

/// The longest text, without the mark: each letter is there once.
const MAX_LEN: usize = LETTERS * (1 + MAX_DIGITS);

/// The kind of each letter.
const KINDS: [Option<Kind>; LETTERS] = {
    let mut kinds = [None; LETTERS];
    let mut at = 0;
    while at < Kind::ALL.len() {
        let place = (Kind::ALL[at].spec().letter - b'A') as usize;
        assert!(kinds[place].is_none(), "two kinds have one letter");
        kinds[place] = Some(Kind::ALL[at]);
        at += 1;
    }
    kinds
};

/// Writes versions, with the mark; nothing if there are none.
pub(super) fn write(versions: &Versions) -> String {
    let mut sorted: Vec<(u64, u8)> =
        versions.each().map(|(kind, version)| (version, kind.spec().letter)).collect();
    sorted.sort_unstable();
    let mut text = String::new();
    let mut before = 0;
    for (version, letter) in sorted {
        if text.is_empty() {
            text.push(MARK);
        }
        text.push(char::from(letter));
        put_number(version - before, &mut text);
        before = version;
    }
    text
}

fn put_number(mut number: u64, text: &mut String) {
    let mut digits = [0; MAX_DIGITS];
    let mut from = MAX_DIGITS;
    loop {
        from -= 1;
        // The remainder is less than 36: its lowest byte is all of it.
        digits[from] = DIGITS[usize::from((number % BASE).to_le_bytes()[0])];
        number /= BASE;
        if number == 0 {
            break;
        }
    }
    text.extend(digits[from..].iter().copied().map(char::from));
}

/// Reads what follows the mark: exactly what [`write`] makes of some versions, of kinds that may be unknown.
/// Takes time in proportion to the length of the text, and that is bounded.
pub(super) fn read(text: &str) -> Result<Versions, InvalidVersion> {
    let mut versions = Versions::default();
    if is_old(text) {
        return Ok(versions);
    }
    if text.is_empty() || text.len() > MAX_LEN {
        return Err(InvalidVersion);
    }
    let mut rest = text.as_bytes();
    let mut seen = [false; LETTERS];
    // No letter comes behind this one, so that the first number is not 0.
    let (mut before, mut version) = (u8::MAX, 0_u64);
    while let Some((&letter, tail)) = rest.split_first() {
        let place = usize::from(letter.wrapping_sub(b'A'));
        let seen = seen.get_mut(place).ok_or(InvalidVersion)?;
        let end = tail.iter().position(u8::is_ascii_uppercase).unwrap_or(tail.len());
        let (digits, next) = tail.split_at(end);
        let number = number(digits).ok_or(InvalidVersion)?;
        if std::mem::replace(seen, true) || (number == 0 && letter <= before) {
            return Err(InvalidVersion);
        }
        version = version.checked_add(number).ok_or(InvalidVersion)?;
        if let Some(kind) = KINDS[place] {
            versions.set(kind, version);
        }
        (rest, before) = (next, letter);
    }
    Ok(versions)
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(36).map(u64::from);
    digits.iter().try_fold(0_u64, |number, of| number.checked_mul(BASE)?.checked_add(digit(*of)?))
}

/// Returns true for the one number that an earlier SMC wrote for all kinds.
fn is_old(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn versions(of: &[(Kind, u64)]) -> Versions {
        of.iter().copied().collect()
    }

    /// A letter here is never changed, and a new kind gets one.
    #[test]
    fn the_letters_of_kinds_do_not_change() {
        let pinned = "A ServiceAccount, C TCPRoute, D TrafficSplit, E EndpointSlice, G Egress, H HTTPRouteGroup, \
             I IngressBackend, K MeshRootCertificate, M MeshConfig, N Namespace, P Pod, R Retry, S Service, \
             T TrafficTarget, U UDPRoute, W MeshWorkload, X ExtensionService, Y Telemetry, Z UpstreamTrafficSetting";
        let mut letters: Vec<String> =
            Kind::ALL.iter().map(|kind| format!("{} {kind}", char::from(kind.spec().letter))).collect();
        letters.sort_unstable();
        assert_eq!(letters.join(", "), pinned);
    }

    #[test]
    fn versions_are_written_as_differences_from_the_lowest_on() {
        for (of, text) in [
            (&[][..], ""),
            (&[(Kind::Namespace, 1)], "@N1"),
            (&[(Kind::Namespace, 36), (Kind::Pod, 71), (Kind::Service, 35)], "@SzN1Pz"),
            (&[(Kind::Service, 9), (Kind::Pod, 9), (Kind::Egress, 9)], "@G9P0S0"),
            (&[(Kind::Pod, u64::MAX)], "@P3w5e11264sgsf"),
        ] {
            let versions = versions(of);
            assert_eq!(write(&versions), text);
            assert_eq!(read(text.trim_start_matches(MARK)).ok(), (!text.is_empty()).then_some(versions));
        }
    }

    #[test]
    fn what_is_not_written_so_is_no_version() {
        let long = format!("P{}", "z".repeat(MAX_LEN));
        for text in [
            "",
            "P",
            "p",
            "7P",
            "P7S",
            "PS7",
            "P 7",
            "P+7",
            "P-7",
            "P7 ",
            "P7.",
            "Pä",
            "@P7",
            "P07",
            "P00",
            "P7S01", // a number has no zeros before it
            "P0",
            "P0S7", // nothing changed at 0
            "P7P8",
            "P7S1P1", // a kind has one version
            "S7P0",   // in the order of letters at one version
            "P3w5e11264sgsg",
            "P3w5e11264sgsfS1",
            "P10000000000000", // more than 64 bits
            "18446744073709551616",
            "+7",
            "7.",
            "-7",
            &long,
        ] {
            assert_eq!(read(text), Err(InvalidVersion), "{text}");
        }
    }

    #[test]
    fn a_number_for_all_kinds_says_nothing_of_any() {
        for text in ["0", "7", "1234567", "18446744073709551615"] {
            assert_eq!(read(text), Ok(Versions::default()), "{text}");
        }
    }

    #[test]
    fn the_letters_of_other_versions_of_smc_are_skipped() {
        assert!(KINDS[usize::from(b'Q' - b'A')].is_none() && KINDS[usize::from(b'V' - b'A')].is_none());
        assert_eq!(read("Q5P2V1S3"), Ok(versions(&[(Kind::Pod, 7), (Kind::Service, 11)])));
        assert_eq!(read("P5Q0"), Ok(versions(&[(Kind::Pod, 5)])));
        assert_eq!(read("Q5"), Ok(Versions::default()));
        assert_eq!(read("Q5Q6"), Err(InvalidVersion));
    }

    #[test]
    fn eight_kinds_of_seven_digits_take_46_bytes_at_most() {
        // As many differences of five digits as there is room for.
        let mut version = 0;
        let longest = Kind::ALL[..8].iter().enumerate().map(|(at, kind)| {
            version += BASE.pow(if at < 5 { 4 } else { 3 });
            (*kind, version)
        });
        let longest: Versions = longest.collect();
        assert!(longest.each().all(|(_, version)| version < 10_000_000));
        assert_eq!(write(&longest).len(), 46);
        let all = (1_u64..).zip(Kind::ALL).map(|(part, kind)| (*kind, part * (u64::MAX / 32)));
        assert!(write(&all.collect()).len() <= 1 + MAX_LEN);
    }

    fn any_versions() -> impl Strategy<Value = Versions> {
        let version = prop_oneof![Just(0), 1..4_u64, 1..10_000_000_u64, any::<u64>()];
        proptest::collection::vec(version, Kind::ALL.len())
            .prop_map(|versions| Kind::ALL.iter().copied().zip(versions).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(versions in any_versions()) {
            let text = write(&versions);
            prop_assert!(text.len() <= 1 + MAX_LEN);
            prop_assert_eq!(read(&text[text.len().min(1)..]).unwrap_or_default(), versions);
        }

        #[test]
        fn eight_kinds_of_seven_digits_are_short(
            versions in proptest::sample::subsequence(Kind::ALL, 8),
            numbers in proptest::collection::vec(1..10_000_000_u64, 8),
        ) {
            let text = write(&versions.into_iter().zip(numbers).collect());
            prop_assert!(text.len() <= 46, "{}", text);
        }

        #[test]
        fn no_text_is_read_in_two_ways(text in "([A-Z][0-9a-z]{0,3}){0,6}|[@A-Za-z0-9+. ]{0,30}|\\PC{0,20}") {
            if let Ok(versions) = read(&text) && !text.bytes().any(|letter| b"BFJKLOQVX".contains(&letter)) {
                prop_assert!(is_old(&text) || write(&versions) == format!("@{text}"), "{}", text);
            }
        }
    }
}
