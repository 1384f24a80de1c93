//! Whether this replica's clock and that of the API server agree.
//!
//! Owns the judgement and its words. No policy depends on the API server's clock. Its judgement of
//! certificates does: where the webhooks' certificate is not yet valid, or expired, by its clock, it calls no
//! webhook, and stores no pod of the mesh.

use smc_authority::pki::BACKDATE;
use smc_authority::rules::MAX_CLOCK_OFFSET;
use smc_types::problem::{Problem, Subject};
use smc_types::time::Timestamp;

/// The problem of clocks that differ by more than replicas' clocks may ([`MAX_CLOCK_OFFSET`]). It says the
/// same while the difference stays the same, to the minute.
pub(super) fn problem(own: Timestamp, api_server: Timestamp) -> Option<Problem> {
    let (offset, direction) = if own > api_server {
        (own.since(api_server), "ahead of")
    } else {
        (api_server.since(own), "behind")
    };
    (offset > MAX_CLOCK_OFFSET).then(|| {
        let message = format!(
            "this replica's clock is {} minutes {direction} the API server's; set the clocks. From {} minutes on, the \
             API server may refuse the webhooks' certificate, and with it new pods and policy",
            offset.as_secs().saturating_add(30) / 60,
            BACKDATE.as_secs() / 60,
        );
        Problem::warning(Subject::ApiServer, "", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_a_minute_are_a_problem() {
        const NOW: i64 = 1_000_000;
        for (own, words) in [
            (NOW, None),
            (NOW + 60, None),
            (NOW - 60, None),
            (NOW + 61, Some("1 minutes ahead of the API server's")),
            (NOW - 3590, Some("60 minutes behind the API server's")),
            (NOW + 3610, Some("60 minutes ahead of the API server's")),
            (i64::MIN, Some("minutes behind")),
            (i64::MAX, Some("minutes ahead")),
        ] {
            let problem = problem(Timestamp(own), Timestamp(NOW)).map(|problem| problem.message);
            if let Some(words) = words {
                assert!(problem.as_ref().is_some_and(|said| said.contains(words)), "{problem:?}");
            } else {
                assert_eq!(problem, None, "{own}");
            }
        }
    }
}
