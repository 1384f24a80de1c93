//! Owns the reading of Envoy's log: when its stream to the controller ended, when the next one was answered,
//! and what it was sent. Pure.

/// The arguments that make Envoy log this, with the time in seconds since 1970.
pub(crate) const ENVOY_ARGS: [&str; 4] =
    ["--component-log-level", "config:debug", "--log-format", "%E.%e %v"];

/// A time without a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// When the stream ended, in milliseconds since 1970.
    pub(crate) ended: u64,
    /// When the first response came on the next one.
    pub(crate) answered: u64,
    /// The gRPC status with which it ended: 0 if the controller ended it in order.
    pub(crate) status: u32,
}

impl Gap {
    pub(crate) fn millis(&self) -> u64 {
        self.answered.saturating_sub(self.ended)
    }
}

/// What Envoy logged of its streams.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams {
    pub(crate) gaps: Vec<Gap>,
    /// Resources that were added, changed or removed by responses.
    pub(crate) resources: u64,
    /// Whether the last stream ended, and none was answered since.
    pub(crate) is_waiting: bool,
}

/// Reads a part of a log that begins while a stream is open.
pub(crate) fn streams(log: &str) -> Streams {
    let mut streams = Streams::default();
    let mut ended = None;
    for line in log.lines() {
        let Some((at, message)) = line.split_once(' ').and_then(|(at, rest)| Some((millis(at)?, rest)))
        else {
            continue;
        };
        if let Some((_, reason)) = message.split_once(" gRPC config stream to smc-controller closed: ") {
            let status = reason.split(',').next().and_then(|status| status.parse().ok());
            // Attempts that fail do not end a stream.
            ended = ended.or(status.map(|status| (at, status)));
        } else if message.starts_with("Received DeltaDiscoveryResponse for ") {
            let gap = ended.take().map(|(ended, status)| Gap { ended, answered: at, status });
            streams.gaps.extend(gap);
        } else if let Some((_, counts)) = message.split_once(" accepted with ") {
            let numbers = counts.split(' ').filter_map(|word| word.parse::<u64>().ok());
            streams.resources += numbers.sum::<u64>();
        }
    }
    streams.is_waiting = ended.is_some();
    streams
}

/// Milliseconds of `SECONDS.MILLISECONDS`.
fn millis(text: &str) -> Option<u64> {
    let (seconds, millis) = text.split_once('.').filter(|(_, millis)| millis.len() == 3)?;
    Some(seconds.parse::<u64>().ok()? * 1000 + millis.parse::<u64>().ok()?)
}

#[test]
fn gaps_last_from_the_end_of_a_stream_to_the_first_answer_of_the_next() {
    const OK: &str = "DeltaAggregatedResources gRPC config stream to smc-controller closed: 0, via_upstream";
    const LOST: &str =
        "DeltaAggregatedResources gRPC config stream to smc-controller closed: 14, upstream connect error";
    const ANSWER: &str =
        "Received DeltaDiscoveryResponse for type.googleapis.com/envoy.config.cluster.v3.Cluster at version ";
    let accepted = |added, removed| {
        format!("Delta config for a.v3.Cluster accepted with {added} resources added, {removed} removed")
    };
    for (sentence, lines, expected) in [
        ("nothing", vec![], (vec![], 0, false)),
        ("an answer without an end", vec!["7.000 ".to_owned() + ANSWER], (vec![], 0, false)),
        (
            "an end in order",
            vec![format!("7.990 {OK}"), format!("8.020 {ANSWER}")],
            (vec![(7990, 8020, 0)], 0, false),
        ),
        (
            "a crash and an attempt that fails",
            vec![format!("7.990 {LOST}"), format!("8.000 {LOST}"), format!("8.500 {ANSWER}")],
            (vec![(7990, 8500, 14)], 0, false),
        ),
        ("no answer yet", vec![format!("7.990 {OK}")], (vec![], 0, true)),
        (
            "resources",
            vec![format!("7.000 {}", accepted(3, 1)), format!("7.001 {}", accepted(0, 0))],
            (vec![], 4, false),
        ),
        ("lines of others", vec!["[lab] envoy starts".to_owned(), OK.to_owned()], (vec![], 0, false)),
    ] {
        let (gaps, resources, is_waiting) = expected;
        let gap = |(ended, answered, status)| Gap { ended, answered, status };
        let expected = Streams { gaps: gaps.into_iter().map(gap).collect(), resources, is_waiting };
        assert_eq!(streams(&lines.join("\n")), expected, "{sentence}");
    }
}
