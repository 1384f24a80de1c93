//! A way to a replica that can become a black hole: connections stay open and carry nothing.

use smc_benches::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The relay. Dropping it closes its connections.
pub(crate) struct Relay {
    /// Where it listens.
    pub(crate) address: String,
    silent: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// A relay to this address.
    pub(crate) async fn start(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let silent = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target.to_owned(), silent.subscribe()));
        Ok(Self { address, silent, _tasks: tasks })
    }

    /// From now on nothing passes.
    pub(crate) fn fall_silent(&self) {
        self.silent.send_replace(true);
    }
}

async fn accept(listener: TcpListener, target: String, silent: watch::Receiver<bool>) {
    let mut relayed = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((incoming, _)) = accepted else { continue };
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
