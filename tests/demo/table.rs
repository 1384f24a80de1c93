//! Renders the demo's picture as text: calls with their results, each version's share, and the
//! identities seen. Pure; [`super::live`] draws it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::expectation::{EXPECTATIONS, Expected, expectation_of};
use super::manifests::Weights;
use super::report::policy;
use super::tally::{Calls, Edge, Observed, Tally};

/// Cells of a share's bar.
const BAR: u64 = 20;

/// The content of a picture.
#[derive(Debug)]
pub struct Picture<'a> {
    /// Counts since the start.
    pub total: &'a Tally,
    /// Counts of the last few seconds.
    pub recent: &'a Tally,
    /// Number of those seconds; at least one.
    pub recent_seconds: u64,
    /// Time since the start.
    pub elapsed: Duration,
    /// The split as last written.
    pub weights: Weights,
    /// The latest events, one line each.
    pub events: &'a [String],
}

/// Renders the picture, line by line. Lines are not cut; the identity, which is longest, comes
/// last.
pub fn draw(picture: &Picture<'_>) -> Vec<String> {
    let mut lines = vec![
        format!(
            "SMC demo   {}   split bookstore → v1 {} : v2 {}",
            clock(picture.elapsed),
            picture.weights.v1,
            picture.weights.v2
        ),
        String::new(),
        row(["", "FROM", "TO", "REQUEST", "POLICY", "RESULT", "COUNT", "/S", "IDENTITY SEEN"]),
    ];
    let never = Calls::default();
    for edge in edges(picture.total) {
        let total = picture.total.calls.get(&edge).unwrap_or(&never);
        let recent = picture.recent.calls.get(&edge).unwrap_or(&never);
        lines.push(call_row(&edge, total, recent, picture.recent_seconds));
    }
    lines.push(String::new());
    lines.push(share_line(&picture.recent.versions(), picture.recent_seconds));
    if !picture.events.is_empty() {
        lines.push(String::new());
        lines.extend(picture.events.iter().cloned());
    }
    lines
}

