use serde_json::{Value, json};

use super::*;
use crate::smi::read_http_route_group;

/// A group of these matches, each with expressions for headers.
fn group(matches: &[(&str, &[&str])]) -> HttpRouteGroup {
    let matches = matches.iter().map(|(name, expressions)| {
        let headers = expressions.iter().enumerate();
        let headers: Vec<Value> = headers.map(|(i, text)| json!({format!("h{i}"): text})).collect();
        json!({"name": name, "headers": headers})
    });
    let spec = json!({"matches": matches.collect::<Vec<_>>()});
    read_http_route_group("shop/routes".parse().unwrap(), spec).object.unwrap()
}

fn complete(group: &HttpRouteGroup, most: u64) -> Completed {
    group.complete(&mut Complements::default(), most)
}

fn names(completed: &Completed) -> Vec<&str> {
    completed.group.matches.keys().map(String::as_str).collect()
}

#[test]
fn a_match_is_completed_with_what_its_headers_do_not_match() {
    let completed = complete(&group(&[("a", &["t[0-9]+", ".*"]), ("b", &[])]), MAX_STEPS);
    assert_eq!(
        (names(&completed), completed.over_budget, completed.problems.len()),
        (vec!["a", "b"], false, 0)
    );
    let headers = &completed.group.matches["a"].headers;
    assert!(headers["h0"].other().is_some() && headers["h1"].other().is_none());
    assert_eq!(complete(&group(&[("b", &[])]), 0).steps, 0, "without headers there is nothing to do");
}

#[test]
fn a_match_with_too_complex_an_expression_is_left_out_whole() {
    let completed = complete(&group(&[("a", &["x", ".*a.{12}"]), ("b", &["x"])]), MAX_STEPS);
    assert_eq!((names(&completed), completed.over_budget), (vec!["b"], false));
    let problem = &completed.problems[0];
    assert_eq!((completed.problems.len(), &*problem.field), (1, "spec.matches"));
    assert!(problem.message.contains("\"a\"") && problem.message.contains("too complex"), "{problem:?}");
}

#[test]
fn equal_expressions_of_a_group_take_the_steps_of_one() {
    let (one, both) =
        (group(&[("a", &["a{0,99}"])]), group(&[("a", &["a{0,99}"; 9]), ("b", &["a{0,99}"; 9])]));
    assert_eq!(complete(&one, MAX_STEPS).steps, complete(&both, MAX_STEPS).steps);
}

#[test]
fn what_is_over_the_budget_is_left_out_and_is_one_problem() {
    let all =
        group(&[("a", &["x{1}"]), ("b", &["x{2}", "x{3}"]), ("c", &["x{1}"]), ("d", &["x{4}"]), ("e", &[])]);
    let whole = complete(&all, MAX_STEPS);
    assert_eq!((names(&whole).len(), whole.over_budget), (5, false));
    for (most, expected) in [
        (whole.steps, vec!["a", "b", "c", "d", "e"]),
        (whole.steps - 1, vec!["a", "b", "c", "e"]),
        // What is known already stays in effect.
        (whole.steps / 2, vec!["a", "c", "e"]),
        (0, vec!["e"]),
    ] {
        let completed = complete(&all, most);
        assert_eq!(names(&completed), expected, "{most}");
        assert_eq!(completed.problems.len(), usize::from(most < whole.steps), "{most}");
        assert!(completed.steps == most, "what is refused is charged, too: {most}");
    }
}

/// The most that an object can hold: 256 matches of 32 headers, all different and expensive.
#[test]
fn thousands_of_hostile_expressions_take_the_budget_of_one_group() {
    for hostile in [
        |i: usize| format!("a{{0,480}}{i}"),
        |i: usize| format!("[ab]{{0,300}}{i}"),
        |i: usize| format!("{i}.*a.{{7}}"),
        |i: usize| format!("(?:a?b?c?d?){{80}}{i}"),
    ] {
        let texts: Vec<String> = (0..8192).map(hostile).collect();
        let names: Vec<String> = (0..256).map(|i| format!("m{i}")).collect();
        let texts: Vec<Vec<&str>> =
            texts.chunks(32).map(|texts| texts.iter().map(String::as_str).collect()).collect();
        let matches: Vec<(&str, &[&str])> =
            names.iter().zip(&texts).map(|(name, texts)| (&**name, &**texts)).collect();
        let all = group(&matches);
        assert_eq!(all.matches.len(), 256);
        let mut complements = Complements::default();
        let completed = all.complete(&mut complements, MAX_STEPS);
        assert!(completed.over_budget && completed.steps == MAX_STEPS);
        assert_eq!(complements.made(), MAX_STEPS);
        let named =
            completed.problems.iter().filter(|problem| problem.message.contains("more work than one group"));
        assert_eq!(named.count(), 1);
        // It is read again, as after an update of its labels.
        assert_eq!(all.complete(&mut complements, MAX_STEPS), completed);
        assert_eq!(complements.made(), MAX_STEPS, "and takes no steps again");
    }
}
