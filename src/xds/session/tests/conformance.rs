//! The rules of the xDS protocol, one row for each rule and variant: a sequence of messages, and what is
//! answered to each.
//!
//! The rules are those of xds_protocol.rst in Envoy's documentation, whose sections the rows name. Where SMC
//! deviates, the row says so, and docs/design/xds.md says why.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::support::{
    CDS, EDS, LDS, Spec, changes, nack, resume, sotw, sotw_ack, sotw_nack, subscribe, texts, unsubscribe,
    view,
};
use crate::resource::ResourceType;
use crate::served_state::Changed;
use crate::session::{Response, Scope, Session, Step, Variant};

use Input::{Add, Answer, Changes, Drop, Refuse, Resumes, StaleAnswer, State};
use Variant::{Delta, Sotw};

/// What the session gets.
enum Input {
    /// State of the World: a request that names these, and answers nothing.
    State(ResourceType, &'static [&'static str]),
    /// State of the World: an ACK of the last response. Delta: an ACK that subscribes to these besides.
    Answer(ResourceType, &'static [&'static str]),
    /// The same as a NACK.
    Refuse(ResourceType, &'static [&'static str]),
    /// The same with a nonce that is not the last one.
    StaleAnswer(ResourceType, &'static [&'static str]),
    /// Delta: a subscription that answers nothing.
    Add(ResourceType, &'static [&'static str]),
    /// Delta: the end of subscriptions.
    Drop(ResourceType, &'static [&'static str]),
    /// The first request of a stream whose client holds these resources.
    Resumes(ResourceType, &'static [&'static str], &'static [Spec<'static>]),
    /// The mesh changes.
    Changes(&'static [Spec<'static>]),
}

/// An input, and the responses to it.
type Turn = (Input, &'static [&'static str]);

struct Row {
    section: &'static str,
    rule: &'static str,
    variant: Variant,
    turns: &'static [Turn],
}

