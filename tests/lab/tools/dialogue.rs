//! Owns `smc-lab application` and `smc-lab dialogue`: an application and a client that say, byte for byte,
//! what a script says, and report what each of them received.
//!
//! The client tells the application its part over a second port, so that one pair of Pods holds any number
//! of dialogues one after the other, with sidecars between them or without. Bytes are texts of which each
//! character is a byte (Latin-1).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::LabError;

/// The longest wait for bytes that the script awaits, and for the end of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes that one connection receives. A test sends less.
const MAX_HEARD: usize = 16 << 20;

/// What one end does next on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Sends the text so many times.
    Send(String, u32),
    /// Reads until the text was received, after what was awaited before.
    Await(String),
    /// Reads for so many milliseconds, or until the other end closes. Steps after it follow in both cases.
    Listen(u64),
    /// Ends the direction to the other end, and reads on.
    Finish,
}

/// A dialogue: what the client does on each of its connections, which it makes one after the other, and
/// what the application does on each that it accepts. The application's last part is that of all further
/// connections. An end that is through closes the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogue {
    /// The client's connections.
    pub client: Vec<Vec<Step>>,
    /// The application's connections.
    pub application: Vec<Vec<Step>>,
}

/// How a connection ended for one of its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// This end was through with its part first.
    #[default]
    Through,
    /// The other end closed it.
    Closed,
    /// It was reset, or could not be made.
    Broken,
    /// What the script awaits did not come.
    Silent,
}

/// What one end received on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The bytes.
    pub text: String,
    /// How it ended.
    pub end: End,
}

/// What both ends received in one dialogue, in the order of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// What the client received.
    pub client: Vec<Heard>,
    /// What the application received.
    pub application: Vec<Heard>,
}

/// Flags of `smc-lab application`.
#[derive(Args, Clone, Debug)]
pub struct ApplicationArgs {
    /// Speak by script on this port.
    #[arg(long)]
    port: u16,
    /// Take scripts on this port.
    #[arg(long)]
    script_port: u16,
}

/// Flags of `smc-lab dialogue`.
#[derive(Args, Clone, Debug)]
pub struct DialogueArgs {
    /// HOST:PORT of the application.
    address: String,
    /// HOST:PORT where the application takes scripts.
    #[arg(long, value_name = "HOST:PORT")]
    script: String,
    /// Dialogues, each as JSON. The report is a list of what both ends received.
    #[arg(required = true)]
    dialogues: Vec<String>,
}

/// Serves until it is killed.
pub async fn application(args: &ApplicationArgs) -> Result<(), LabError> {
    let failed = |error: io::Error| LabError::Refused(format!("smc-lab application: {error}"));
    let speaking = listen(args.port).await.map_err(failed)?;
    let scripts = listen(args.script_port).await.map_err(failed)?;
    loop {
        let Ok((mut stream, _)) = scripts.accept().await else { continue };
        // The client reports what went wrong.
        let _: io::Result<()> = direct(&mut stream, &speaking).await;
    }
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

/// Takes one dialogue's part after the other: a line with the script is answered when connections follow
/// it, the line after it with what they received.
async fn direct(stream: &mut TcpStream, speaking: &TcpListener) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(script) = lines.next_line().await? {
        let parts: Vec<Vec<Step>> = parsed(&script)?;
        let over = CancellationToken::new();
        let mut connections = JoinSet::new();
        let mut heard: Vec<Arc<Mutex<Heard>>> = Vec::new();
        writer.write_all(b"ready\n").await?;
        loop {
            tokio::select! {
                accepted = speaking.accept() => {
                    let (stream, _) = accepted?;
                    let part = parts.get(heard.len()).or(parts.last()).cloned().unwrap_or_default();
                    let kept = Arc::default();
                    heard.push(Arc::clone(&kept));
                    connections.spawn(play(stream, part, kept, over.clone()));
                }
                line = lines.next_line() => {
                    line?;
                    break;
                }
            }
        }
        // Every connection is closed at both ends before the next dialogue: it meets no connection of this
        // one.
        over.cancel();
        while connections.join_next().await.is_some() {}
        let heard: Vec<Heard> = heard.iter().map(|kept| copy(kept)).collect();
        let report = serde_json::to_string(&heard).map_err(io::Error::other)?;
        writer.write_all(format!("{report}\n").as_bytes()).await?;
    }
    Ok(())
}

/// Runs the dialogues in their order.
pub async fn dialogue(args: &DialogueArgs) -> Result<Vec<Exchange>, LabError> {
    let failed = |error: io::Error| LabError::Refused(format!("smc-lab dialogue: {error}"));
    converse(args).await.map_err(failed)
}

