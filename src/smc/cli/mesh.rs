//! `smc mesh`: the declared mesh, its effect and its problems.

use clap::Subcommand;
use smc_proto::admin::v1::{
    EgressProtocol, EgressWay, ListEgressRequest, ListEgressResponse, ListPolicyRequest, ListPolicyResponse,
    ListProblemsRequest, ListProblemsResponse, ListServicesRequest, ListServicesResponse, Severity,
};
use smc_types::ids::ServiceAccountId;

use super::admin_access::AdminArgs;
use super::outcome::{Outcome, Refused, Verdict};
use super::output::OutputArgs;
use super::suggest;
use super::table::Table;

/// Subcommands of `smc mesh`.
#[derive(Debug, Subcommand)]
pub(super) enum MeshCommand {
    /// List the problems of the declared mesh; exits with 79 if any of them is an error.
    Problems(QueryArgs),
    /// List the services, their ports and endpoints.
    Services(QueryArgs),
    /// List which service accounts may access which, and how.
    Policy(PolicyArgs),
    /// List what of outside the mesh a service account may reach by its Egresses, and where it gets there.
    Egress {
        /// The service account
        #[arg(value_name = "NAMESPACE/SERVICEACCOUNT")]
        service_account: ServiceAccountId,
        #[command(flatten)]
        query: QueryArgs,
    },
}

/// Flags of every subcommand.
#[derive(Debug, clap::Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Flags of `smc mesh policy`.
#[derive(Debug, clap::Args)]
pub(super) struct PolicyArgs {
    #[command(flatten)]
    query: QueryArgs,
    /// Print the policy, as YAML, that allows the calls which sidecars have made since they started
    ///
    /// In a mesh that allows all traffic, this is what to apply before that ends. Asks each sidecar for its
    /// statistics, through the API server of the cluster, with the right to pods/portforward. Exits with 79
    /// if something had to be left out; comments name it.
    #[arg(long, conflicts_with_all = ["output", "admin_socket"])]
    suggest: bool,
}

pub(super) async fn run(command: MeshCommand) -> Outcome {
    match command {
        MeshCommand::Problems(QueryArgs { admin, output }) => {
            let answer = admin
                .client()
                .await?
                .list_problems(ListProblemsRequest {})
                .await
                .map_err(Refused)?
                .into_inner();
            output.print(&answer, problems)?;
            let errors = answer.problems.iter().any(|problem| problem.severity() == Severity::Error);
            Ok(if errors { Verdict::Findings } else { Verdict::Ok })
        }
        MeshCommand::Services(QueryArgs { admin, output }) => {
            let answer = admin
                .client()
                .await?
                .list_services(ListServicesRequest {})
                .await
                .map_err(Refused)?
                .into_inner();
            output.print(&answer, services)?;
            Ok(Verdict::Ok)
        }
        MeshCommand::Egress { service_account, query: QueryArgs { admin, output } } => {
            let request = ListEgressRequest { service_account: service_account.to_string() };
            let answer = admin.client().await?.list_egress(request).await.map_err(Refused)?.into_inner();
            output.print(&answer, egress)?;
            Ok(Verdict::Ok)
        }
        MeshCommand::Policy(PolicyArgs { query, suggest: true }) => suggest::run(&query.admin).await,
        MeshCommand::Policy(PolicyArgs { query: QueryArgs { admin, output }, suggest: false }) => {
            let answer =
                admin.client().await?.list_policy(ListPolicyRequest {}).await.map_err(Refused)?.into_inner();
            output.print(&answer, policy)?;
            Ok(Verdict::Ok)
        }
    }
}

fn problems(answer: &ListProblemsResponse) -> String {
    if answer.problems.is_empty() {
        return "no problems\n".to_owned();
    }
    let mut table = Table::new(["SEVERITY", "OBJECT", "FIELD", "PROBLEM"]);
    for problem in &answer.problems {
        let severity = match problem.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Unspecified => "unknown",
        };
        table.row([
            severity.to_owned(),
            problem.object.clone(),
            problem.field.clone(),
            problem.message.clone(),
        ]);
    }
    table.render()
}

fn services(answer: &ListServicesResponse) -> String {
    let mut table =
        Table::new(["SERVICE", "ADDRESS", "PORT", "PROTOCOL", "ENDPOINTS", "IDENTITIES", "SPLITS"]);
    for service in &answer.services {
        let address = if service.headless { "headless".to_owned() } else { service.cluster_ips.join(",") };
        for port in &service.ports {
            let name = if port.name.is_empty() { String::new() } else { format!(" ({})", port.name) };
            table.row([
                service.name.clone(),
                address.clone(),
                format!("{}{name}", port.port),
                port.protocol.clone(),
                port.endpoints.join(","),
                service.service_accounts.join(","),
                service.splits.join(","),
            ]);
        }
    }
    table.render()
}

