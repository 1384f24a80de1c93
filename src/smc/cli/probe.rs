//! `smc probe`: asks a controller what a kubelet asks it.

use std::time::Duration;

use clap::Args;
use smc_types::causes::causes;
use smc_types::host_port::HostPort;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::outcome::{Outcome, Verdict};
use super::{duration, output};

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(3);

/// The pause between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `smc probe`.
#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// The probe: startup, liveness or readiness
    #[arg(value_parser = ["startup", "liveness", "readiness"])]
    probe: String,
    /// The controller's port for probes
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15131")]
    address: HostPort,
    /// How long to ask again until the answer is yes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
}

/// The answer was no, or there was none.
#[derive(Debug, Error)]
enum ProbeError {
    #[error("{0} is no address to connect to")]
    Address(HostPort, #[source] tonic::transport::Error),
    #[error("{address} does not answer: {cause}")]
    Silent { address: HostPort, cause: String },
    #[error("the {probe} probe failed at {address}")]
    No { address: HostPort, probe: String },
}

pub(super) async fn run(args: ProbeArgs) -> Outcome {
    let deadline = Instant::now() + args.wait;
    loop {
        match ask(&args).await {
            Ok(()) => break,
            Err(_) if Instant::now() < deadline => sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
    output::write(&format!("{}: yes\n", args.probe))?;
    Ok(Verdict::Ok)
}

async fn ask(args: &ProbeArgs) -> Result<(), ProbeError> {
    let ProbeArgs { probe, address, .. } = args;
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|error| ProbeError::Address(address.clone(), error))?;
    let silent = |cause: String| ProbeError::Silent { address: address.clone(), cause };
    let asked = timeout(ANSWER, async {
        let channel = endpoint.connect().await.map_err(|error| silent(causes(&error)))?;
        let request = HealthCheckRequest { service: probe.clone() };
        let answer = HealthClient::new(channel).check(request).await;
        answer.map_err(|status| silent(status.message().to_owned()))
    });
    let answer = asked.await.map_err(|_| silent(format!("no answer within {} s", ANSWER.as_secs())))??;
    if answer.into_inner().status() == ServingStatus::Serving {
        return Ok(());
    }
    Err(ProbeError::No { address: address.clone(), probe: probe.clone() })
}