async fn converse(args: &DialogueArgs) -> io::Result<Vec<Exchange>> {
    let (reader, mut director) = super::connect(&args.script).await?.into_split();
    let mut reports = BufReader::new(reader).lines();
    let mut exchanges = Vec::new();
    for text in &args.dialogues {
        let dialogue: Dialogue = parsed(text)?;
        let script = serde_json::to_string(&dialogue.application).map_err(io::Error::other)?;
        director.write_all(format!("{script}\n").as_bytes()).await?;
        reports.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut client = Vec::new();
        for part in dialogue.client {
            let kept = Arc::default();
            match super::connect(&args.address).await {
                Ok(stream) => play(stream, part, Arc::clone(&kept), CancellationToken::new()).await,
                Err(_) => lock(&kept).end = End::Broken,
            }
            client.push(copy(&kept));
        }
        director.write_all(b"over\n").await?;
        let report = reports.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        exchanges.push(Exchange { client, application: parsed(&report)? });
    }
    Ok(exchanges)
}

fn parsed<T: DeserializeOwned>(json: &str) -> io::Result<T> {
    serde_json::from_str(json).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn lock(kept: &Mutex<Heard>) -> std::sync::MutexGuard<'_, Heard> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn copy(kept: &Mutex<Heard>) -> Heard {
    lock(kept).clone()
}

/// Plays a part. When the dialogue is over, whatever the script still says is left out; the other end is then
/// waited for, and what it sends until it closes is received, too.
async fn play(mut stream: TcpStream, part: Vec<Step>, kept: Arc<Mutex<Heard>>, over: CancellationToken) {
    let mut read = Received { kept, passed: 0 };
    let ended = over.run_until_cancelled(async {
        let mut steps = part.iter().peekable();
        while let Some(step) = steps.next() {
            match read.step(&mut stream, step).await {
                Err(End::Closed) if matches!(step, Step::Listen(_)) && steps.peek().is_some() => {}
                done => done?,
            }
        }
        Ok(End::Through)
    });
    let end = if let Some(Ok(end) | Err(end)) = ended.await {
        end
    } else {
        // A peer that is gone needs no end of the direction.
        let _ = stream.shutdown().await;
        read.until(&mut stream, PATIENCE, |_| false).await.err().unwrap_or(End::Through)
    };
    lock(&read.kept).end = end;
}

/// What a connection has received, and up to where the script has awaited it.
struct Received {
    kept: Arc<Mutex<Heard>>,
    passed: usize,
}

impl Received {
    async fn step(&mut self, stream: &mut TcpStream, step: &Step) -> Result<(), End> {
        match step {
            Step::Send(text, times) => {
                let bytes = latin1(text).repeat(usize::try_from(*times).unwrap_or(0));
                stream.write_all(&bytes).await.map_err(|_| End::Broken)
            }
            Step::Await(text) => {
                let passed = self.passed;
                let found = move |heard: &str| {
                    heard.get(passed..)?.find(text.as_str()).map(|at| passed + at + text.len())
                };
                self.until(stream, PATIENCE, |heard| found(heard).is_some()).await?;
                self.passed = found(&lock(&self.kept).text).unwrap_or(passed);
                Ok(())
            }
            Step::Listen(millis) => {
                match self.until(stream, Duration::from_millis(*millis), |_| false).await {
                    Err(End::Silent) | Ok(()) => Ok(()),
                    Err(end) => Err(end),
                }
            }
            Step::Finish => stream.shutdown().await.map_err(|_| End::Broken),
        }
    }

    /// Reads until the text suffices.
    async fn until(
        &mut self,
        stream: &mut TcpStream,
        patience: Duration,
        enough: impl Fn(&str) -> bool,
    ) -> Result<(), End> {
        let reading = async {
            let mut buffer = vec![0; 64 << 10];
            while !enough(&lock(&self.kept).text) {
                let length = stream.read(&mut buffer).await.map_err(|_| End::Broken)?;
                let bytes = buffer.get(..length).filter(|bytes| !bytes.is_empty()).ok_or(End::Closed)?;
                let mut heard = lock(&self.kept);
                if heard.text.len() > MAX_HEARD {
                    return Err(End::Broken);
                }
                heard.text.extend(bytes.iter().copied().map(char::from));
            }
            Ok(())
        };
        tokio::time::timeout(patience, reading).await.unwrap_or(Err(End::Silent))
    }
}

/// The bytes of a text; a character that is none is a question mark.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).unwrap_or(b'?')).collect()
}
