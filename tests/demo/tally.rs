//! Counts what the programs wrote. Pure: records in, sums out. It does not know what was expected.

use std::collections::BTreeMap;

use crate::bookstore::record::{Call, METHOD_TCP, Outcome, Received, Record};

/// Most different keys a tally keeps. The demo has about twenty; more means that something else is talking, which
/// [`Tally::unreadable`] then shows.
const KEYS_MAX: usize = 256;

/// A kind of call: who, whom, what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Who called.
    pub from: String,
    /// Whom.
    pub to: String,
    /// See [`request`].
    pub request: String,
}

/// A kind of arrival: where, from which identity, what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// Who received it.
    pub at: String,
    /// The identity of the caller, if the application saw one.
    pub from: Option<String>,
    /// See [`request`].
    pub request: String,
}

/// What came of a call, and who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observed {
    /// The result.
    pub outcome: Outcome,
    /// Whether an application of ours answered, rather than a proxy: only applications write the headers that say
    /// version and identity.
    pub by_application: bool,
}

/// The calls of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// How often each result.
    pub results: BTreeMap<Observed, u64>,
    /// How often each identity was seen by the application that answered.
    pub identities: BTreeMap<String, u64>,
    /// How often each version of the bookstore answered.
    pub versions: BTreeMap<String, u64>,
}

/// Sums over some stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls, as their callers saw them.
    pub calls: BTreeMap<Edge, Calls>,
    /// Requests, as the applications that received them saw them.
    pub arrivals: BTreeMap<Arrival, u64>,
    /// Lines that looked like records and were none.
    pub unreadable: u64,
}

/// Method and path, with the book's name left out.
pub fn request(method: &str, path: &str) -> String {
    if method != METHOD_TCP && path.starts_with("/buy/") {
        format!("{method} /buy/*")
    } else {
        format!("{method} {path}")
    }
}

/// Reads a line that a program wrote. None if it is not meant to be a record at all.
pub fn read_line(line: &str) -> Option<Result<Record, serde_json::Error>> {
    let line = line.trim();
    line.starts_with('{').then(|| serde_json::from_str(line))
}

impl Edge {
    /// The kind of a call.
    pub fn of(call: &Call) -> Self {
        Self { from: call.from.clone(), to: call.to.clone(), request: request(&call.method, &call.path) }
    }
}

impl Observed {
    /// The result of a call.
    pub fn of(call: &Call) -> Self {
        Self {
            outcome: call.outcome(),
            by_application: call.version.is_some() || call.identity_seen.is_some(),
        }
    }
}

impl Calls {
    /// How many.
    pub fn count(&self) -> u64 {
        self.results.values().sum()
    }

    fn add(&mut self, call: &Call) {
        *self.results.entry(Observed::of(call)).or_default() += 1;
        for (value, counts) in
            [(&call.identity_seen, &mut self.identities), (&call.version, &mut self.versions)]
        {
            if let Some(value) = value {
                *counts.entry(value.clone()).or_default() += 1;
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        merge_counts(&mut self.results, &other.results);
        merge_counts(&mut self.identities, &other.identities);
        merge_counts(&mut self.versions, &other.versions);
    }
}

impl Tally {
    /// Counts one record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Call(call) => {
                let edge = Edge::of(call);
                if self.calls.len() < KEYS_MAX || self.calls.contains_key(&edge) {
                    self.calls.entry(edge).or_default().add(call);
                } else {
                    self.unreadable += 1;
                }
            }
            Record::Received(Received { at, from, method, path, .. }) => {
                let arrival = Arrival { at: at.clone(), from: from.clone(), request: request(method, path) };
                if self.arrivals.len() < KEYS_MAX || self.arrivals.contains_key(&arrival) {
                    *self.arrivals.entry(arrival).or_default() += 1;
                } else {
                    self.unreadable += 1;
                }
            }
        }
    }

    /// Adds what another tally counted.
    pub fn merge(&mut self, other: &Self) {
        for (edge, calls) in &other.calls {
            self.calls.entry(edge.clone()).or_default().merge(calls);
        }
        merge_counts(&mut self.arrivals, &other.arrivals);
        self.unreadable += other.unreadable;
    }

    /// How often each version of the bookstore answered bookbuyer.
    pub fn versions(&self) -> BTreeMap<String, u64> {
        let mut versions = BTreeMap::new();
        for (edge, calls) in &self.calls {
            if edge.from == "bookbuyer" && edge.to == "bookstore" {
                merge_counts(&mut versions, &calls.versions);
            }
        }
        versions
    }
}

fn merge_counts<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(key.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"call","t_ms":1,"from":"bookbuyer","to":"bookstore","method":"GET","path":"/buy/x",
        "status":200,"error":null,"version":"v1","identity_seen":"spiffe://a"}"#;

    #[test]
    fn a_line_is_a_record_or_chatter_or_broken() {
        assert!(matches!(read_line(LINE), Some(Ok(Record::Call(_)))));
        assert!(read_line("  listening").is_none());
        assert!(read_line("").is_none());
        assert!(matches!(read_line("{\"kind\":\"call\"}"), Some(Err(_))));
        assert!(matches!(read_line("{"), Some(Err(_))));
    }

    #[test]
    fn counting_in_parts_and_merging_is_counting_at_once() {
        let record = read_line(LINE).unwrap().unwrap();
        let received = Record::Received(Received {
            t_ms: 2,
            at: "bookstore-v1".into(),
            from: None,
            method: "GET".into(),
            path: "/buy/y".into(),
            status: Some(200),
        });
        let (mut whole, mut first, mut second) = (Tally::default(), Tally::default(), Tally::default());
        for record in [&record, &received, &record] {
            whole.add(record);
        }
        first.add(&record);
        first.add(&received);
        second.add(&record);
        first.merge(&second);
        assert_eq!(first, whole);
        assert_eq!(whole.versions(), BTreeMap::from([("v1".to_owned(), 2)]));
        let edge = Edge { from: "bookbuyer".into(), to: "bookstore".into(), request: "GET /buy/*".into() };
        assert_eq!(whole.calls[&edge].count(), 2);
    }

    #[test]
    fn a_tally_stops_taking_new_kinds_and_says_so() {
        let mut tally = Tally::default();
        let Ok(Record::Call(call)) = read_line(LINE).unwrap() else { panic!("a call") };
        for number in 0..KEYS_MAX + 10 {
            tally.add(&Record::Call(Call { from: format!("stranger-{number}"), ..call.clone() }));
        }
        assert_eq!((tally.calls.len(), tally.unreadable), (KEYS_MAX, 10));
    }
}
