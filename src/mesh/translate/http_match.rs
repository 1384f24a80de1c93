//! SMI HTTP matches as Envoy matchers, for routes and for RBAC.
//!
//! Owns the translation of path, methods and headers, so that one HTTPRouteGroup splits and allows
//! the same requests. The path is the exception: the caller's sidecar splits by the path as sent
//! and does not change it, while the callee's normalizes it before RBAC, because an application
//! might resolve dots and slashes itself.

use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};

use smc_model::http_match::{HttpMatch, MethodSet};
use smc_model::regex::Pattern;

/// What a match asks of methods and headers. All of it must hold.
pub(super) struct Conditions {
    /// Each has a value that matches.
    pub(super) some: Vec<HeaderMatcher>,
    /// None has a value that matches. A header may occur more than once, and then Envoy takes a matcher for
    /// fulfilled if **one** value matches (before 1.38: if all do, joined by commas). So every value must
    /// match if one does, and none matches the complement. An inverted matcher is no help: it inverts "one
    /// value matches", not each value.
    pub(super) none: Vec<HeaderMatcher>,
}

/// The method and header conditions of a match.
pub(super) fn conditions(http: &HttpMatch) -> Conditions {
    let mut conditions = Conditions { some: Vec::new(), none: Vec::new() };
    if let MethodSet::Only(methods) = &http.methods {
        let methods: Vec<_> = methods.iter().map(|method| &**method).collect();
        conditions.some.push(one_of(":method", &methods));
    }
    for (name, pattern) in &http.headers {
        // Envoy has the host only as the HTTP/2 pseudo-header.
        let name = if name == "host" { ":authority" } else { name };
        conditions.some.push(header(name, pattern.matching().as_str()));
        conditions.none.extend(pattern.other().map(|other| header(name, other.as_str())));
    }
    conditions
}

/// The method and header conditions of a match, for a route.
pub(super) fn headers(http: &HttpMatch) -> Vec<HeaderMatcher> {
    let Conditions { mut some, none } = conditions(http);
    some.extend(none.into_iter().map(|none| HeaderMatcher { invert_match: true, ..none }));
    some
}

/// A pattern that must match the whole text.
pub(super) fn pattern(pattern: &Pattern) -> RegexMatcher {
    regex(pattern.as_str())
}

fn header(name: &str, pattern: &str) -> HeaderMatcher {
    matcher(name, MatchPattern::SafeRegex(regex(pattern)))
}

/// This value only.
pub(super) fn exactly(name: &str, value: &str) -> HeaderMatcher {
    matcher(name, MatchPattern::Exact(value.to_owned()))
}

/// Values of this pattern.
pub(super) fn matcher(name: &str, pattern: MatchPattern) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ignore_case: false,
        })),
        ..HeaderMatcher::default()
    }
}

/// Whether the pattern is a usual form for every path.
pub(super) fn every_path(pattern: &Pattern) -> bool {
    ["", "/", ".*", "/.*"].iter().any(|text| Pattern::prefix(text).is_ok_and(|every| every == *pattern))
}

/// An expression that must match the whole text.
pub(super) fn regex(pattern: &str) -> RegexMatcher {
    RegexMatcher { regex: pattern.to_owned(), engine_type: None }
}

/// One of these values only.
pub(super) fn one_of(name: &str, values: &[&str]) -> HeaderMatcher {
    let values: Vec<_> = values.iter().map(|value| regex_syntax::escape(value)).collect();
    header(name, &values.join("|"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use smc_model::regex::HeaderPattern;

    #[test]
    fn every_path_is_meant_by_a_slash_a_dot_star_or_both_and_by_nothing_else() {
        for (text, expected) in [
            ("", true),
            ("/", true),
            (".*", true),
            ("/.*", true),
            ("/a", false),
            ("/a.*", false),
            ("/.", false),
            ("/$", false),
            ("^/", false),
            ("(?:/.*)", false),
        ] {
            assert_eq!(every_path(&Pattern::prefix(text).unwrap()), expected, "{text:?}");
        }
    }

    #[test]
    fn the_host_header_is_asked_for_by_the_name_that_envoy_knows() {
        let any = || HeaderPattern::new("shop|.*").unwrap();
        let wanted = BTreeMap::from([("host".to_owned(), any()), ("x-host".to_owned(), any())]);
        let http = HttpMatch { path: None, methods: MethodSet::Any, headers: wanted };
        let names: Vec<_> = headers(&http).into_iter().map(|header| header.name).collect();
        assert_eq!(names, [":authority", "x-host"]);
    }

    /// Whether Envoy takes a matcher for fulfilled: by one value (from 1.38), or by all of them joined.
    fn fulfilled(header: &HeaderMatcher, values: &[&str], joined: bool) -> bool {
        let Some(HeaderMatchSpecifier::StringMatch(text)) = &header.header_match_specifier else { panic!() };
        let Some(MatchPattern::SafeRegex(regex)) = &text.match_pattern else { panic!() };
        let bytes = regex.regex.replace(r"\C", r"[\x00-\xff]");
        let regex =
            regex::bytes::RegexBuilder::new(&format!(r"\A(?:{bytes})\z")).unicode(false).build().unwrap();
        let whole = values.join(",");
        let values = if joined { &[&*whole][..] } else { values };
        values.iter().any(|value| regex.is_match(value.as_bytes())) != header.invert_match
    }

    #[test]
    fn every_value_of_a_header_must_match() {
        let wanted = BTreeMap::from([("x-tenant".to_owned(), HeaderPattern::new("t[0-9]+").unwrap())]);
        let http = HttpMatch { path: None, methods: MethodSet::Any, headers: wanted };
        let rules = conditions(&http);
        for (values, each, joined) in [
            (&["t1"][..], true, true),
            (&["evil"], false, false),
            (&["evil", "t1"], false, false),
            (&["t1", "evil"], false, false),
            (&["", "t1"], false, false),
            (&["t1", "t2"], true, false),
            (&["t1,t2"], false, false),
        ] {
            for (expected, joined) in [(each, false), (joined, true)] {
                let is = |header: &HeaderMatcher| fulfilled(header, values, joined);
                assert_eq!(rules.some.iter().all(is) && !rules.none.iter().any(is), expected, "{values:?}");
                assert_eq!(headers(&http).iter().all(is), expected, "{values:?} in a route");
            }
        }
    }
}
