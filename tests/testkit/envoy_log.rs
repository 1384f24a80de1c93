//! Reading Envoy's log: when its stream to the controller ended, when the next one was answered, and what
//! it was sent. Pure.

/// The arguments that make Envoy log this, in lines for [`line`].
pub const ENVOY_ARGS: [&str; 4] = ["--component-log-level", "config:debug", "--log-format", "%E.%e %v"];

/// A time without a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// When the stream ended, in milliseconds since 1970.
    pub ended: u64,
    /// When the first response came on the next one.
    pub answered: u64,
    /// The gRPC status with which it ended: 0 if the controller ended it in order.
    pub status: u32,
}

impl Gap {
    /// How long it took.
    pub fn millis(&self) -> u64 {
        self.answered.saturating_sub(self.ended)
    }
}

/// The median of the gaps, their 99th percentile and the longest one, in milliseconds; zeros without a gap.
pub fn percentiles(gaps: &[Gap]) -> [u64; 3] {
    let mut millis: Vec<u64> = gaps.iter().map(Gap::millis).collect();
    millis.sort_unstable();
    let at = |percent: usize| millis.get((millis.len() * percent).div_ceil(100).max(1) - 1).copied();
    [50, 99, 100].map(|percent| at(percent).unwrap_or_default())
}

/// What Envoy logged of its streams.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Every time without one.
    pub gaps: Vec<Gap>,
    /// Resources that were added, changed or removed by responses.
    pub resources: u64,
    /// Whether the last stream ended, and none was answered since.
    pub is_waiting: bool,
}

/// Reads a part of a log that begins while a stream is open: messages, each with its time in milliseconds
/// since 1970.
pub fn streams<'a>(messages: impl IntoIterator<Item = (u64, &'a str)>) -> Streams {
    let mut streams = Streams::default();
    let mut ended = None;
    for (at, message) in messages {
        if let Some((_, reason)) = message.split_once(" gRPC config stream to smc-controller closed: ") {
            let status = reason.split(',').next().and_then(|status| status.parse().ok());
            // Attempts that fail do not end a stream.
            ended = ended.or(status.map(|status| (at, status)));
        } else if message.contains("Received DeltaDiscoveryResponse for ") {
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

/// The time and the message of a line, if it is one of Envoy's.
pub fn line(line: &str) -> Option<(u64, &str)> {
    let (at, message) = line.split_once(' ')?;
    Some((millis(at)?, message))
}

/// Milliseconds of `SECONDS.MILLISECONDS`.
fn millis(text: &str) -> Option<u64> {
    let (seconds, millis) = text.split_once('.').filter(|(_, millis)| millis.len() == 3)?;
    Some(seconds.parse::<u64>().ok()? * 1000 + millis.parse::<u64>().ok()?)
}

#[test]
fn percentiles_are_those_of_the_gaps_in_order() {
    let gaps = |millis: &[u64]| {
        millis.iter().map(|&answered| Gap { ended: 0, answered, status: 0 }).collect::<Vec<_>>()
    };
    assert_eq!(percentiles(&[]), [0, 0, 0]);
    assert_eq!(percentiles(&gaps(&[7])), [7, 7, 7]);
    assert_eq!(percentiles(&gaps(&[3, 1, 2])), [2, 3, 3]);
    assert_eq!(percentiles(&gaps(&(1..=200).collect::<Vec<_>>())), [100, 198, 200]);
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
        let messages = lines.iter().filter_map(|text| line(text));
        assert_eq!(streams(messages), expected, "{sentence}");
    }
}
