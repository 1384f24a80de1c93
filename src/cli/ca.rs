//! `smc ca`: the certificate authority.

use clap::Subcommand;
use smc_mesh::time::Timestamp;
use smc_proto::admin::v1::{Authority, GetCaStatusRequest, GetCaStatusResponse};

use super::output::OutputArgs;
use super::table::Table;
use super::{AdminArgs, Outcome, Verdict, duration};
use crate::env::Env;

/// Subcommands of `smc ca`.
#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// The authority's certificates and what it issued.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
}

pub(super) async fn run(command: CaCommand) -> Outcome {
    match command {
        CaCommand::Status { admin, output } => {
            let answer = admin.client().await?.get_ca_status(GetCaStatusRequest {}).await?.into_inner();
            output.print(&answer, status)?;
        }
    }
    Ok(Verdict::Ok)
}

fn status(answer: &GetCaStatusResponse) -> String {
    let now = Env::system().now();
    let mut table = Table::new(["CERTIFICATE", "IDENTITY", "SERIAL", "ENDS"]);
    let mut authority = |kind: &str, authority: &Authority| {
        let ends = ends(now, authority.not_after);
        table.row([kind.to_owned(), answer.trust_domain.clone(), authority.serial.clone(), ends]);
    };
    answer.roots.iter().for_each(|root| authority("root", root));
    answer.issuer.iter().for_each(|issuer| authority("issuing", issuer));
    for issued in &answer.service_certificates {
        let ends = ends(now, issued.not_after);
        table.row(["service".to_owned(), issued.service_account.clone(), issued.serial.clone(), ends]);
    }
    let warnings: String = answer.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    format!(
        "{}\n{warnings}proxy certificates: {} claimed, {} unclaimed, {} released\n",
        table.render(),
        answer.proxy_certificates_claimed,
        answer.proxy_certificates_unclaimed,
        answer.proxy_certificates_released
    )
}

fn ends(now: Timestamp, at: i64) -> String {
    let at = Timestamp(at);
    if at <= now {
        format!("ended {} ago", duration::print(now.since(at)))
    } else {
        format!("in {}", duration::print(at.since(now)))
    }
}
