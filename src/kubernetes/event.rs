//! Events (`events.k8s.io/v1`) about objects of the API.
//!
//! Owns their form. An Event has a name made of its content, so the same is written once, whichever replica
//! leads, and a second writer is refused.

use std::time::Duration;

use k8s_openapi::jiff;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::{Client, Error};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use smc_types::text::truncated;
use smc_types::time::Timestamp;
use tokio::time::timeout;
use tracing::debug;

/// How long the request may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest note, in characters; the API allows 1024 bytes.
const MAX_NOTE: usize = 250;

/// Who reports.
const CONTROLLER: &str = "smc-controller";

/// What happened to an object.
pub(crate) struct Event<'a> {
    /// The object.
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    /// In one word, as `kubectl get events` shows it.
    pub(crate) reason: &'a str,
    /// For a person.
    pub(crate) note: &'a str,
    /// What SMC was doing, in one word.
    pub(crate) action: &'a str,
    /// Whether an operator or author should do something.
    pub(crate) is_warning: bool,
}

impl Event<'_> {
    fn json(&self, now: Timestamp) -> Value {
        let Self { api_version, kind, namespace, name, uid, reason, note, action, is_warning } = self;
        let content = format!("{uid}\n{kind}\n{reason}\n{note}");
        let suffix = data_encoding::HEXLOWER.encode(&digest(&SHA256, content.as_bytes()).as_ref()[..8]);
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": format!("{}.{suffix}", truncated(name, 200)), "namespace": namespace},
            "eventTime": rfc3339(now).replace('Z', ".000000Z"),
            "reportingController": CONTROLLER,
            "reportingInstance": CONTROLLER,
            "action": action,
            "reason": reason,
            "type": if *is_warning { "Warning" } else { "Normal" },
            "note": truncated(note, MAX_NOTE),
            "regarding": {
                "apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace, "uid": uid,
            },
        })
    }

    /// Writes the Event. Returns whether it is there now; a failure is logged for developers only, since what
    /// an Event says is said elsewhere as well.
    pub(crate) async fn write(&self, client: &Client, now: Timestamp) -> bool {
        let Ok(event) = serde_json::from_value::<DynamicObject>(self.json(now)) else { return false };
        let resource = ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&());
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), self.namespace, &resource);
        match timeout(LIMIT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => true,
            // One of this name, thus of the same content, is there already.
            Ok(Err(Error::Api(status))) if status.code == 409 => true,
            Ok(Err(error)) => {
                debug!(error = &error as &dyn std::error::Error, "an Event was not written");
                false
            }
            Err(_) => false,
        }
    }
}

/// A point in time as the API writes it. A time that no calendar has is its beginning.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(note: &str) -> Value {
        let event = Event {
            api_version: "split.smi-spec.io/v1alpha4",
            kind: "TrafficSplit",
            namespace: "shop",
            name: "canary",
            uid: "u",
            reason: "Invalid",
            note,
            action: "Reading",
            is_warning: true,
        };
        event.json(Timestamp(0))
    }

    #[test]
    fn an_event_is_named_by_what_it_says() {
        let event = of("spec.service: is missing");
        assert_eq!(event["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(event["regarding"]["apiVersion"], "split.smi-spec.io/v1alpha4");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event, of("spec.service: is missing"));
        assert_ne!(event["metadata"]["name"], of("spec.service: is odd")["metadata"]["name"]);
        assert_eq!(of(&"x".repeat(5000))["note"].as_str().unwrap().chars().count(), 250);
    }

    #[test]
    fn a_time_is_written_as_the_api_writes_it() {
        assert_eq!(rfc3339(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(Timestamp(1_800_000_000)), "2027-01-15T08:00:00Z");
        assert_eq!(rfc3339(Timestamp(i64::MAX)), "1970-01-01T00:00:00Z");
    }
}
