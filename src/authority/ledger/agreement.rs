//! The agreement on the ledger's time, and on its rules.
//!
//! Owns how both are reached, and which commands need the time (docs/design/identity.md). A command
//! carries its proposer's clock, which may be wrong. The agreed time follows from the clocks of a
//! majority of the replicas, which are in the log. It may go back if a majority's clocks do: a group
//! whose clocks were all wrong recovers as soon as they are right.

use std::collections::BTreeMap;

use super::bounds::{CLOCK_TOLERANCE, MAX_ACKNOWLEDGING, TIME_KEPT, check_len};
use super::command::Operation;
use super::outcome::{Outcome, Rejection, Reply};
use super::rules::Rules;
use super::state::Ledger;
use super::time::median;
use smc_types::time::Timestamp;

impl Ledger {
    /// The time that the group agreed on last; `None` before the first agreement. The rules that
    /// need it begin with it.
    pub fn agreed_time(&self) -> Option<Timestamp> {
        self.now.agreed()
    }

    /// Whether a proposal at `now` should bring a newer time.
    pub fn is_time_due(&self, now: Timestamp) -> bool {
        self.agreed_time().is_some_and(|agreed| now.since(agreed).max(agreed.since(now)) > TIME_KEPT)
    }

    pub(super) fn agree_on_time(&mut self, clocks: &BTreeMap<u64, Timestamp>) -> Outcome {
        check_len("the list of clocks", clocks.len(), MAX_ACKNOWLEDGING)?;
        let agreed = median(clocks).ok_or(Rejection::NoClock)?;
        self.now.agree(agreed);
        Ok(Reply::TimeAgreed)
    }

    /// The rules that are in use.
    pub fn rules(&self) -> Rules {
        self.now.rules()
    }

    /// Checks that these rules are in use, and returns the agreed time, which all but the first ones need.
    pub(super) fn check_rules(&self, rules: Rules) -> Result<Timestamp, Rejection> {
        let agreed = self.agreed_time().filter(|_| self.rules() >= rules);
        agreed.ok_or(Rejection::RulesNotBegun(rules))
    }

    /// Begins rules. The group does not go back to earlier ones.
    pub(super) fn use_rules(&mut self, rules: Rules) -> Outcome {
        if rules <= self.rules() {
            return Ok(Reply::RulesUnchanged);
        }
        if self.now.begin(rules) { Ok(Reply::RulesBegun) } else { Err(Rejection::NoAgreedTime) }
    }

    /// Rejects a command that its proposer's wrong clock would decide. A claim or a release holds
    /// whatever the time, and takes the ledger's.
    pub(super) fn check_clock(&self, operation: &Operation, at: Timestamp) -> Result<(), Rejection> {
        let by_clock = match operation {
            Operation::RecordServiceCertificate(_)
            | Operation::RecordProxyCertificate(_)
            | Operation::RecordControllerCertificate(_)
            | Operation::RecordGatewayCertificate(_)
            | Operation::Prune
            | Operation::ForgetServices(_)
            | Operation::RotateIssuing(_)
            | Operation::TrustRoot(_)
            | Operation::SignWithNextRoot(_)
            | Operation::EndControllerIssuer(_)
            | Operation::RetireCa(_) => true,
            Operation::InitAuthority(_)
            | Operation::AgreeOnTime(_)
            | Operation::ClaimProxyCertificate(_)
            | Operation::ReleaseProxy(_)
            | Operation::ReleaseProxyCertificates(_)
            | Operation::AcknowledgeRoot(_)
            | Operation::CancelRoot(_)
            | Operation::HastenRoot(_)
            | Operation::Rekey(_)
            | Operation::SetReplicaPhase(_)
            | Operation::ForgetReplica(_)
            | Operation::ForgetGateway(_)
            | Operation::NameRoot(_)
            | Operation::UseRules(_) => false,
        };
        match self.agreed_time().filter(|_| by_clock) {
            Some(group) if at.since(group).max(group.since(at)) > CLOCK_TOLERANCE => {
                Err(Rejection::WrongClock { at, group })
            }
            _ => Ok(()),
        }
    }
}
