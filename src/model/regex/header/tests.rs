use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::whole(text).unwrap()
}

/// What an expression gives within a budget, and the steps that it takes of it.
fn within(complements: &mut Complements, text: &str, most: u64) -> (Result<HeaderPattern, Incomplete>, u64) {
    let mut budget = Steps::new(most);
    let header = complements.header(&pattern(text), &mut budget);
    (header, most - budget.left())
}

#[test]
fn an_expression_that_is_known_takes_the_same_and_makes_no_steps() {
    for text in ["t[0-9]+", "a{0,480}", ".*a.{12}", ".*"] {
        let mut complements = Complements::default();
        let first = within(&mut complements, text, u64::MAX);
        let made = complements.made();
        assert_eq!(first.1, made, "{text}");
        assert_eq!(within(&mut complements, text, u64::MAX), first, "{text}");
        assert_eq!(complements.made(), made, "{text}");
    }
}

/// Replicas remember different expressions, and must leave out the same matches.
#[test]
fn what_is_remembered_decides_nothing() {
    for text in ["t[0-9]+", "a{0,480}", ".*a.{7}"] {
        let (_, steps) = within(&mut Complements::default(), text, u64::MAX);
        for most in [0, LEAST - 1, LEAST, steps / 2, steps - 1, steps, steps + 1] {
            let fresh = within(&mut Complements::default(), text, most);
            assert_eq!(fresh.0 == Err(Incomplete::OverBudget), most < steps, "{text} {most}");
            for before in [0, LEAST, steps / 2, steps - 1, steps, u64::MAX] {
                let mut complements = Complements::default();
                let _ = within(&mut complements, text, before);
                assert_eq!(within(&mut complements, text, most), fresh, "{text} {most} after {before}");
            }
        }
    }
}

#[test]
fn what_is_over_its_budget_makes_no_more_steps_than_that() {
    let mut complements = Complements::default();
    assert_eq!(within(&mut complements, "a{0,480}", 1_000_000), (Err(Incomplete::OverBudget), 1_000_000));
    assert_eq!(complements.made(), 1_000_000);
    let _ = within(&mut complements, "a{0,480}", 900_000);
    assert_eq!(complements.made(), 1_000_000, "it is known to take more");
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut complements = Complements::default();
    for count in 1..600 {
        let _ = within(&mut complements, &format!("(?:{}){count}", "x".repeat(900)), LEAST);
        assert!(complements.bytes <= MAX_REMEMBERED);
    }
    let bytes: usize = complements.known.iter().map(|(text, known)| size(text, known)).sum();
    assert_eq!(complements.bytes, bytes);
}
