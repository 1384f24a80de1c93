//! The agreement on the ledger's time.
//!
//! Owns how it is reached, and which commands need it (docs/design/identity.md). A command carries
//! its proposer's clock, which may be wrong. The agreed time follows from the clocks of a majority of
//! the replicas, which are in the log. It may go back if a majority's clocks do: a group whose clocks
//! were all wrong recovers as soon as they are right.

use std::collections::BTreeMap;

use super::bounds::{CLOCK_TOLERANCE, MAX_ACKNOWLEDGING, TIME_KEPT, check_len};
use super::command::Operation;
use super::outcome::{Outcome, Rejection, Reply};
use super::state::Ledger;
use super::time::{AgreedTime, LedgerTime, median};
use smc_types::time::Timestamp;

impl Ledger {
    /// The time that the group agreed on last; `None` before the first agreement. The rules that
    /// need it begin with it.
    pub fn agreed_time(&self) -> Option<Timestamp> {
        match self.now {
            LedgerTime::Latest(_) => None,
            LedgerTime::Agreed(AgreedTime { agreed, .. }) => Some(agreed),
        }
    }

    /// Whether a proposal at `now` should bring a newer time.
    pub fn is_time_due(&self, now: Timestamp) -> bool {
        self.agreed_time().is_some_and(|agreed| now.since(agreed).max(agreed.since(now)) > TIME_KEPT)
    }

    pub(super) fn agree_on_time(&mut self, clocks: &BTreeMap<u64, Timestamp>) -> Outcome {
        check_len("the list of clocks", clocks.len(), MAX_ACKNOWLEDGING)?;
        let agreed = median(clocks).ok_or(Rejection::NoClock)?;
        let proxies = match self.now {
            LedgerTime::Latest(_) => 0,
            LedgerTime::Agreed(AgreedTime { proxies, .. }) => proxies,
        };
        self.now = LedgerTime::Agreed(AgreedTime { agreed, proxies });
        Ok(Reply::TimeAgreed)
    }

    /// Counts a proxy certificate, and returns its number; 0 before the group has agreed on a time.
    pub(super) fn next_proxy(&mut self) -> u64 {
        match &mut self.now {
            LedgerTime::Latest(_) => 0,
            LedgerTime::Agreed(AgreedTime { proxies, .. }) => {
                *proxies += 1;
                *proxies
            }
        }
    }

    /// Rejects a command that its proposer's wrong clock would decide. A claim or a release holds
    /// whatever the time, and takes the ledger's.
    pub(super) fn check_clock(&self, operation: &Operation, at: Timestamp) -> Result<(), Rejection> {
        let by_clock = match operation {
            Operation::RecordServiceCertificate(_)
            | Operation::RecordProxyCertificate(_)
            | Operation::RecordControllerCertificate(_)
            | Operation::Prune
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
            | Operation::ForgetReplica(_) => false,
        };
        match self.agreed_time().filter(|_| by_clock) {
            Some(group) if at.since(group).max(group.since(at)) > CLOCK_TOLERANCE => {
                Err(Rejection::WrongClock { at, group })
            }
            _ => Ok(()),
        }
    }
}
