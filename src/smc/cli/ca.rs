//! `smc ca`: the certificate authority.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use smc_host::env::Env;
use smc_proto::admin::v1::{
    AuthorityState, CertificateAuthority, GetCaStatusRequest, GetCaStatusResponse,
    GetGatewayCertificateRequest, RekeyCaRequest, RootRotation, RotateCaRequest, RotateCaResponse,
};
use smc_types::time::Timestamp;

use super::admin_access::AdminArgs;
use super::duration;
use super::outcome::{Outcome, Refused, Verdict};
use super::output::{self, OutputArgs};
use super::output_file::{check_target, write_secret};
use super::table::Table;

/// How many of the workloads that a root rotation waits for are named; the JSON has all of them.
const MAX_NAMES: usize = 8;

/// Subcommands of `smc ca`.
#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Show the authority's certificates and what it issued.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print the roots of the mesh as PEM, for what verifies its certificates from outside, such as an
    /// ingress.
    ///
    /// While the root is replaced, there are two. What verifies by a copy needs a new one before the new root
    /// signs, which `smc ca status` announces.
    Roots {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the certificate that an ingress gateway shows to backends, for a gateway on a machine.
    ///
    /// The MeshConfig asks for it in certificate.ingressGateway. In a cluster, SMC keeps it in the Secret
    /// that is named there. This writes the same files, as of now, readable by their owner alone: tls.crt,
    /// tls.key, and ca.crt with the roots of the mesh. Call it again before the certificate ends, which `smc
    /// ca status` says, as from a timer, and have the gateway load the three files.
    Gateway {
        /// The directory to write to, which exists
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Replace the CA that signs, or the root.
    ///
    /// A new issuing CA signs at once. A new root is trusted at once and signs once every proxy trusts it;
    /// `smc ca status` shows the progress. Neither interrupts traffic.
    Rotate {
        /// Replace the root, and with it the CA that signs.
        #[arg(long)]
        root: bool,
        /// Give up a new root that does not sign yet, as if its rotation had not begun.
        #[arg(long, conflicts_with_all = ["root", "hasten"])]
        cancel: bool,
        /// Do not wait for the certificates of services and gateways from before a new root. Shows what that
        /// means; with --confirm it does it.
        #[arg(long, conflicts_with = "root")]
        hasten: bool,
        /// Hasten the new root.
        #[arg(long, requires = "hasten")]
        confirm: bool,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Seal all private keys with the key-encryption key of the replica that is called.
    ///
    /// Every replica must have that key as its --kek-file and the previous key as --also-kek-file. Afterwards
    /// `smc ca status` shows one key-encryption key. Only older backups still need the previous one.
    Rekey {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
}

pub(super) async fn run(command: CaCommand) -> Outcome {
    match command {
        CaCommand::Status { admin, output } => output.print(&current(admin).await?, status)?,
        CaCommand::Roots { admin, output } => {
            let answer = current(admin).await?;
            if answer.roots_pem.is_empty() {
                return Err("the controller is older than this program, and says no roots".into());
            }
            output.print(&answer, |answer| answer.roots_pem.clone())?;
        }
        CaCommand::Gateway { dir, admin } => gateway(&dir, &admin).await?,
        CaCommand::Rotate { hasten: true, confirm: false, admin, output, .. } => {
            output.print(&current(admin).await?, hastening)?;
        }
        CaCommand::Rotate { root, cancel, hasten, admin, output, .. } => {
            let request = RotateCaRequest { root, cancel, hasten };
            let answer = admin.client().await?.rotate_ca(request).await.map_err(Refused)?.into_inner();
            output.print(&answer, |answer| rotated(request, answer))?;
        }
        CaCommand::Rekey { admin, output } => {
            let answer = admin
                .patient_client()
                .await?
                .rekey_ca(RekeyCaRequest {})
                .await
                .map_err(Refused)?
                .into_inner();
            output.print(&answer, |answer| format!("rekeyed {} private keys\n", answer.keys))?;
        }
    }
    Ok(Verdict::Ok)
}

/// Writes the files one after the other. What loads them may do so once this has ended.
async fn gateway(dir: &Path, admin: &AdminArgs) -> Result<(), Box<dyn Error + Send + Sync>> {
    let files = ["tls.key", "tls.crt", "ca.crt"].map(|name| dir.join(name));
    for file in &files {
        check_target(file)?;
    }
    let request = GetGatewayCertificateRequest {};
    let answer = admin.client().await?.get_gateway_certificate(request).await.map_err(Refused)?.into_inner();
    for (file, text) in files.iter().zip([&answer.key_pem, &answer.chain_pem, &answer.roots_pem]) {
        write_secret(file, text.as_bytes())?;
    }
    output::write(&format!("certificate {} written to {}\n", answer.serial, dir.display()))?;
    Ok(())
}

async fn current(admin: AdminArgs) -> Result<GetCaStatusResponse, Box<dyn Error + Send + Sync>> {
    Ok(admin.client().await?.get_ca_status(GetCaStatusRequest {}).await.map_err(Refused)?.into_inner())
}

/// What hastening the new root means.
fn hastening(answer: &GetCaStatusResponse) -> String {
    let now = Env::system().now();
    let Some(rotation) = answer.root_rotation.as_ref().filter(|rotation| !rotation.signing) else {
        return "there is no pending root CA: there is nothing to hasten\n".to_owned();
    };
    format!(
        "{}the root {} would sign as soon as all replicas have acknowledged it, and not wait for the service \
         certificates from before it, of which the last ends {}. A sidecar that holds one of them and has not been \
         connected to a replica since refuses every peer with a certificate under the new root, until it \
         connects again. So does a gateway that has not read the new root. The sidecars that are connected are not \
         affected.\n\
         nothing was changed; --confirm does it\n",
        progress(answer, rotation, now),
        rotation.root,
        ends(now, rotation.earliest)
    )
}

fn rotated(request: RotateCaRequest, answer: &RotateCaResponse) -> String {
    let serial = &answer.serial;
    if request.cancel {
        format!("the root {serial} is given up, and trusted no more\n")
    } else if request.hasten {
        format!("the root {serial} signs once the proxies of every replica have acknowledged it\n")
    } else if request.root {
        format!("the root {serial} is trusted from now on; `smc ca status` shows when it signs\n")
    } else {
        format!("the issuing CA {serial} signs from now on\n")
    }
}

fn status(answer: &GetCaStatusResponse) -> String {
    let now = Env::system().now();
    let mut table = Table::new(["CERTIFICATE", "IDENTITY", "SERIAL", "ENDS"]);
    for ca in &answer.authorities {
        let kind = format!("{}{}", if ca.root { "root" } else { "issuing" }, state(ca));
        table.row([kind, answer.trust_domain.clone(), ca.serial.clone(), ends(now, ca.not_after)]);
    }
    for issued in &answer.service_certificates {
        let ends = ends(now, issued.not_after);
        table.row(["service".to_owned(), issued.service_account.clone(), issued.serial.clone(), ends]);
    }
    for issued in &answer.gateway_certificates {
        let ends = ends(now, issued.not_after);
        table.row(["gateway".to_owned(), issued.secret.clone(), issued.serial.clone(), ends]);
    }
    let mut signed =
        Table::new(["SIGNED BY", "ROOT", "SERVICE", "SUPERSEDED", "PROXY", "CONTROLLER", "LAST ENDS"]);
    for ca in answer.authorities.iter().filter(|ca| !ca.root) {
        let counts = [
            ca.service_certificates,
            ca.superseded_certificates,
            ca.proxy_certificates,
            ca.controller_certificates,
        ];
        let [services, superseded, proxies, controllers] = counts.map(|count| count.to_string());
        let last = if ca.last_end == 0 { "-".to_owned() } else { ends(now, ca.last_end) };
        signed.row([ca.serial.clone(), ca.issuer.clone(), services, superseded, proxies, controllers, last]);
    }
    let mut sealed = Table::new(["KEY-ENCRYPTION KEY", "SEALED KEYS"]);
    for key in &answer.key_encryption_keys {
        let other = if key.seals { "" } else { " (not this replica's)" };
        sealed.row([format!("{}{other}", key.id), key.keys.to_string()]);
    }
    let declared = answer.authorities.iter().filter(|ca| !ca.declared_by.is_empty());
    let declared = declared.fold(String::new(), |all, ca| {
        all + "root " + &ca.serial + ": MeshRootCertificate " + &ca.declared_by + "\n"
    });
    let rotation =
        answer.root_rotation.iter().map(|rotation| progress(answer, rotation, now)).collect::<String>();
    let warnings = answer.warnings.iter().fold(String::new(), |all, one| all + "warning: " + one + "\n");
    format!(
        "{}\n{}\n{}\n{declared}{rotation}{warnings}proxy certificates: {} claimed, {} unclaimed, {} released\n",
        table.render(),
        signed.render(),
        sealed.render(),
        answer.proxy_certificates_claimed,
        answer.proxy_certificates_unclaimed,
        answer.proxy_certificates_released
    )
}

/// The suffix of a CA's kind, for a CA other than the one that signs.
fn state(ca: &CertificateAuthority) -> &'static str {
    match ca.state() {
        AuthorityState::Next => " (next)",
        AuthorityState::ControllerIssuer => " (for controllers)",
        AuthorityState::Former => " (former)",
        AuthorityState::Signing | AuthorityState::Unspecified => "",
    }
}

/// The progress of a root rotation.
fn progress(answer: &GetCaStatusResponse, rotation: &RootRotation, now: Timestamp) -> String {
    let root = &rotation.root;
    let object = answer.authorities.iter().find(|ca| ca.root && ca.serial == *root);
    let object = object.map_or("", |ca| &ca.declared_by);
    if rotation.signing {
        return format!(
            "rotation: the root {root} signs; the former one is trusted while a certificate under it is valid\n"
        );
    }
    let mut waits = Vec::new();
    if !rotation.unacknowledged.is_empty() {
        let replicas: Vec<_> = rotation.unacknowledged.iter().map(ToString::to_string).collect();
        waits.push(format!("for the proxies of replicas {}", replicas.join(", ")));
    }
    if Timestamp(rotation.earliest) >= now {
        let ends = ends(now, rotation.earliest);
        waits.push(format!("for the last earlier certificate of a service or a gateway to expire {ends}"));
    }
    if waits.is_empty() {
        waits.push(match object {
            "" => "for the leader".to_owned(),
            object => format!("for MeshRootCertificate {object} to be active"),
        });
    }
    let waits = waits.join(" and ");
    format!("rotation: the root {root} is trusted, and waits {waits}\n{}", unacknowledged_proxies(rotation))
}

/// The workloads that a root rotation waits for, of those connected to the replica that was called.
fn unacknowledged_proxies(rotation: &RootRotation) -> String {
    let (named, others) =
        rotation.unacknowledged_proxies.split_at(rotation.unacknowledged_proxies.len().min(MAX_NAMES));
    if named.is_empty() {
        return String::new();
    }
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    format!("rotation: connected here, and not trusting it yet: {}{more}\n", named.join(", "))
}

fn ends(now: Timestamp, at: i64) -> String {
    let at = Timestamp(at);
    if at <= now {
        format!("ended {} ago", duration::print(now.since(at)))
    } else {
        format!("in {}", duration::print(at.since(now)))
    }
}
