use super::*;

const LINE: usize = 200;

fn of(module: &str, level: Level) -> Origin<'_> {
    Origin { module, level, source: None }
}

fn by<'a>(module: &'a str, source: &'a str) -> Origin<'a> {
    Origin { module, level: Level::INFO, source: Some(source) }
}

/// How many of `lines` lines at one moment are written.
fn written(budgets: &mut Budgets, origin: Origin<'_>, lines: usize, now: Instant) -> usize {
    let written = (0..lines).filter(|_| {
        let admitted = budgets.admits(origin, now);
        if admitted {
            budgets.charge(origin, LINE, now);
        }
        admitted
    });
    written.count()
}

#[test]
fn a_flood_of_one_module_is_bounded_in_bytes_and_hides_no_other_line() {
    let (mut budgets, start) = (Budgets::default(), Instant::now());
    let flood = of("h2::proto::ping_pong", Level::WARN);
    let burst = (256 << 10) / LINE;
    assert!((burst..burst + 3).contains(&written(&mut budgets, flood, 100_000, start)));
    let hour: usize = (1..=3600)
        .map(|second| written(&mut budgets, flood, 1_000, start + Duration::from_secs(second)))
        .sum();
    assert!(hour * LINE <= (3600 << 12) + LINE, "{hour}");
    let now = start + Duration::from_hours(1);
    for other in [of("h2::proto::ping_pong", Level::ERROR), of("smc_raft::group", Level::WARN)] {
        assert_eq!(written(&mut budgets, other, 100, now), 100, "{other:?}");
    }
}

#[test]
fn a_source_takes_a_part_of_what_its_module_may_log() {
    let (mut budgets, start) = (Budgets::default(), Instant::now());
    let burst = (32 << 10) / LINE;
    let one = written(&mut budgets, by("stream", "shop/web"), 10_000, start);
    assert!((burst..burst + 3).contains(&one), "{one}");
    assert_eq!(written(&mut budgets, by("connection", "shop/web"), 10, start), 0, "in any module");
    assert_eq!(written(&mut budgets, by("stream", "shop/db"), 100, start), 100);
    assert_eq!(written(&mut budgets, of("stream", Level::INFO), 100, start), 100);
    let later = start + Duration::from_secs(10);
    let earned = written(&mut budgets, by("stream", "shop/web"), 10_000, later);
    assert!((10 * 256 / LINE..10 * 256 / LINE + 2).contains(&earned), "{earned}");
}

#[test]
fn a_long_line_delays_the_next_ones() {
    let (mut budgets, start) = (Budgets::default(), Instant::now());
    let origin = of("kube_client::client", Level::WARN);
    budgets.charge(origin, 256 << 10, start);
    budgets.charge(origin, 4 << 10, start);
    assert!(!budgets.admits(origin, start));
    assert!(budgets.admits(origin, start + Duration::from_secs(1)));
}

#[test]
fn what_a_person_turned_on_has_a_larger_budget() {
    let (mut budgets, start) = (Budgets::default(), Instant::now());
    let usual = written(&mut budgets, of("m", Level::INFO), 100_000, start);
    let debug = written(&mut budgets, of("m", Level::DEBUG), 100_000, start);
    assert!(debug > 15 * usual && debug < 100_000, "{debug} against {usual}");
}

#[test]
fn a_summary_counts_what_was_left_out_since_the_last_one() {
    let (mut budgets, start) = (Budgets::default(), Instant::now());
    assert_eq!(budgets.left_out(), []);
    let passed = written(&mut budgets, of("h2", Level::WARN), 10_000, start);
    let passed_of_web = written(&mut budgets, by("stream", "shop/web"), 1_000, start);
    let left_out = |module: &str, level, lines: usize, source: Option<&str>| LeftOut {
        module: module.to_owned(),
        level,
        lines: lines.try_into().unwrap(),
        latest_source: source.map(str::to_owned),
    };
    let expected = [
        left_out("h2", Level::WARN, 10_000 - passed, None),
        left_out("stream", Level::INFO, 1_000 - passed_of_web, Some("shop/web")),
    ];
    assert_eq!(budgets.left_out(), expected);
    assert_eq!(budgets.left_out(), []);
}

#[test]
fn many_names_take_bounded_memory_and_share_what_is_left() {
    let (mut budgets, start) = (Budgets::default(), Instant::now());
    for n in 0..3 * MAX_SOURCES {
        // Each a module that is not full, so that the sources count.
        let (module, source) = (format!("m{}", n % 100), format!("10.0.0.0/{n}"));
        written(&mut budgets, by(&module, &source), 1, start);
    }
    assert!(budgets.sources.len() <= MAX_SOURCES + 1);
    assert_eq!(written(&mut budgets, by("new", "another"), 100, start), 0, "those beyond have one budget");
    let later = start + Duration::from_mins(3);
    assert_eq!(written(&mut budgets, by("new", "another"), 100, later), 100, "the first are forgotten");
    for n in 0..3 * MAX_MODULES {
        written(&mut budgets, of(&format!("module{n}"), Level::WARN), 1, start);
    }
    assert!(budgets.modules.len() <= 2 * (MAX_MODULES + 5));
}
