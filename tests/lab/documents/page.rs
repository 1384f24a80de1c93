//! Owns whether an output is the one that stands under a command of a document, and which of a document is no
//! block. Pure.

/// Any text in a line; as a line of its own, any lines.
const ANYTHING: &str = "…";

/// The document without its blocks.
pub(crate) fn prose(document: &str) -> String {
    let mut inside = false;
    let lines = document.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the output is, from its first to its last line, what is shown.
pub(crate) fn is_shown<'a>(shown: &'a [String], output: &'a str) -> bool {
    fn match_lines(shown: &[&str], lines: &[&str]) -> bool {
        match (shown, lines) {
            ([], lines) => lines.is_empty(),
            ([ANYTHING, rest @ ..], lines) => {
                (0..=lines.len()).any(|skipped| match_lines(rest, &lines[skipped..]))
            }
            ([first, rest @ ..], [line, lines @ ..]) => is_like(first, line) && match_lines(rest, lines),
            (_, []) => false,
        }
    }
    match_lines(&shown.iter().map(String::as_str).collect::<Vec<_>>(), &output.lines().collect::<Vec<_>>())
}

/// Whether each line that is shown is somewhere in the output: several parts of a program write at once.
pub(crate) fn is_among(shown: &[String], output: &str) -> bool {
    shown.iter().all(|shown| output.lines().any(|line| is_like(shown, line)))
}

/// Whether a line is the one that is shown. The width of columns does not count.
fn is_like(shown: &str, line: &str) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (squeezed(shown), squeezed(line));
    let Some((first, others)) = shown.split_once(ANYTHING) else { return shown == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = others.split(ANYTHING).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn an_output_is_compared_with_what_is_shown() {
    let lines = |text: &str| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    for (shown, output, whole, among) in [
        ("", "", true, true),
        ("", "more\n", false, true),
        ("a b\n", "a   b\n", true, true),
        ("a b\n", "x\na b\n", false, true),
        ("a b\n", "a c\n", false, false),
        ("a\nb\n", "b\na\n", false, true),
        ("a…z…c\n", "a1z2c\n", true, true),
        ("a…z…c\n", "a1c2z\n", false, false),
        ("a…a\n", "a\n", false, false),
        ("a …\n", "a b c\n", true, true),
        ("…\nb\n", "x\n\ny\nb\n", true, true),
        ("a\n…\nb\n", "a\nb\n", true, true),
        ("a\n…\nb\n", "a\nb\nc\n", false, true),
        ("a\n", "", false, false),
    ] {
        assert_eq!(is_shown(&lines(shown), output), whole, "{shown:?} {output:?}");
        assert_eq!(is_among(&lines(shown), output), among, "{shown:?} {output:?}");
    }
}
