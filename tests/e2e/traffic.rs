//! Tests that applications say and hear the same with sidecars between them as without: dialogues that are
//! written byte for byte are held directly and through two sidecars, and what each end received is compared.
//!
//! What differs is a row of `docs/traffic.md`. `messages.rs` knows what sidecars add to any message and
//! take from it; `dialogues.rs` names the row of a dialogue that differs beyond that, and what its client
//! gets.

mod dialogues;
mod drawn;
mod messages;

use smc_lab::tools::{Dialogue, End, Exchange};
use smc_lab::{Lab, LabHandle};
use smc_testkit::setting::setting;

use crate::eventually::{eventually, eventually_get};
use crate::mesh::{Mesh, mesh_config};
use crate::{fetch, outcome, start};
use dialogues::{Case, Expected, cases};
use drawn::{Drawn, drawn};
use messages::{Message, Side};

/// The document that says what differs.
const DOCUMENT: &str = include_str!("../../docs/traffic.md");

/// A client and an application in the mesh, and both outside of it. All pods may call each other.
fn mesh() -> Mesh {
    let mut mesh = Mesh::default().with("echo.yaml", ECHO);
    mesh.add("mesh-config.yaml", &mesh_config(true));
    for (namespace, label) in
        [("inside", "\n  labels: {openservicemesh.io/monitored-by: smc}"), ("outside", "")]
    {
        let yaml = format!(
            "apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}{label}
---
apiVersion: v1
kind: Service
metadata: {{name: application, namespace: {namespace}}}
spec:
  selector: {{app: application}}
  ports:
    - {{name: http, port: 80, targetPort: 8080}}
    - {{name: tcp-script, port: 81, targetPort: 8081}}
"
        );
        mesh.add(&format!("{namespace}.yaml"), &yaml);
        for (name, command) in [
            ("application", "application, --port, '8080', --script-port, '8081'"),
            ("echo", "echo, --http, '8081'"),
            ("client", "echo, --http, '8081'"),
        ] {
            let yaml = format!(
                "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: {namespace}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}
spec:
  serviceAccountName: {name}
  containers:
    - name: {name}
      command: [smc-lab, {command}]
      readinessProbe:
        tcpSocket: {{port: 8081}}
"
            );
            mesh.add(&format!("{namespace}-{name}.yaml"), &yaml);
        }
    }
    mesh
}