const BEGIN: &[Spec<'_>] =
    &[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1"), (LDS, "l", "1")];
const A_CHANGED: &[Spec<'_>] =
    &[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "2"), (EDS, "b", "1"), (LDS, "l", "1")];
const L_CHANGED: &[Spec<'_>] =
    &[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1"), (LDS, "l", "2")];
const L_GONE: &[Spec<'_>] = &[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1")];
const M_NEW: &[Spec<'_>] =
    &[(CDS, "a", "1"), (CDS, "b", "1"), (EDS, "a", "1"), (EDS, "b", "1"), (LDS, "l", "1"), (LDS, "m", "1")];

const HINTS: &str = "How the client specifies what resources to return";
const UNSUBSCRIBING: &str = "Unsubscribing From Resources";
const GROUPING: &str = "Grouping Resources into Responses";
const DELETING: &str = "Deleting Resources";
const MISSING: &str = "Knowing When a Requested Resource Does Not Exist";
const UPDATES: &str = "Resource updates";
const WHEN: &str = "When to send an update";
const VERSIONS: &str = "ACK/NACK and resource type instance version";
const WARMING: &str = "Resource warming";
const INCREMENTAL: &str = "Incremental xDS";
const SUBSCRIBING: &str = "Incremental xDS, Subscribing to Resources";
const UNSUBSCRIBING_DELTA: &str = "Incremental xDS, Unsubscribing from Resources";

const fn row(section: &'static str, rule: &'static str, variant: Variant, turns: &'static [Turn]) -> Row {
    Row { section, rule, variant, turns }
}

const ROWS: &[Row] = &[
    row(
        HINTS,
        "a first request that names nothing subscribes to all listeners",
        Sotw,
        &[(State(LDS, &[]), &["lds +l"]), (Answer(LDS, &[]), &[]), (Changes(M_NEW), &["lds +l +m"])],
    ),
    row(
        HINTS,
        "a first request that names nothing subscribes to all listeners",
        Delta,
        &[(Add(LDS, &[]), &["lds +l"]), (Answer(LDS, &[]), &[]), (Changes(M_NEW), &["lds +m"])],
    ),
    row(
        HINTS,
        "for other types no names are no subscription",
        Sotw,
        &[(State(EDS, &[]), &["eds"]), (Answer(EDS, &[]), &[]), (Changes(A_CHANGED), &[])],
    ),
    row(
        HINTS,
        "for other types no names are no subscription",
        Delta,
        &[(Add(EDS, &[]), &["eds"]), (Answer(EDS, &[]), &[]), (Changes(A_CHANGED), &[])],
    ),
    row(
        HINTS,
        "`*` subscribes to all",
        Sotw,
        &[(State(LDS, &["*"]), &["lds +l"]), (Answer(LDS, &["*"]), &[]), (Changes(M_NEW), &["lds +l +m"])],
    ),
    row(
        HINTS,
        "`*` subscribes to all",
        Delta,
        &[(Add(LDS, &["*"]), &["lds +l"]), (Answer(LDS, &[]), &[]), (Changes(M_NEW), &["lds +m"])],
    ),
    row(
        HINTS,
        "after `*` was named, no names end every subscription",
        Sotw,
        &[
            (State(LDS, &["*"]), &["lds +l"]),
            (Answer(LDS, &["*"]), &[]),
            (State(LDS, &[]), &[]),
            (Changes(L_CHANGED), &[]),
            (State(LDS, &[]), &[]),
        ],
    ),
    row(
        HINTS,
        "after `*` was named in an answer, no names end every subscription",
        Sotw,
        &[
            (State(LDS, &[]), &["lds +l"]),
            (Answer(LDS, &["*"]), &[]),
            (State(LDS, &[]), &[]),
            (Changes(L_CHANGED), &[]),
        ],
    ),
    row(
        HINTS,
        "the document's example: nothing, `*` and A, A, nothing",
        Sotw,
        &[
            (State(LDS, &[]), &["lds +l"]),
            (Answer(LDS, &["*", "l"]), &["lds +l"]),
            (Answer(LDS, &["l"]), &[]),
            (Changes(M_NEW), &[]),
            (Changes(L_CHANGED), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
            (Changes(L_GONE), &[]),
        ],
    ),
    row(
        HINTS,
        "the document's example: nothing, A, not `*`, not A",
        Delta,
        &[
            (Add(LDS, &[]), &["lds +l"]),
            (Answer(LDS, &["l"]), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
            (Drop(LDS, &["*"]), &[]),
            (Changes(M_NEW), &[]),
            (Changes(L_CHANGED), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
            (Drop(LDS, &["l"]), &[]),
            (Changes(L_GONE), &[]),
        ],
    ),
    row(
        HINTS,
        "a name that is newly requested beside `*` is sent again, although it was sent",
        Sotw,
        &[
            (State(LDS, &["*"]), &["lds +l"]),
            (Answer(LDS, &["*"]), &[]),
            (State(LDS, &["*", "l"]), &["lds +l"]),
            (Answer(LDS, &["*", "l"]), &[]),
            (State(LDS, &["*", "l"]), &[]),
        ],
    ),
    row(
        HINTS,
        "a name that is newly requested beside `*` is sent again, although it was sent",
        Delta,
        &[
            (Add(LDS, &["*"]), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
            (Add(LDS, &["l"]), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
        ],
    ),
    row(
        HINTS,
        "`*` said again is nothing new",
        Sotw,
        &[(State(LDS, &[]), &["lds +l"]), (Answer(LDS, &["*"]), &[]), (State(LDS, &["*"]), &[])],
    ),
    row(
        HINTS,
        "`*` said again is nothing new",
        Delta,
        &[(Add(LDS, &[]), &["lds +l"]), (Answer(LDS, &["*"]), &[]), (Add(LDS, &["*"]), &[])],
    ),
    row(
        HINTS,
        "names that are added are sent",
        Sotw,
        &[(State(EDS, &["a"]), &["eds +a"]), (Answer(EDS, &["a", "b"]), &["eds +a +b"])],
    ),
    row(
        HINTS,
        "names that are added are sent",
        Delta,
        &[(Add(EDS, &["a"]), &["eds +a"]), (Answer(EDS, &["b"]), &["eds +b"])],
    ),
    row(
        UNSUBSCRIBING,
        "a request states all names; one that it leaves out is not subscribed to",
        Sotw,
        &[(State(EDS, &["a", "b"]), &["eds +a +b"]), (Answer(EDS, &["b"]), &[]), (Changes(A_CHANGED), &[])],
    ),
    row(
        UNSUBSCRIBING_DELTA,
        "the end of a subscription needs no response",
        Delta,
        &[
            (Add(EDS, &["a", "b"]), &["eds +a +b"]),
            (Answer(EDS, &[]), &[]),
            (Drop(EDS, &["a"]), &[]),
            (Changes(A_CHANGED), &[]),
        ],
    ),
    row(
        UNSUBSCRIBING_DELTA,
        "the end of a subscription that there is not is ignored",
        Delta,
        &[(Add(EDS, &["a"]), &["eds +a"]), (Answer(EDS, &[]), &[]), (Drop(EDS, &["b", "z", "*"]), &[])],
    ),
    row(
        UNSUBSCRIBING_DELTA,
        "beside a wildcard the end of a subscription is answered, with the resource or its removal",
        Delta,
        &[
            (Add(LDS, &["*", "l", "z"]), &["lds +l -z"]),
            (Answer(LDS, &[]), &[]),
            (Drop(LDS, &["l"]), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
            (Drop(LDS, &["z"]), &["lds -z"]),
        ],
    ),
    row(
        UNSUBSCRIBING_DELTA,
        "a first request that only ends subscriptions is no wildcard",
        Delta,
        &[(Drop(LDS, &["z"]), &["lds"]), (Answer(LDS, &[]), &[]), (Changes(L_CHANGED), &[])],
    ),
    row(
        GROUPING,
        "a response of listeners holds all of them",
        Sotw,
        &[
            (State(LDS, &[]), &["lds +l"]),
            (Answer(LDS, &[]), &[]),
            (Changes(M_NEW), &["lds +l +m"]),
            (Answer(LDS, &[]), &[]),
            (Changes(L_CHANGED), &["lds +l"]),
        ],
    ),
    row(
        GROUPING,
        "a response holds what changed",
        Delta,
        &[
            (Add(EDS, &["a", "b"]), &["eds +a +b"]),
            (Answer(EDS, &[]), &[]),
            (Changes(A_CHANGED), &["eds +a"]),
        ],
    ),
    row(
        DELETING,
        "a listener that a response leaves out is removed, also the last one",
        Sotw,
        &[(State(LDS, &[]), &["lds +l"]), (Answer(LDS, &[]), &[]), (Changes(L_GONE), &["lds"])],
    ),
    row(
        DELETING,
        "a removal is stated",
        Delta,
        &[(Add(LDS, &[]), &["lds +l"]), (Answer(LDS, &[]), &[]), (Changes(L_GONE), &["lds -l"])],
    ),
    row(
        MISSING,
        "a name that does not exist is left out, and sent when it exists",
        Sotw,
        &[(State(LDS, &["m"]), &["lds"]), (Answer(LDS, &["m"]), &[]), (Changes(M_NEW), &["lds +m"])],
    ),
    row(
        MISSING,
        "a name that does not exist is answered with its removal, and sent when it exists",
        Delta,
        &[(Add(LDS, &["m"]), &["lds -m"]), (Answer(LDS, &[]), &[]), (Changes(M_NEW), &["lds +m"])],
    ),
    row(
        UPDATES,
        "a request with a stale nonce is not answered, nor does it change the subscription",
        Sotw,
        &[
            (State(EDS, &["a"]), &["eds +a"]),
            (StaleAnswer(EDS, &["a", "b"]), &[]),
            (Answer(EDS, &["a"]), &[]),
            (Changes(A_CHANGED), &["eds +a"]),
        ],
    ),
    row(
        INCREMENTAL,
        "a stale nonce answers nothing, and what it subscribes to counts",
        Delta,
        &[(Add(EDS, &["a"]), &["eds +a"]), (StaleAnswer(EDS, &["b"]), &[]), (Answer(EDS, &[]), &["eds +b"])],
    ),
    row(
        WHEN,
        "nothing is sent while a response is unanswered, and then the latest",
        Sotw,
        &[
            (State(EDS, &["a"]), &["eds +a"]),
            (Changes(A_CHANGED), &[]),
            (Changes(BEGIN), &[]),
            (Answer(EDS, &["a"]), &[]),
            (Changes(A_CHANGED), &["eds +a"]),
        ],
    ),
    row(
        WHEN,
        "what did not change is not sent",
        Delta,
        &[(Add(EDS, &["b"]), &["eds +b"]), (Answer(EDS, &[]), &[]), (Changes(A_CHANGED), &[])],
    ),
    row(
        VERSIONS,
        "what was refused is not sent again until it changes",
        Sotw,
        &[
            (State(LDS, &[]), &["lds +l"]),
            (Refuse(LDS, &[]), &[]),
            (State(LDS, &[]), &[]),
            (Changes(L_CHANGED), &["lds +l"]),
        ],
    ),
    row(
        VERSIONS,
        "what was refused is not sent again until it changes",
        Delta,
        &[(Add(LDS, &[]), &["lds +l"]), (Refuse(LDS, &[]), &[]), (Changes(L_CHANGED), &["lds +l"])],
    ),
    row(
        WARMING,
        "a repeated subscription is answered: a cluster may wait for its endpoints",
        Sotw,
        &[(State(EDS, &["a"]), &["eds +a"]), (Answer(EDS, &["a"]), &[]), (State(EDS, &["a"]), &["eds +a"])],
    ),
    row(
        SUBSCRIBING,
        "a repeated subscription is answered: the client may have forgotten",
        Delta,
        &[(Add(EDS, &["a"]), &["eds +a"]), (Answer(EDS, &[]), &[]), (Add(EDS, &["a"]), &["eds +a"])],
    ),
    row(
        INCREMENTAL,
        "what a client states to hold is not sent again; what it no longer should is removed",
        Delta,
        &[(Resumes(LDS, &["*"], &[(LDS, "l", "1"), (LDS, "old", "1")]), &["lds -old"])],
    ),
    row(
        INCREMENTAL,
        "deviation: a resume of listeners that names some subscribes to all (docs/design/xds.md)",
        Delta,
        &[
            (Changes(M_NEW), &[]),
            // Empty, to elicit an answer: the client may hold clusters that it has not stated.
            (Resumes(LDS, &["l"], &[(LDS, "l", "1")]), &["lds"]),
            (Answer(LDS, &[]), &["lds +m"]),
        ],
    ),
];

struct Client {
    session: Session,
    last: BTreeMap<ResourceType, Response>,
    now: &'static [Spec<'static>],
}

impl Client {
    fn new(variant: Variant) -> Self {
        let mut session = Session::new(variant, Scope::Aggregated);
        session.on_view(&view(BEGIN), &Changed::Everything);
        Self { session, last: BTreeMap::new(), now: BEGIN }
    }

    fn delta(&mut self, request: &DeltaDiscoveryRequest) -> Step {
        self.session.on_delta(request, None).unwrap()
    }

    fn sotw(&mut self, request: &DiscoveryRequest) -> Step {
        self.session.on_sotw(request, None).unwrap()
    }

    fn turn(&mut self, variant: Variant, input: &Input) -> Vec<String> {
        let last = match input {
            State(kind, _) | Answer(kind, _) | Refuse(kind, _) | StaleAnswer(kind, _) => {
                self.last.get(kind).cloned()
            }
            _ => None,
        };
        let answered = || last.as_ref().expect("a response to answer");
        let step = match (variant, input) {
            (_, Changes(specs)) => {
                let (old, new) = (view(self.now), view(specs));
                self.now = specs;
                self.session.on_view(&new, &changes(&old, &new))
            }
            (Sotw, State(kind, names)) => match &last {
                Some(last) => self.sotw(&sotw_ack(last, names)),
                None => self.sotw(&sotw(*kind, names)),
            },
            (Sotw, Answer(_, names)) => self.sotw(&sotw_ack(answered(), names)),
            (Sotw, Refuse(_, names)) => self.sotw(&sotw_nack(answered(), names, "no")),
            (Sotw, StaleAnswer(_, names)) => {
                let stale = Response { nonce: "0".to_owned(), ..answered().clone() };
                self.sotw(&sotw_ack(&stale, names))
            }
            (Delta, Add(kind, names)) => self.delta(&subscribe(*kind, names)),
            (Delta, Drop(kind, names)) => self.delta(&unsubscribe(*kind, names)),
            (Delta, Resumes(kind, names, held)) => self.delta(&resume(*kind, names, held)),
            (Delta, Answer(kind, names)) => {
                let response_nonce = answered().nonce.clone();
                self.delta(&DeltaDiscoveryRequest { response_nonce, ..subscribe(*kind, names) })
            }
            (Delta, Refuse(..)) => self.delta(&nack(answered(), "no")),
            (Delta, StaleAnswer(kind, names)) => {
                let response_nonce = "0".to_owned();
                self.delta(&DeltaDiscoveryRequest { response_nonce, ..subscribe(*kind, names) })
            }
            _ => unreachable!("the variant has no such message"),
        };
        for response in &step.responses {
            self.last.insert(response.kind, response.clone());
        }
        texts(&step)
    }
}

#[test]
fn every_rule_of_the_protocol_holds_in_the_session() {
    let mut wrong = Vec::new();
    for Row { section, rule, variant, turns } in ROWS {
        let mut client = Client::new(*variant);
        for (number, (input, expected)) in turns.iter().enumerate() {
            let answered = client.turn(*variant, input);
            if answered != *expected {
                wrong.push(format!(
                    "{section}: {rule} ({variant:?}), message {}: {answered:?}, not {expected:?}",
                    number + 1
                ));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_that_both_variants_have_is_in_the_table_for_both() {
    for (section, of) in [(HINTS, 6), (VERSIONS, 1)] {
        let rules = |variant| ROWS.iter().filter(move |row| row.section == section && row.variant == variant);
        let shared = rules(Sotw).filter(|sotw| rules(Delta).any(|delta| delta.rule == sotw.rule)).count();
        assert_eq!(shared, of, "{section}");
    }
}
