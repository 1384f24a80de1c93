//! Owns a way to a server that counts connections, and that can become a black hole: connections stay open
//! and carry nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The relay. Dropping it closes its connections.
pub struct Relay {
    /// Where it listens; for [`Self::start`], on a free port of the loopback interface.
    pub address: SocketAddr,
    accepted: Arc<AtomicU64>,
    silent: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// A relay to this address.
    pub async fn start(target: &str) -> io::Result<Self> {
        Self::over(TcpListener::bind("127.0.0.1:0").await?, target)
    }

    /// A relay from this listener, which may be in another network, to this address.
    pub fn over(listener: TcpListener, target: &str) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (accepted, silent) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target.to_owned(), Arc::clone(&accepted), silent.subscribe()));
        Ok(Self { address, accepted, silent, _tasks: tasks })
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// From now on nothing passes.
    pub fn fall_silent(&self) {
        self.silent.send_replace(true);
    }
}

async fn accept(
    listener: TcpListener,
    target: String,
    accepted: Arc<AtomicU64>,
    silent: watch::Receiver<bool>,
) {
    let mut relayed = JoinSet::new();
    loop {
        tokio::select! {
            incoming = listener.accept() => {
                let Ok((incoming, _)) = incoming else { continue };
                accepted.fetch_add(1, Ordering::Relaxed);
                relayed.spawn(relay(incoming, target.clone(), silent.clone()));
            }
            Some(_) = relayed.join_next() => {}
        }
    }
}

async fn relay(mut incoming: TcpStream, target: String, mut silent: watch::Receiver<bool>) {
    let passing = async {
        // A target that is not there closes the connection.
        if let Ok(mut outgoing) = TcpStream::connect(target).await {
            let _ = incoming.set_nodelay(true).and(outgoing.set_nodelay(true));
            let _ = copy_bidirectional(&mut incoming, &mut outgoing).await;
        }
    };
    let silence = async {
        // Fails only if the relay is gone, and with it this task.
        let _ = silent.wait_for(|silent| *silent).await;
    };
    tokio::select! {
        biased;
        // The connection stays open, and nothing reads from it.
        () = silence => std::future::pending().await,
        () = passing => {}
    }
}
