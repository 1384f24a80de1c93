//! Where one document of a YAML stream ends and the next begins.
//!
//! A line that begins with `---` or `...` is a document marker anywhere: YAML forbids it inside scalars of
//! every style (YAML 1.2.2 §9.1.2, `c-forbidden`). So a stream can be split without parsing, and a document
//! that is no YAML does not affect the others.

/// One document that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// Its text, with the `---` line that opens it.
    pub text: &'a str,
    /// The line of the file on which `text` begins, from 1.
    pub first_line: usize,
    /// The line of the file on which its content begins, after markers, comments and empty lines.
    pub line: usize,
}

/// The documents of `text`, without those that are empty or hold only comments and directives.
pub fn split(text: &str) -> impl Iterator<Item = Document<'_>> {
    let mut rest = text;
    let mut line = 1;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (chunk, length, lines) = next_chunk(rest);
            let first_line = line;
            rest = rest.get(length..).unwrap_or_default();
            line += lines;
            if let Some(offset) = chunk.lines().position(|line| !is_blank(line)) {
                return Some(Document { text: chunk, first_line, line: first_line + offset });
            }
        }
        None
    })
}

/// The text up to the next marker, and how many bytes and lines it takes from `rest`. A closing `...` is
/// taken but is part of no document.
fn next_chunk(rest: &str) -> (&str, usize, usize) {
    let mut end = 0;
    for (count, line) in rest.split_inclusive('\n').enumerate() {
        if is_marker(line, "...") {
            return (rest.get(..end).unwrap_or_default(), end + line.len(), count + 1);
        }
        if count > 0 && is_marker(line, "---") {
            return (rest.get(..end).unwrap_or_default(), end, count);
        }
        end += line.len();
    }
    (rest, end, rest.split_inclusive('\n').count())
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether a line holds no content: it is empty, a comment, a directive, or a `---` without content.
fn is_blank(line: &str) -> bool {
    if line.starts_with('%') {
        return true;
    }
    let content = if is_marker(line, "---") { line.get(3..).unwrap_or_default() } else { line };
    let content = content.trim();
    content.is_empty() || content.starts_with('#')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documents_end_at_markers_and_empty_ones_are_no_documents() {
        for (text, expected) in [
            ("", vec![]),
            ("\n\n# nothing\n", vec![]),
            ("---\n---\n--- # comment\n...\n", vec![]),
            ("%YAML 1.2\n---\na: 1\n", vec![("---\na: 1\n", 2, 3)]),
            ("a: 1", vec![("a: 1", 1, 1)]),
            ("a: 1\n---\nb: 2\n", vec![("a: 1\n", 1, 1), ("---\nb: 2\n", 2, 3)]),
            ("a: 1\r\n---\r\nb: 2\r\n", vec![("a: 1\r\n", 1, 1), ("---\r\nb: 2\r\n", 2, 3)]),
            ("a: 1\n...\n# x\nb: 2\n", vec![("a: 1\n", 1, 1), ("# x\nb: 2\n", 3, 4)]),
            ("--- {a: 1}\n--- {b: 2}", vec![("--- {a: 1}\n", 1, 1), ("--- {b: 2}", 2, 2)]),
            ("a: |\n  ---\n  x\n ---\n", vec![("a: |\n  ---\n  x\n ---\n", 1, 1)]),
            ("---a: 1\n----\n", vec![("---a: 1\n----\n", 1, 1)]),
            ("# Source: x\n\na: 1\n---", vec![("# Source: x\n\na: 1\n", 1, 3)]),
        ] {
            let found: Vec<_> = split(text).map(|d| (d.text, d.first_line, d.line)).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_document_begins_on_the_line_it_says(lines in prop::collection::vec("(---|\\.\\.\\.|a: 1|# c||--- x| ---)", 0..12)) {
            let text = lines.join("\n");
            let all: Vec<&str> = text.split('\n').collect();
            for document in split(&text) {
                let first = document.text.split('\n').next().unwrap_or_default();
                prop_assert_eq!(all[document.first_line - 1], first);
                prop_assert!(!is_blank(all[document.line - 1]));
                prop_assert!(document.line >= document.first_line);
            }
        }
    }
}
