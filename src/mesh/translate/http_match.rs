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

use crate::api::smi::{HttpMatch, MethodSet, Pattern};

/// The method and header conditions, all of which must hold.
pub(super) fn headers(http: &HttpMatch) -> Vec<HeaderMatcher> {
    let method = match &http.methods {
        MethodSet::Any => None,
        MethodSet::Only(methods) => {
            let methods: Vec<_> = methods.iter().map(|method| regex_syntax::escape(method)).collect();
            Some(header(":method", &methods.join("|")))
        }
    };
    let headers = http.headers.iter().map(|(name, pattern)| {
        // Envoy has the host only as the HTTP/2 pseudo-header.
        header(if name == "host" { ":authority" } else { name }, pattern.as_str())
    });
    method.into_iter().chain(headers).collect()
}

/// A pattern that must match the whole text.
pub(super) fn pattern(pattern: &Pattern) -> RegexMatcher {
    regex(pattern.as_str())
}

fn header(name: &str, pattern: &str) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(MatchPattern::SafeRegex(regex(pattern))),
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

/// This method only.
pub(super) fn method(method: &str) -> Vec<HeaderMatcher> {
    vec![header(":method", &regex_syntax::escape(method))]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
        let any = || Pattern::whole("shop").unwrap();
        let wanted = BTreeMap::from([("host".to_owned(), any()), ("x-host".to_owned(), any())]);
        let http = HttpMatch { path: None, methods: MethodSet::Any, headers: wanted };
        let names: Vec<_> = headers(&http).into_iter().map(|header| header.name).collect();
        assert_eq!(names, [":authority", "x-host"]);
    }
}
