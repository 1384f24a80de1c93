//! Owns clients that run in the background of a test: a series of requests, and a TCP connection
//! that stays open.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::handle::LabHandle;
use super::reports::{FetchResult, TcpResult};
use super::{LabError, config};

/// Buffer for unread output; a result has about a kilobyte.
const PIPE_BYTES: usize = 64 << 10;

/// Sequential requests of one client. Dropping it ends the client.
#[derive(Debug)]
pub struct Calls {
    results: watch::Receiver<Vec<FetchResult>>,
    _client: AbortOnDropHandle<()>,
}

/// One TCP connection of one client. Dropping it closes the connection.
#[derive(Debug)]
pub struct TcpConnection {
    address: String,
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
    _client: AbortOnDropHandle<()>,
}

impl LabHandle {
    /// Runs `smc-lab fetch ARGS` in a Pod, in the background. `args` should ask for more requests
    /// than the test needs.
    pub fn call(&self, pod: &str, args: &[&str]) -> Calls {
        let (client, _input, output) = self.client(pod, &[&["fetch", "--lines"], args].concat());
        let (sender, results) = watch::channel(Vec::new());
        let collect = async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(result)) = next(&mut lines).await {
                sender.send_modify(|results| results.push(result));
            }
        };
        let both = async { tokio::join!(client, collect).0 };
        Calls { results, _client: AbortOnDropHandle::new(tokio::spawn(both)) }
    }

    /// Opens a TCP connection to `address`, HOST:PORT, in a Pod.
    pub fn connect_tcp(&self, pod: &str, address: &str) -> TcpConnection {
        let (client, input, output) = self.client(pod, &["tcp", address, "--stdin"]);
        let output = BufReader::new(output).lines();
        let client = AbortOnDropHandle::new(tokio::spawn(client));
        TcpConnection { address: address.to_owned(), input, output, _client: client }
    }

    /// Runs `smc-lab ARGS` in a Pod. Returns the future that drives it, its standard input and its
    /// standard output.
    fn client(
        &self,
        pod: &str,
        args: &[&str],
    ) -> (impl Future<Output = ()> + Send + 'static, DuplexStream, DuplexStream) {
        let (input, stdin) = tokio::io::duplex(PIPE_BYTES);
        let (stdout, output) = tokio::io::duplex(PIPE_BYTES);
        let (handle, pod) = (self.clone(), pod.to_owned());
        let argv: Vec<String> =
            [config::LAB].iter().chain(args).map(|&argument| argument.to_owned()).collect();
        let run = async move {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            // The client's last result or the end of its output shows how it ended.
            let _ = handle.run(Some(&pod), None, &argv, &[], stdin, stdout, tokio::io::sink()).await;
        };
        (run, input, output)
    }
}

impl Calls {
    /// Waits until `condition` holds for the results so far.
    pub async fn until(
        &mut self,
        what: &str,
        timeout: Duration,
        condition: impl Fn(&[FetchResult]) -> bool,
    ) -> Result<(), LabError> {
        let reached = self.results.wait_for(|results| condition(results));
        let reached = matches!(tokio::time::timeout(timeout, reached).await, Ok(Ok(_)));
        if reached {
            return Ok(());
        }
        let results = self.results.borrow();
        let state = format!("after {} calls; the last one: {:?}", results.len(), results.last());
        Err(LabError::Timeout { what: what.to_owned(), seconds: timeout.as_secs(), state })
    }

    /// Waits for `count` more results.
    pub async fn more(&mut self, count: usize, timeout: Duration) -> Result<(), LabError> {
        let wanted = self.results.borrow().len() + count;
        self.until(&format!("{count} more calls"), timeout, |results| results.len() >= wanted).await
    }

    /// Ends the requests and returns their results.
    pub fn stop(self) -> Vec<FetchResult> {
        self.results.borrow().clone()
    }
}

impl TcpConnection {
    /// Sends a line and waits for the reply. A failure of the connection is part of the result.
    pub async fn send_line(&mut self, line: &str) -> Result<TcpResult, LabError> {
        let failed =
            |problem: String| LabError::Command { command: format!("tcp {}", self.address), problem };
        // A client that has ended reads no more; its last result says why.
        let _ = self.input.write_all(format!("{line}\n").as_bytes()).await;
        let result = next(&mut self.output).await.map_err(|error| failed(error.to_string()))?;
        result.ok_or_else(|| failed("the client has ended".to_owned()))
    }
}

async fn next<T: DeserializeOwned>(lines: &mut Lines<BufReader<DuplexStream>>) -> std::io::Result<Option<T>> {
    let Some(line) = lines.next_line().await? else { return Ok(None) };
    serde_json::from_str(&line).map(Some).map_err(std::io::Error::other)
}
