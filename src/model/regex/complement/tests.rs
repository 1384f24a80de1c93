use proptest::prelude::*;
use regex::bytes::{Regex, RegexBuilder};

use super::*;

/// With more steps than an expression can take.
fn complement(text: &str) -> Result<Option<String>, Refusal> {
    super::complement(text, &mut Steps::new(u64::MAX))
}

/// A full match on bytes, as Envoy does it. RE2's `\C` is written as the `regex` crate knows it.
fn full(text: &str) -> Regex {
    let text = text.replace(r"\C", r"[\x00-\xff]");
    RegexBuilder::new(&format!(r"\A(?:{text})\z")).unicode(false).size_limit(1 << 26).build().unwrap()
}

/// Whether exactly one of the expression and its complement matches each value.
fn divides(text: &str, values: &[&[u8]]) {
    let (matching, other) = (full(text), complement(text).unwrap());
    let other = other.map(|other| full(&other));
    for value in values {
        let left = other.as_ref().is_some_and(|other| other.is_match(value));
        assert_ne!(matching.is_match(value), left, "{text} on {:?}", String::from_utf8_lossy(value));
    }
}

#[test]
fn each_value_matches_either_an_expression_or_its_complement() {
    let values: [&[u8]; 14] = [
        b"",
        b"t",
        b"t1",
        b"t12",
        b"xt1",
        b"t1x",
        b"evil,t1",
        b"t1,t2",
        b"An Android phone",
        b"T1",
        b"a b",
        b"ab",
        b"\xc3\xa9",
        b"t\xff",
    ];
    for text in [
        "",
        "t[0-9]+",
        "(?i)t1",
        ".*Android.*",
        ".+",
        ".",
        "..",
        "[^t].*",
        "(t1|t12|x.*)?",
        r"\w+\s\w+",
        r"a\b.*",
        r"^t1$|^$",
        r"\W*",
        "(?:ab?)*",
        ".*(t1|1x)",
        "x{0}",
    ] {
        divides(text, &values);
    }
}

#[test]
fn an_expression_for_every_value_has_no_complement() {
    for text in [".*", "(?s).*", ".*|a", "(?:.|a)*", "a?.*"] {
        assert_eq!(complement(text), Ok(None), "{text}");
    }
    assert_eq!(complement("").unwrap().unwrap(), r"\C*\C");
}

#[test]
fn usual_expressions_have_complements_within_the_bound() {
    let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    let domain = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
    for text in [
        uuid,
        domain,
        ".*(Android|iPhone|iPad|Windows Phone).*",
        "Mozilla/5\\.0 .*Firefox/[0-9]+.*",
        "(alice|bob|carol|dave|erin|frank|grace|heidi|ivan|judy)@example\\.(com|org|net)",
        "Bearer [A-Za-z0-9_=-]+\\.[A-Za-z0-9_=-]+\\.[A-Za-z0-9_=-]*",
        "(?i)(true|yes|on|1)",
        "v[0-9]+(\\.[0-9]+){0,2}(-(alpha|beta|rc)[0-9]*)?",
        ".*; ?canary=(always|never)(;.*)?",
        "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}",
        &"a".repeat(250),
    ] {
        let other = complement(text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}")).unwrap();
        assert!(other.len() < 8 * 1024, "{text}: {}", other.len());
    }
}

#[test]
fn a_complement_beyond_the_bounds_is_refused_soon() {
    for text in ["(.*a.{12})", "(?:[ab]*a[ab]{9}|c)*", "(?:.{30}){30}"] {
        assert_eq!(complement(text), Err(Refusal::TooLarge), "{text}");
    }
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(".".to_owned()),
        Just("[ab]".to_owned()),
        Just("[^a]".to_owned()),
        Just(r"\w".to_owned()),
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just(r"\b".to_owned()),
        Just("$".to_owned()),
        Just("^".to_owned()),
        Just(String::new()),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
            inner.clone().prop_map(|a| format!("(?:{a})*")),
            inner.clone().prop_map(|a| format!("(?:{a})?")),
            inner.prop_map(|a| format!("(?:{a}){{2}}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// By random expressions and values.
    #[test]
    fn a_complement_is_all_that_an_expression_does_not_match(
        text in expression(),
        values in prop::collection::vec(prop::collection::vec(
            prop_oneof![Just(b'a'), Just(b'b'), Just(b'c'), Just(b','), Just(0xc3_u8)], 0..6), 16),
    ) {
        let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
        if complement(&text).is_ok() {
            divides(&text, &values);
        }
    }
}

/// Expressions that the check lets pass, of shapes that make many states, many edges or much text.
fn hostile() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\W?",
        r"\b",
        "$",
        "^",
        "(?i:x)",
        "[a-z0-9]",
        ".*",
        "(a|b|c|d|e|f)",
    ]);
    let inner = leaf.prop_map(str::to_owned).prop_recursive(5, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..8).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 1..8).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            inner.clone().prop_map(|part| format!("(?:{part})*")),
            (inner.clone(), 1..480_u32).prop_map(|(part, most)| format!("(?:{part}){{0,{most}}}")),
            (inner, 1..40_u32).prop_map(|(part, times)| format!("(?:{part}){{{times}}}")),
        ]
    });
    inner.prop_filter("is refused before", |text| crate::regex::check(text).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// What an expression takes is taken before it is made, and does not depend on the budget.
    #[test]
    fn no_expression_takes_more_than_its_budget(text in hostile(), part in 0.0..1.0) {
        let mut steps = Steps::new(u64::MAX);
        let result = super::complement(&text, &mut steps);
        let took = u64::MAX - steps.left();
        // At most the states by the bytes by the largest automaton, and the text on the way.
        prop_assert!(took < 1 << 27, "{took} {text}");
        let mut steps = Steps::new(took);
        prop_assert_eq!(&super::complement(&text, &mut steps), &result);
        prop_assert_eq!(steps.left(), 0);
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let less = (took as f64 * part) as u64;
        let mut steps = Steps::new(less.min(took - 1));
        prop_assert_eq!(super::complement(&text, &mut steps), Err(Refusal::OverBudget));
        prop_assert_eq!(steps.left(), 0);
        if let Ok(Some(other)) = result {
            prop_assert!(took > u64::try_from(other.len()).unwrap());
        }
    }
}
