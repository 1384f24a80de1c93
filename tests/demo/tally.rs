//! Counts records. Pure; knows nothing of expected results.

use std::collections::BTreeMap;

use crate::bookstore::record::{Call, METHOD_TCP, Outcome, Received, Record};

/// Limit of different keys in a tally. The demo has about twenty; more shows an unknown program,
/// and counts as [`Tally::unreadable`].
const KEYS_MAX: usize = 256;

/// A kind of call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Name of the client.
    pub from: String,
    /// Name of the server.
    pub to: String,
    /// Method and path, see [`request`].
    pub request: String,
}

/// A kind of request as a server received it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// Name of the server.
    pub at: String,
    /// SPIFFE ID of the client, if the application saw one.
    pub from: Option<String>,
    /// Method and path, see [`request`].
    pub request: String,
}

/// The result of a call, and its author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observed {
    /// The result.
    pub outcome: Outcome,
    /// Whether an application answered, rather than a proxy: only applications write the version
    /// and identity headers.
    pub by_application: bool,
}

/// The calls of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls by result.
    pub results: BTreeMap<Observed, u64>,
    /// Calls by the identity that the answering application saw.
    pub identities: BTreeMap<String, u64>,
    /// Calls by the version of the bookstore that answered.
    pub versions: BTreeMap<String, u64>,
}

/// Counts over a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls, as their clients recorded them.
    pub calls: BTreeMap<Edge, Calls>,
    /// Requests, as the applications that received them recorded them.
    pub arrivals: BTreeMap<Arrival, u64>,
    /// Lines that look like records but cannot be parsed.
    pub unreadable: u64,
}

/// Joins method and path, without the book's name.
pub fn request(method: &str, path: &str) -> String {
    if method != METHOD_TCP && path.starts_with("/buy/") {
        format!("{method} /buy/*")
    } else {
        format!("{method} {path}")
    }
}

/// Parses a line of output. `None` if it does not look like a record.
pub fn read_line(line: &str) -> Option<Result<Record, serde_json::Error>> {
    let line = line.trim();
    line.starts_with('{').then(|| serde_json::from_str(line))
}

impl Edge {
    /// Returns the kind of a call.
    pub fn of(call: &Call) -> Self {
        Self { from: call.from.clone(), to: call.to.clone(), request: request(&call.method, &call.path) }
    }
}

impl Observed {
    /// Returns the result of a call.
    pub fn of(call: &Call) -> Self {
        Self {
            outcome: call.outcome(),
            by_application: call.version.is_some() || call.identity_seen.is_some(),
        }
    }
}

impl Calls {
    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.results.values().sum()
    }

    /// Returns the number of calls that the application answered, and not a proxy.
    pub fn answered(&self) -> u64 {
        self.results.iter().filter(|(observed, _)| observed.by_application).map(|(_, count)| count).sum()
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

    /// Adds the counts of another tally.
    pub fn merge(&mut self, other: &Self) {
        for (edge, calls) in &other.calls {
            self.calls.entry(edge.clone()).or_default().merge(calls);
        }
        merge_counts(&mut self.arrivals, &other.arrivals);
        self.unreadable += other.unreadable;
    }

    /// Returns how often each version of the bookstore answered bookbuyer.
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
    fn a_line_is_a_record_or_other_output_or_broken() {
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
    fn a_full_tally_counts_new_kinds_as_unreadable() {
        let mut tally = Tally::default();
        let Ok(Record::Call(call)) = read_line(LINE).unwrap() else { panic!("a call") };
        for number in 0..KEYS_MAX + 10 {
            tally.add(&Record::Call(Call { from: format!("stranger-{number}"), ..call.clone() }));
        }
        assert_eq!((tally.calls.len(), tally.unreadable), (KEYS_MAX, 10));
    }
}
