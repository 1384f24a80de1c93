//! `smc check`: whether SMC can be installed, and whether it works.

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, ValueEnum};
use smc_host::env::Env;
use smc_kubernetes::install::apply::Cluster;
use smc_kubernetes::install::check::facts::gather;
use smc_kubernetes::install::check::report::{self, Marks};
use smc_kubernetes::install::check::rules;
use smc_types::ids::{MeshName, MeshNamespace};
use tokio::time::{Instant, sleep};

use super::kube_access::KubeArgs;
use super::outcome::{Outcome, Verdict};
use super::{duration, output};

/// The pause between two looks while a failure may pass.
const LOOK: Duration = Duration::from_secs(2);

/// Flags of `smc check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Look at a cluster that SMC is to be installed into
    #[arg(long)]
    pre: bool,
    /// The name of the mesh
    #[arg(long, value_name = "NAME", default_value_t, value_parser = MeshName::new)]
    mesh_name: MeshName,
    /// The namespace of the control plane
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    mesh_namespace: MeshNamespace,
    /// How long to look again until there is no failure, and every controller votes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Form,
    /// No colours; the variable NO_COLOR, or an output that is no terminal, means the same
    #[arg(long, env = "NO_COLOR", value_parser = clap::builder::FalseyValueParser::new())]
    no_color: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// All answers, by category
    Table,
    /// Warnings and failures alone
    Short,
    /// One JSON object
    Json,
}

pub(super) async fn run(args: CheckArgs) -> Outcome {
    let cluster = Cluster::new(args.kube.client().await?);
    let env = Env::system();
    let deadline = Instant::now() + args.wait;
    let checks = loop {
        let facts = gather(&cluster, &args.mesh_name, &args.mesh_namespace, env.now().0).await?;
        let (checks, settling) = if args.pre {
            (rules::before(&facts), false)
        } else {
            (rules::after(&facts), rules::settling(&facts))
        };
        if !(settling || rules::failed(&checks)) || Instant::now() >= deadline {
            break checks;
        }
        sleep(LOOK).await;
    };
    let coloured = !args.no_color && std::io::stdout().is_terminal();
    let marks = if coloured { Marks::Coloured } else { Marks::Plain };
    match args.output {
        Form::Table => output::write(&report::text(&checks, marks, false))?,
        Form::Short => output::write(&report::text(&checks, marks, true))?,
        Form::Json => output::write(&format!("{:#}\n", report::json(&checks)))?,
    }
    Ok(if rules::failed(&checks) { Verdict::Findings } else { Verdict::Ok })
}