/// Holds the dialogues between the client and the application of a namespace.
async fn hold(lab: &LabHandle, namespace: &str, dialogues: &[Dialogue]) -> Vec<Exchange> {
    let texts: Vec<String> = dialogues.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
    let (address, script) = (format!("application.{namespace}:80"), format!("application.{namespace}:81"));
    let mut args = vec![&*address, "--script", &*script];
    args.extend(texts.iter().map(String::as_str));
    let client = format!("{namespace}/client");
    lab.dialogue(&client, &args).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// What is wrong with an exchange through sidecars, beside the direct one.
fn judge(case: &Case, direct: &Exchange, meshed: &Exchange) -> Vec<String> {
    let client = |exchange: &Exchange| messages::read(&exchange.client, Side::Client, &case.methods);
    let application = |exchange: &Exchange| messages::read(&exchange.application, Side::Application, &[]);
    let (client, application) = (
        messages::differences(client(direct), client(meshed)),
        messages::differences(application(direct), application(meshed)),
    );
    match &case.expected {
        // Two ends that say nothing agree, too.
        Expected::SameAndWhole if !is_whole(direct, case) => {
            vec!["without sidecars, not every request is heard and answered".to_owned()]
        }
        Expected::Same | Expected::SameAndWhole => {
            let ends = [("the client", client), ("the application", application)];
            let lines = ends.into_iter().flat_map(|(end, found)| {
                found.into_iter().map(move |what| format!("{end} hears something else: {what}"))
            });
            lines.collect()
        }
        Expected::Differs { row, answers } => {
            let mut wrong = Vec::new();
            if client.is_empty() && application.is_empty() {
                wrong.push(format!("is the same, and docs/traffic.md says that it differs: {row}"));
            }
            let heard = messages::read(&meshed.client, Side::Client, &case.methods);
            let starts: Vec<_> = heard.iter().map(|message: &Message| &*message.start).collect();
            if starts != *answers {
                wrong.push(format!("the client gets {starts:?}, and docs/traffic.md says {answers:?}"));
            }
            wrong
        }
    }
}

/// Whether the application hears every request, and the client an answer to each.
fn is_whole(exchange: &Exchange, case: &Case) -> bool {
    let answers = messages::read(&exchange.client, Side::Client, &case.methods);
    let is_final = |answer: &&Message| !answer.start.starts_with('1');
    let requests = messages::read(&exchange.application, Side::Application, &[]);
    let all = case.methods.len();
    (requests.len(), answers.iter().filter(is_final).count()) == (all, all)
}

/// A service in front of the pods that answer HTTP/2.
const ECHO: &str = "apiVersion: v1
kind: Service
metadata: {name: echo, namespace: inside}
spec:
  selector: {app: echo}
  ports:
    - {name: http, port: 80, targetPort: 8081}
    - {name: grpc, port: 90, targetPort: 8081}
";

async fn ready() -> Lab {
    let lab = start(&mesh()).await;
    eventually("the client reaches the application", async || {
        let probe = dialogues::plain();
        match &*hold(&lab, "inside", &[probe]).await {
            [Exchange { application, .. }] if application.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    lab
}

#[tokio::test(flavor = "multi_thread")]
async fn applications_hear_with_sidecars_what_they_hear_without() {
    let lab = ready().await;
    compare(&lab, &cases()).await;
    lab.stop().await.unwrap();
}

/// Holds all dialogues without sidecars and with them.
async fn compare(lab: &LabHandle, cases: &[Case]) {
    let found = differences(lab, cases).await;
    let lines = cases.iter().zip(&found).flat_map(|(case, found)| {
        found.iter().map(|what| format!("{}: {what}", case.name)).collect::<Vec<_>>()
    });
    let wrong: Vec<_> = lines.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with each of the dialogues, held without sidecars and with them.
async fn differences(lab: &LabHandle, cases: &[Case]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    // As many as fit into the arguments of a program.
    for cases in cases.chunks(20) {
        let dialogues: Vec<Dialogue> = cases.iter().map(|case| case.dialogue.clone()).collect();
        let (direct, meshed) =
            tokio::join!(hold(lab, "outside", &dialogues), hold(lab, "inside", &dialogues));
        let pairs = cases.iter().zip(direct.iter().zip(&meshed));
        all.extend(pairs.map(|(case, (direct, meshed))| judge(case, direct, meshed)));
    }
    all
}

/// How often a dialogue that differs is tried with one thing less.
const ATTEMPTS: usize = 200;

/// Makes a dialogue that differs smaller while it differs.
async fn shrunk(lab: &LabHandle, mut dialogue: Drawn, mut found: Vec<String>) -> (Drawn, Vec<String>) {
    let mut attempts = 0;
    'smaller: while attempts < ATTEMPTS {
        for smaller in dialogue.smaller().into_iter().take(ATTEMPTS - attempts) {
            attempts += 1;
            let differs = differences(lab, &[smaller.case()]).await.remove(0);
            if !differs.is_empty() {
                (dialogue, found) = (smaller, differs);
                continue 'smaller;
            }
        }
        break;
    }
    (dialogue, found)
}

/// `SMC_DIALOGUES` of them, from `SMC_SEED` on.
#[tokio::test(flavor = "multi_thread")]
async fn dialogues_that_are_drawn_are_the_same_with_sidecars_as_without() {
    let lab = ready().await;
    let first: u64 = setting("SMC_SEED").unwrap_or(1);
    let count: u64 = setting("SMC_DIALOGUES").unwrap_or(100);
    let seeds: Vec<u64> = (first..first + count).collect();
    let mut wrong = Vec::new();
    for seeds in seeds.chunks(20) {
        let dialogues: Vec<Drawn> = seeds.iter().map(|seed| drawn(*seed)).collect();
        let cases: Vec<Case> = dialogues.iter().map(Drawn::case).collect();
        for (dialogue, found) in dialogues.into_iter().zip(differences(&lab, &cases).await) {
            if found.is_empty() || wrong.len() >= 10 {
                continue;
            }
            // A machine that stops for a moment may cut a dialogue short, once.
            let found = differences(&lab, &[dialogue.case()]).await.remove(0);
            if !found.is_empty() {
                let (dialogue, found) = shrunk(&lab, dialogue, found).await;
                wrong.push(format!("{}\n  {}", dialogue.case().name, found.join("\n  ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_an_application_is_not_kept_until_a_server_closes_it() {
    let lab = ready().await;
    let found = hold(&lab, "inside", &[dialogues::with_a_pause()]).await;
    let [Exchange { client, application }] = &*found else { panic!("{found:?}") };
    assert_eq!(client[0].text.matches("200 OK").count(), 2, "{client:?}");
    let [first, _second] = &**application else { panic!("each request has its own: {application:?}") };
    assert_eq!(first.end, End::Closed, "{application:?}");
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_headers_pass_over_http_2_and_between_versions_too() {
    let lab = ready().await;
    let cookie = format!("cookie: {}", "c".repeat(100_000));
    let lines: Vec<String> = (0..120).map(|number| format!("x-line-{number}: some value")).collect();
    let many = lines.iter().flat_map(|line| ["-H", line]);
    let args: Vec<&str> = many.chain(["-H", &cookie]).collect();
    for (form, url) in [
        (&["--http2"][..], "http://echo.inside/"),
        (&["--http2"], "http://echo.inside:90/"),
        (&[], "http://echo.inside:90/"),
        (&[], "http://echo.inside/"),
    ] {
        eventually_get(&lab, "inside/client", url, "200").await;
        let answer = fetch(&lab, "inside/client", &[form, &args, &["--url", url]].concat()).await;
        let heard = |name: &str| answer.body["headers"][name].as_str().map_or(0, str::len);
        let heard = (outcome(&answer), heard("cookie"), heard("x-line-119"));
        assert_eq!(heard, ("200".to_owned(), 100_000, 10), "{form:?} {url}");
    }
    lab.stop().await.unwrap();
}

#[test]
fn the_document_on_traffic_names_all_that_differs_and_nothing_else() {
    let cases = cases();
    for name in messages::ADDED.iter().chain(&messages::TAKEN) {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "docs/traffic.md does not name the header {name}");
    }
    let table = DOCUMENT.split("## What differs").nth(1).expect("the document has this part");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    let mut documented: Vec<&str> = rows.collect();
    let mut tested: Vec<&str> = cases
        .iter()
        .filter_map(|case| match &case.expected {
            Expected::Differs { row, .. } => Some(*row),
            Expected::Same | Expected::SameAndWhole => None,
        })
        .collect();
    documented.sort_unstable();
    tested.sort_unstable();
    tested.dedup();
    assert_eq!(documented, tested);
}
