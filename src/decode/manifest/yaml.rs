//! One YAML document as a JSON value, within bounds.
//!
//! JSON is read by the same parser, since YAML contains it: an error then has a line and a column, and a key
//! that is written twice is an error instead of silently replacing the first.

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{MessageFormatter, Options, UserMessageFormatter};
use smc_types::text::truncated;

use super::documents::Document;

/// How deep collections may nest. Kubernetes objects stay well below 30; each level is a stack frame or
/// two of recursive descent, here and in everything that later walks the value.
const MAX_DEPTH: usize = 64;

/// Scalars and collections of one document: a file of the largest size with about 16 bytes each.
const MAX_NODES: usize = 500_000;

/// Nodes that aliases may add by repetition. An alias bomb grows without bound; ordinary anchors save a few
/// dozen lines.
const MAX_REPEATED_NODES: usize = 50_000;

/// Characters of a parser's message that are passed on: it may quote the document.
const MAX_MESSAGE: usize = 300;

/// Why and where a document is no YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlError {
    /// The line of the file, from 1.
    pub(super) line: usize,
    /// The column, from 1, where known.
    pub(super) column: Option<u64>,
    /// What is wrong.
    pub(super) message: String,
}

/// Parses a document. The booleans of YAML 1.1 (`yes`, `off`) are booleans here too, as in `kubectl`.
pub(super) fn parse(document: &Document<'_>) -> Result<Value, YamlError> {
    serde_saphyr::from_str_with_options(document.text, options()).map_err(|error| {
        let error = error.without_snippet();
        let message = truncated(&UserMessageFormatter.format_message(error), MAX_MESSAGE);
        let message = format!("not YAML: {}", message.replace('\n', " "));
        match error.location().filter(|location| location.line() > 0) {
            Some(location) => {
                let offset = usize::try_from(location.line() - 1).unwrap_or_default();
                YamlError { line: document.first_line + offset, column: Some(location.column()), message }
            }
            None => YamlError { line: document.line, column: None, message },
        }
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_recorded_anchor_events: MAX_NODES,
            max_aliases: MAX_REPEATED_NODES,
            max_anchors: MAX_REPEATED_NODES,
            max_merge_keys: 1_000,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPEATED_NODES,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        emit_comments: false,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::super::documents::split;
    use super::*;

    fn parse_text(text: &str) -> Result<Value, YamlError> {
        parse(&split(text).next().unwrap())
    }

    #[test]
    fn yaml_and_json_become_the_same_value() {
        let value = json!({"a": {"b": [1, "x", true, null]}});
        for text in [
            "a:\n  b: [1, x, true, null]\n",
            "a:\n  b:\n  - 1\n  - \"x\"\n  - yes\n  - ~\n",
            r#"{"a": {"b": [1, "x", true, null]}}"#,
            "{\n\t\"a\": {\n\t\t\"b\": [\n\t\t\t1, \"x\",\n\t\t\ttrue, null\n\t\t]\n\t}\n}\n",
            "---\n# comment\na: {b: [1, x, true, null]} # comment\n",
        ] {
            assert_eq!(parse_text(text), Ok(value.clone()), "{text}");
        }
        let long = format!("{{\"a\": \"{}\", \"b\": {{\"c\": 1}}}}", "x".repeat(5_000));
        assert!(parse_text(&long).is_ok());
        let anchors = "base: &b {x: 1}\nmore:\n  <<: *b\n  y: 2\nsame: *b\n";
        assert_eq!(
            parse_text(anchors),
            Ok(json!({"base": {"x": 1}, "more": {"x": 1, "y": 2}, "same": {"x": 1}}))
        );
    }

    #[test]
    fn an_error_says_where_it_is_in_the_file() {
        let text = "\n\n---\n\na: 1\nb: [1, 2\nc: 3\n";
        let error = parse_text(text).unwrap_err();
        assert!(error.line == 6 || error.line == 7, "{error:?}");
        assert!(error.column.is_some(), "{error:?}");
        let error = parse_text("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!(error.line, 3, "{error:?}");
        assert!(error.message.contains("duplicate"), "{error:?}");
    }

    #[test]
    fn depth_aliases_and_size_are_bounded() {
        for deep in
            ["[".repeat(100_000), "{a: ".repeat(5_000), format!("{}1{}", "[".repeat(80), "]".repeat(80))]
        {
            assert!(parse_text(&deep).is_err());
        }
        let mut nested = String::new();
        for level in 0..100 {
            writeln!(nested, "{}a:", " ".repeat(level)).unwrap();
        }
        assert!(parse_text(&nested).is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let refs = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(bomb, "a{level}: &a{level} [{refs}]").unwrap();
        }
        assert!(parse_text(&bomb).is_err());
        let wide = format!("[{}1]", "1,".repeat(MAX_NODES));
        assert!(parse_text(&wide).is_err());
    }

    #[test]
    fn what_json_cannot_hold_is_an_error() {
        for text in ["a: .nan", "a: .inf", "? [x, y]\n: 1", "a: !!binary \"***\"", "a: *nowhere", "a: \u{0}"]
        {
            assert!(parse_text(text).is_err(), "{text:?}");
        }
    }
}
