use std::io;
use std::sync::{Arc, Mutex};

use smc_host::sync::lock;
use tracing::{info, info_span, warn};

use super::super::budget::LeftOut;
use super::super::{LogArgs, LogFormat};
use super::*;

/// What was written.
#[derive(Clone, Default)]
pub(in crate::log_args) struct Written(pub(in crate::log_args) Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `says` logs, and what is left out.
fn logged(log_format: LogFormat, says: impl FnOnce()) -> (Vec<String>, Vec<LeftOut>) {
    let args = LogArgs { log_level: "info".parse().unwrap(), log_format };
    let (written, budgets) = (Written::default(), Arc::default());
    let writer = written.clone();
    let (subscriber, _) = args.subscriber(move || writer.clone(), false, &budgets);
    tracing::subscriber::with_default(subscriber, says);
    let text = String::from_utf8(lock(&written.0).clone()).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    (text.lines().map(str::to_owned).collect(), lock(&budgets).left_out())
}

#[test]
fn a_line_is_as_usual_and_no_text_makes_two_of_it() {
    let says = || warn!(reason = %"first\nsecond\r\nthird", "refused");
    let (lines, _) = logged(LogFormat::Text, says);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let expected = concat!("WARN ", module_path!(), r": refused reason=first\nsecond\r\nthird");
    assert!(line.ends_with(expected), "{line}");
    let (lines, _) = logged(LogFormat::Json, says);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["message"], "refused");
    assert_eq!(line["reason"], "first\nsecond\r\nthird");
}

#[test]
fn a_field_of_megabytes_is_cut_and_stays_valid_json() {
    let body = "é\"\n".repeat(1 << 20);
    for format in [LogFormat::Text, LogFormat::Json] {
        let (lines, _) = logged(format, || {
            warn!(body, "cannot read");
            warn!(?body, "cannot read");
            warn!("cannot read {body}");
            info!("a short one");
        });
        assert_eq!(lines.len(), 4, "{format:?}");
        let [cut @ .., short] = &lines[..] else { unreachable!() };
        for line in cut {
            assert!(line.len() > 1000 && line.len() < 4 * MAX_LINE, "{} bytes", line.len());
        }
        assert!(short.len() < 300, "{short}");
        if matches!(format, LogFormat::Json) {
            for line in cut {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!((&line["level"], &line["target"]), (&"WARN".into(), &module_path!().into()));
            }
        }
    }
}

#[test]
fn a_flood_leaves_a_count_and_the_lines_of_other_modules() {
    let (lines, left_out) = logged(LogFormat::Text, || {
        for _ in 0..100_000 {
            warn!(target: "library::module", "recv PING ack that we never sent");
        }
        warn!("our own");
    });
    assert!(lines.len() < 4_000 && lines.last().unwrap().contains("our own"), "{}", lines.len());
    let expected = LeftOut {
        module: "library::module".to_owned(),
        level: tracing::Level::WARN,
        lines: 100_001 - lines.len() as u64,
        latest_source: None,
    };
    assert_eq!(left_out, [expected]);
}

#[test]
fn the_source_is_the_proxy_or_the_address_of_an_event_or_its_span() {
    let sources = |says: &dyn Fn()| {
        let (_, left_out) = logged(LogFormat::Text, || (0..1_000).for_each(|_| says()));
        left_out.into_iter().map(|left_out| left_out.latest_source).collect::<Vec<_>>()
    };
    let named = |name: &str| vec![Some(name.to_owned())];
    let peer: SocketAddr = "[fd00::1]:1234".parse().unwrap();
    assert_eq!(sources(&|| info!(%peer, "dropped")), named("fd00::1"));
    assert_eq!(sources(&|| info!(peer = "10.0.0.1:5", "dropped")), named("10.0.0.1"));
    assert_eq!(sources(&|| info!(proxy = %"shop/web", "rejected")), named("shop/web"));
    let span = info_span!("stream", %peer, proxy = tracing::field::Empty);
    let within = || span.in_scope(|| info!("opened"));
    assert_eq!(sources(&within).len(), 0, "a span of no subscriber");
    let stream = |proxy: Option<&str>| {
        let span = info_span!("stream", %peer, proxy = tracing::field::Empty);
        if let Some(proxy) = proxy {
            span.record("proxy", proxy);
        }
        info_span!("inner").in_scope(|| span.in_scope(|| info!("opened")));
    };
    assert_eq!(sources(&|| stream(None)), named("fd00::1"));
    assert_eq!(sources(&|| stream(Some("shop/web"))), named("shop/web"));
}