fn egress(answer: &ListEgressResponse) -> String {
    if answer.everything {
        return "every connection may leave the mesh: traffic.enableEgress of the MeshConfig is true\n"
            .to_owned();
    }
    let mut text = String::new();
    if answer.ports.is_empty() {
        text.push_str("no connection may leave the mesh\n");
    } else {
        let mut table = Table::new(["PORT", "NETWORK", "CARRIES", "HOST", "REQUESTS", "GOES TO", "BY"]);
        for port in &answer.ports {
            let by = port.declared_by.join(", ");
            for way in &port.ways {
                let (carries, requests, goes_to) = carried(way);
                table.row([
                    port.number.to_string(),
                    way.network.clone(),
                    carries.to_owned(),
                    way.host.clone(),
                    requests,
                    goes_to.to_owned(),
                    by.clone(),
                ]);
            }
        }
        text.push_str(&table.render());
    }
    for egress in &answer.left_out {
        text.push_str("Egress ");
        text.push_str(&egress.replace(char::is_control, "?"));
        text.push_str(" has no effect: there is no room for it\n");
    }
    text
}

/// What a way out carries, which requests of it, and where they go.
fn carried(way: &EgressWay) -> (&'static str, String, &'static str) {
    let goes_to =
        if way.resolved { "what the sidecar resolves the host to" } else { "the address that is dialled" };
    match way.protocol() {
        EgressProtocol::None => ("nothing", String::new(), "nowhere"),
        EgressProtocol::Any => ("anything", String::new(), goes_to),
        EgressProtocol::Tls => ("TLS", String::new(), goes_to),
        EgressProtocol::Http if way.requests.is_empty() => ("HTTP", "all".to_owned(), goes_to),
        EgressProtocol::Http => ("HTTP", way.requests.join("; "), goes_to),
        EgressProtocol::Unspecified => ("unknown", String::new(), goes_to),
    }
}

fn policy(answer: &ListPolicyResponse) -> String {
    let open = answer.permissive_namespaces.join(", ");
    let text = if answer.permissive {
        "permissive mode: every workload in the mesh may access every other; these rules have no effect\n\n"
            .to_owned()
    } else if open.is_empty() {
        String::new()
    } else {
        format!(
            "permissive namespaces: every workload in the mesh may access those of {open}; rules that lead there have \
             no effect\n\n"
        )
    };
    let mut table = Table::new(["SOURCE", "DESTINATION", "PORTS", "REQUESTS", "TRAFFICTARGET"]);
    for rule in &answer.rules {
        let ports: Vec<_> = rule.ports.iter().map(ToString::to_string).collect();
        table.row([
            rule.source.clone(),
            rule.destination.clone(),
            if rule.all_ports { "all".to_owned() } else { ports.join(",") },
            if rule.any_http { "any".to_owned() } else { rule.http.join("; ") },
            rule.target.clone(),
        ]);
    }
    text + &table.render() + &left_out(answer)
}

/// What is said of the rules that the controller does not list.
fn left_out(answer: &ListPolicyResponse) -> String {
    if answer.rules_left_out == 0 {
        return String::new();
    }
    let targets = answer.targets_left_out.join(", ");
    format!(
        "\n{} rules more than the controller lists; the first are those of the TrafficTargets {targets}\n",
        answer.rules_left_out
    )
}

#[cfg(test)]
mod tests {
    use smc_proto::admin::v1::Rule;

    use super::*;

    #[test]
    fn the_policy_says_which_rules_the_controller_does_not_list() {
        let rule = Rule { source: "shop/buyer".to_owned(), ..Rule::default() };
        let whole = ListPolicyResponse { rules: vec![rule], ..ListPolicyResponse::default() };
        assert_eq!(policy(&whole).lines().count(), 2);
        let targets_left_out = vec!["shop/a".to_owned(), "shop/b".to_owned()];
        let text = policy(&ListPolicyResponse { rules_left_out: 7, targets_left_out, ..whole });
        let last = "7 rules more than the controller lists; the first are those of the TrafficTargets shop/a, shop/b";
        assert_eq!(text.lines().last(), Some(last));
    }
}
