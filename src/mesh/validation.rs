//! Whether an object may be declared.
//!
//! Owns the decision of the validating webhook. The readers ([`smc_api`]) and the catalog
//! ([`crate::catalog::Catalog::objections`]) find what is wrong; an error refuses the object. An object that
//! is declared already may stay as wrong as it is: its author must be able to change other things about it,
//! and a controller to remove its finalizers.

use smc_types::problem::{Problem, Severity};

/// The most problems in one answer; people read it in a terminal.
const MAX_TOLD: usize = 8;

/// Whether an object may be declared, and what its author learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may; the lines are warnings.
    Accepted(Vec<String>),
    /// It may not, for this reason.
    Refused(String),
}

/// Judges an object by the problems that it would have. `before` are the problems of the version that is
/// declared now, if there is one; those may stay.
pub fn judge(problems: &[Problem], before: Option<&[Problem]>) -> Verdict {
    let is_new = |problem: &&Problem| !before.is_some_and(|before| before.contains(problem));
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    let refused: Vec<_> = errors.filter(is_new).map(line).collect();
    if refused.is_empty() {
        return Verdict::Accepted(some_of(problems.iter().map(line).collect()));
    }
    Verdict::Refused(some_of(refused).join("; "))
}

/// A problem without its subject, which the author has just named.
fn line(problem: &Problem) -> String {
    if problem.field.is_empty() {
        problem.message.clone()
    } else {
        format!("{}: {}", problem.field, problem.message)
    }
}

fn some_of(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MAX_TOLD {
        let more = lines.len() - MAX_TOLD;
        lines.truncate(MAX_TOLD);
        lines.push(format!("and {more} more problems"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use smc_types::problem::Subject;

    use super::*;

    fn error(field: &str) -> Problem {
        Problem::error(Subject::Mesh, field, "is wrong")
    }

    fn warning(field: &str) -> Problem {
        Problem::warning(Subject::Mesh, field, "is odd")
    }

    fn accepted(lines: &[&str]) -> Verdict {
        Verdict::Accepted(lines.iter().map(|&line| line.to_owned()).collect())
    }

    fn refused(reason: &str) -> Verdict {
        Verdict::Refused(reason.to_owned())
    }

    #[test]
    fn an_error_refuses_and_a_warning_is_told() {
        assert_eq!(judge(&[], None), accepted(&[]));
        assert_eq!(judge(&[warning("spec.a")], None), accepted(&["spec.a: is odd"]));
        assert_eq!(judge(&[warning("")], None), accepted(&["is odd"]));
        let both = [error("spec.a"), warning("spec.b"), error("spec.c")];
        assert_eq!(judge(&both, None), refused("spec.a: is wrong; spec.c: is wrong"));
    }

    #[test]
    fn what_was_wrong_before_may_stay_and_nothing_may_become_worse() {
        let before = [error("spec.a"), warning("spec.b")];
        assert_eq!(judge(&before, Some(&before)), accepted(&["spec.a: is wrong", "spec.b: is odd"]));
        assert_eq!(judge(&[], Some(&before)), accepted(&[]));
        let worse = [error("spec.a"), error("spec.b")];
        assert_eq!(judge(&worse, Some(&before)), refused("spec.b: is wrong"));
        assert_eq!(judge(&worse, Some(&[])), refused("spec.a: is wrong; spec.b: is wrong"));
    }

    #[test]
    fn an_answer_stays_readable() {
        let many: Vec<_> = (0..50).map(|n| error(&format!("spec.f{n}"))).collect();
        let Verdict::Refused(reason) = judge(&many, None) else { panic!("errors refuse") };
        assert!(reason.ends_with("; and 42 more problems"), "{reason}");
    }
}