/// Formats minutes and seconds.
pub fn clock(elapsed: Duration) -> String {
    format!("{:02}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

/// The expected kinds of call in the table's order, then the others.
fn edges(tally: &Tally) -> Vec<Edge> {
    let expected = EXPECTATIONS.iter().map(|expectation| Edge {
        from: expectation.from.to_owned(),
        to: expectation.to.to_owned(),
        request: expectation.request.to_owned(),
    });
    let others = tally.calls.keys().filter(|edge| expectation_of(edge).is_none()).cloned();
    expected.chain(others).collect()
}

fn call_row(edge: &Edge, total: &Calls, recent: &Calls, recent_seconds: u64) -> String {
    let expected = expectation_of(edge).map(|expectation| expectation.expected);
    let accepted = |observed: &Observed| expected.is_some_and(|expected| expected.accepts(observed));
    // A breach stays marked for the rest of the run.
    let breached = !expected.is_some_and(Expected::is_allowed)
        && total.results.keys().any(|observed| observed.by_application);
    let mark = if breached {
        "✗"
    } else if recent.results.is_empty() {
        "·"
    } else if recent.results.keys().all(accepted) {
        "✓"
    } else {
        "✗"
    };
    // Tenths, in integers.
    let rate = recent.count() * 10 / recent_seconds.max(1);
    let identities: Vec<&str> = recent.identities.keys().map(String::as_str).collect();
    row([
        mark,
        &edge.from,
        &edge.to,
        &edge.request,
        policy(expected),
        &results(recent),
        &total.count().to_string(),
        &format!("{}.{}", rate / 10, rate % 10),
        &if identities.is_empty() { "-".to_owned() } else { identities.join(", ") },
    ])
}

/// The recent results, the most frequent first; with their counts if there are several.
fn results(recent: &Calls) -> String {
    let mut results: Vec<(u64, String)> =
        recent.results.iter().map(|(observed, count)| (*count, observed.outcome.to_string())).collect();
    results.sort_by(|(count, text), (other_count, other_text)| {
        other_count.cmp(count).then_with(|| text.cmp(other_text))
    });
    match &results[..] {
        [] => "-".to_owned(),
        [(_, text)] => text.clone(),
        several => {
            let mut joined = String::new();
            for (count, text) in several {
                let separator = if joined.is_empty() { "" } else { ", " };
                let _ = write!(joined, "{separator}{text} ×{count}");
            }
            joined
        }
    }
}

fn row(cells: [&str; 9]) -> String {
    let [mark, from, to, request, policy, result, count, rate, identity] = cells;
    format!("{mark:1} {from:<14}{to:<15}{request:<19}{policy:<9}{result:<22}{count:>8} {rate:>6}  {identity}")
}

fn share_line(versions: &BTreeMap<String, u64>, recent_seconds: u64) -> String {
    let whole: u64 = versions.values().sum();
    let mut line = format!("bookstore, last {recent_seconds} s: ");
    if whole == 0 {
        line.push_str(" no answers yet");
        return line;
    }
    for version in ["v1", "v2"] {
        let part = versions.get(version).copied().unwrap_or(0);
        let percent = (part * 100 + whole / 2) / whole;
        let filled = usize::try_from((part * BAR + whole / 2) / whole).unwrap_or(0);
        let empty = usize::try_from(BAR).unwrap_or(0).saturating_sub(filled);
        let _ = write!(line, " {version} {}{} {percent:>3} %  ", "█".repeat(filled), "░".repeat(empty));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::super::manifests::WEIGHTS_BEFORE;
    use super::super::tally::read_line;
    use super::*;

    fn tally(lines: &[(&str, u64)]) -> Tally {
        let mut tally = Tally::default();
        for (line, times) in lines {
            let record = read_line(line).unwrap().unwrap();
            for _ in 0..*times {
                tally.add(&record);
            }
        }
        tally
    }

    #[test]
    fn a_breach_stays_marked_after_it_has_passed() {
        let breach = tally(&[(
            r#"{"kind":"call","t_ms":1,"from":"bookthief","to":"bookstore","method":"GET","path":"/buy/x","status":200,"error":null,"version":"v1","identity_seen":null}"#,
            1,
        )]);
        let nothing = Tally::default();
        let picture = Picture {
            total: &breach,
            recent: &nothing,
            recent_seconds: 10,
            elapsed: Duration::from_secs(75),
            weights: WEIGHTS_BEFORE,
            events: &[],
        };
        assert!(
            draw(&picture).iter().any(|line| line.starts_with("✗ bookthief     bookstore      GET /buy/*"))
        );
    }

    #[test]
    fn the_picture_shows_every_kind_of_call_and_the_shares() {
        let ok = |version: &str| {
            format!(
                r#"{{"kind":"call","t_ms":1,"from":"bookbuyer","to":"bookstore","method":"GET","path":"/books-bought","status":200,"error":null,"version":"{version}","identity_seen":"spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer"}}"#
            )
        };
        let call = |from: &str, status: &str, error: &str| {
            format!(
                r#"{{"kind":"call","t_ms":1,"from":"{from}","to":"bookstore","method":"GET","path":"/books-bought","status":{status},"error":{error},"version":null,"identity_seen":null}}"#
            )
        };
        let tally = tally(&[
            (&ok("v1"), 30),
            (&ok("v2"), 70),
            (&call("bookbuyer", "503", "null"), 1),
            (&call("bookthief", "null", "\"connection closed\""), 50),
            (&call("stranger", "403", "null"), 1),
        ]);
        let picture = Picture {
            total: &tally,
            recent: &tally,
            recent_seconds: 10,
            elapsed: Duration::from_secs(75),
            weights: WEIGHTS_BEFORE,
            events: &["01:00 something happened".to_owned()],
        };
        let drawn = draw(&picture);
        let line = |start: &str| drawn.iter().find(|line| line.starts_with(start)).unwrap().as_str();
        assert_eq!(drawn[0], "SMC demo   01:15   split bookstore → v1 50 : v2 50");
        assert_eq!(
            line("✗ bookbuyer"),
            "✗ bookbuyer     bookstore      GET /books-bought  allow    200 ×100, 503 ×1           101   10.1  \
             spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer"
        );
        assert_eq!(
            line("✓ bookthief"),
            "✓ bookthief     bookstore      GET /books-bought  deny     connection closed           50    5.0  -"
        );
        assert_eq!(
            line("· bookwarehouse"),
            "· bookwarehouse database       TCP RESTOCK        allow    -                            0    0.0  -"
        );
        assert!(line("✗ stranger").contains("unknown"));
        assert_eq!(
            line("bookstore, last"),
            "bookstore, last 10 s:  v1 ██████░░░░░░░░░░░░░░  30 %   v2 ██████████████░░░░░░  70 %"
        );
        assert_eq!(drawn.last().unwrap(), "01:00 something happened");
        // Header, blank, titles, nine rows and the stranger, blank, shares, blank, event.
        assert_eq!(drawn.len(), 3 + EXPECTATIONS.len() + 1 + 2 + 2);
    }
}
