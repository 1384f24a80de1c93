//! When a client counts as having ACKed what a view has of a type.

use super::support::{SDS, ack, changes, nack, sotw, sotw_ack, sotw_nack, subscribe, view};
use crate::served_state::View;
use crate::session::{Response, Scope, Session, Step, Variant};

/// A stream of either variant that subscribes to one secret.
struct Stream(Session);

impl Stream {
    fn all() -> impl Iterator<Item = Self> {
        [Variant::Delta, Variant::Sotw]
            .into_iter()
            .flat_map(|variant| [Scope::Aggregated, Scope::Only(SDS)].map(|scope| (variant, scope)))
            .map(|(variant, scope)| Self(Session::new(variant, scope)))
    }

    fn ask(&mut self, view: Option<&View>) -> Step {
        match self.0.variant() {
            Variant::Delta => self.0.on_delta(&subscribe(SDS, &["roots"]), view).unwrap(),
            Variant::Sotw => self.0.on_sotw(&sotw(SDS, &["roots"]), view).unwrap(),
        }
    }

    fn answer(&mut self, response: &Response, acked: bool) {
        match (self.0.variant(), acked) {
            (Variant::Delta, true) => self.0.on_delta(&ack(response), None).unwrap(),
            (Variant::Delta, false) => self.0.on_delta(&nack(response, "no"), None).unwrap(),
            (Variant::Sotw, true) => self.0.on_sotw(&sotw_ack(response, &["roots"]), None).unwrap(),
            (Variant::Sotw, false) => self.0.on_sotw(&sotw_nack(response, &["roots"], "no"), None).unwrap(),
        };
    }
}

#[test]
fn a_view_is_acked_when_all_that_was_subscribed_to_is_acked() {
    let (old, new) = (view(&[(SDS, "roots", "1")]), view(&[(SDS, "roots", "2")]));
    for mut stream in Stream::all() {
        let which = format!("{:?} {:?}", stream.0.variant(), stream.0.scope());
        assert!(!stream.0.has_acked(SDS, &old), "{which}: it has seen nothing");
        let step = stream.ask(Some(&old));
        assert!(!stream.0.has_acked(SDS, &old), "{which}: it has answered nothing");
        stream.answer(&step.responses[0], true);
        assert!(stream.0.has_acked(SDS, &old), "{which}");
        assert!(!stream.0.has_acked(SDS, &new), "{which}: it has not seen it");
        let step = stream.0.on_view(&new, &changes(&old, &new));
        assert!(!stream.0.has_acked(SDS, &new) && !stream.0.has_acked(SDS, &old), "{which}");
        assert!(!stream.0.has_answered(&new) && !stream.0.has_answered(&old), "{which}");
        stream.answer(&step.responses[0], true);
        assert!(stream.0.has_acked(SDS, &new), "{which}");
    }
}

#[test]
fn a_rejected_view_is_not_acked_although_the_stream_is_idle() {
    let (old, new) = (view(&[(SDS, "roots", "1")]), view(&[(SDS, "roots", "2")]));
    for mut stream in Stream::all() {
        let step = stream.ask(Some(&old));
        stream.answer(&step.responses[0], true);
        let step = stream.0.on_view(&new, &changes(&old, &new));
        stream.answer(&step.responses[0], false);
        assert!(stream.0.acknowledged() && stream.0.has_answered(&new), "all is answered");
        assert!(!stream.0.has_acked(SDS, &new), "{:?}", stream.0.variant());
    }
}

#[test]
fn a_client_without_subscriptions_has_acked_the_current_view() {
    let (old, new) = (view(&[(SDS, "roots", "1")]), view(&[(SDS, "roots", "2")]));
    for mut stream in Stream::all() {
        stream.0.on_view(&old, &changes(&old, &old));
        assert!(stream.0.has_acked(SDS, &old) && !stream.0.has_acked(SDS, &new));
    }
}
