//! One event as a line of the log.
//!
//! Owns the length of a line, that an event is one line, and what it is charged to. The lines' look is that
//! of `tracing-subscriber`.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::json;
use smc_host::sync::lock;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;
use super::budget::{Budgets, MAX_NAME, Origin};

/// The most bytes of a line. The longest of ours have a few names and a cause, less than 2 KiB together.
const MAX_LINE: usize = 4 << 10;

/// Writes events as `inner` does, as far as the budgets reach and a line may be long.
pub(super) struct Lines<F> {
    pub(super) inner: F,
    pub(super) format: LogFormat,
    pub(super) budgets: Arc<Mutex<Budgets>>,
}

impl<S, N, F> FormatEvent<S, N> for Lines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let source = said.source.or_else(|| {
            let mut spans = ctx.event_scope()?;
            spans.find_map(|span| span.extensions().get::<Source>().map(|source| source.0.clone()))
        });
        let metadata = event.metadata();
        let origin = Origin {
            // What a library says through the crate `log`.
            module: said.module.as_deref().unwrap_or(metadata.target()),
            level: *metadata.level(),
            source: source.as_deref(),
        };
        if !lock(&self.budgets).admits(origin, Instant::now()) {
            return Ok(());
        }
        let mut line = Bounded::of(MAX_LINE);
        let formatted = self.inner.format_event(ctx, Writer::new(&mut line), event);
        if !line.cut {
            formatted?;
        }
        let mut text = one_line(&line.text);
        if line.cut {
            text = match self.format {
                LogFormat::Text => text + "… (cut)",
                LogFormat::Json => cut_json(origin, &text)?,
            };
        }
        text.push('\n');
        lock(&self.budgets).charge(origin, text.len(), Instant::now());
        writer.write_str(&text)
    }
}

/// Without line breaks but the last: a peer's text does not make two lines of one.
fn one_line(text: &str) -> String {
    text.trim_end_matches('\n').replace('\n', "\\n").replace('\r', "\\r")
}

/// A JSON object in the place of a longer one.
fn cut_json(origin: Origin<'_>, beginning: &str) -> Result<String, fmt::Error> {
    let mut timestamp = String::new();
    SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
    let message = format!("a line of more than {MAX_LINE} bytes, which begins: {beginning}");
    let line = json!({
        "timestamp": timestamp,
        "level": origin.level.as_str(),
        "target": origin.module,
        "message": message,
    });
    Ok(line.to_string())
}

/// Text that refuses what goes beyond its bound, so that nothing formats megabytes for it.
struct Bounded {
    text: String,
    max: usize,
    cut: bool,
}

impl Bounded {
    fn of(max: usize) -> Self {
        Self { text: String::new(), max, cut: false }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.cut {
            return Err(fmt::Error);
        }
        let fits = more.floor_char_boundary(self.max - self.text.len());
        self.text.push_str(&more[..fits]);
        self.cut = fits < more.len();
        if self.cut { Err(fmt::Error) } else { Ok(()) }
    }
}

/// What an event or a span says of its origin.
#[derive(Default)]
struct Said {
    source: Option<String>,
    module: Option<String>,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let said = match field.name() {
            "proxy" | "peer" => &mut self.source,
            "log.target" => &mut self.module,
            _ => return,
        };
        let mut name = Bounded::of(MAX_NAME);
        // A longer name is cut.
        let _ = write!(name, "{value:?}");
        // All ports of an address are one source.
        let address = name.text.parse().map(|peer: SocketAddr| peer.ip().to_string());
        *said = Some(address.unwrap_or(name.text));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// The source that a span names, for all events within it.
struct Source(String);

/// Notes the sources of spans.
pub(super) struct Sources;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Sources {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut said = Said::default();
        attributes.record(&mut said);
        note(said, id, &ctx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let mut said = Said::default();
        values.record(&mut said);
        note(said, id, &ctx);
    }
}

fn note<S: Subscriber + for<'a> LookupSpan<'a>>(said: Said, id: &Id, ctx: &Context<'_, S>) {
    if let (Some(source), Some(span)) = (said.source, ctx.span(id)) {
        span.extensions_mut().replace(Source(source));
    }
}

#[cfg(test)]
pub(super) mod tests;
