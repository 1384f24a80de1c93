//! How the answers of `smc check` are shown.
//!
//! Owns the three forms: for people, the findings alone, and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rules::{Check, Verdict, failed};

/// Where a person reads on.
const HINTS: &str = "docs/install.md#";

/// What a mark looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// With the terminal's colours.
    Coloured,
    /// Without.
    Plain,
}

/// The answers, by category. With `only_findings`, what passes is left out.
pub fn text(checks: &[Check], marks: Marks, only_findings: bool) -> String {
    let mut text = String::new();
    let mut category = "";
    for check in checks {
        if only_findings && check.verdict == Verdict::Pass {
            continue;
        }
        if category != check.category {
            let rule = "-".repeat(check.category.len());
            let space = if category.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{space}{}\n{rule}", check.category);
            category = check.category;
        }
        let (mark, colour, problem) = match &check.verdict {
            Verdict::Pass => ("√", 32, None),
            Verdict::Warning(problem) => ("‼", 33, Some(problem)),
            Verdict::Failure(problem) => ("×", 31, Some(problem)),
        };
        let mark = match marks {
            Marks::Coloured => format!("\u{1b}[{colour}m{mark}\u{1b}[0m"),
            Marks::Plain => mark.to_owned(),
        };
        let _ = writeln!(text, "{mark} {}", check.sentence);
        if let Some(problem) = problem {
            // The problem may quote objects, which must not control the terminal.
            let problem = problem.replace(char::is_control, "?");
            let _ = writeln!(text, "    {problem}\n    see {HINTS}{}", check.hint);
        }
    }
    if !only_findings {
        let status = if failed(checks) { "×: it does not work" } else { "√" };
        let _ = writeln!(text, "\nstatus: {status}");
    }
    text
}

/// The answers for programs.
pub fn json(checks: &[Check]) -> Value {
    let one = |check: &Check| {
        let (result, problem) = match &check.verdict {
            Verdict::Pass => ("pass", None),
            Verdict::Warning(problem) => ("warning", Some(problem)),
            Verdict::Failure(problem) => ("failure", Some(problem)),
        };
        json!({
            "category": check.category,
            "description": check.sentence,
            "result": result,
            "problem": problem,
            "hint": problem.map(|_| format!("{HINTS}{}", check.hint)),
        })
    };
    json!({ "success": !failed(checks), "checks": checks.iter().map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        let check = |category, sentence: &str, verdict| Check {
            category,
            sentence: sentence.into(),
            verdict,
            hint: "h",
        };
        vec![
            check("a", "it is so", Verdict::Pass),
            check("a", "it is well", Verdict::Warning("not \u{1b}quite".into())),
            check("b", "it works", Verdict::Failure("it does not".into())),
        ]
    }

    #[test]
    fn people_see_marks_reasons_and_where_to_read_on() {
        let expected = "a\n-\n√ it is so\n‼ it is well\n    not ?quite\n    see docs/install.md#h\n\nb\n-\n× it works\n    \
                        it does not\n    see docs/install.md#h\n\nstatus: ×: it does not work\n";
        assert_eq!(text(&checks(), Marks::Plain, false), expected);
        let short = text(&checks(), Marks::Plain, true);
        assert!(!short.contains("it is so") && !short.contains("status"), "{short}");
        assert_eq!(text(&checks()[..1], Marks::Plain, true), "");
        assert!(text(&checks(), Marks::Coloured, false).contains("\u{1b}[31m×"));
    }

    #[test]
    fn programs_see_the_same() {
        let json = json(&checks());
        assert_eq!(json["success"], false);
        assert_eq!(json["checks"][1]["result"], "warning");
        assert_eq!(json["checks"][0]["hint"], Value::Null);
    }
}
