//! A forwarder to a replica whose reading side can be stopped.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards one connection. Once shut, it reads nothing more from the replica, so that the TCP window closes.
pub(super) struct Valve {
    pub(super) address: SocketAddr,
    shut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Valve {
    pub(super) async fn to(replica: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shut, open) = watch::channel(false);
        let task = tokio::spawn(async move {
            let (near, _) = listener.accept().await.unwrap();
            let socket = TcpSocket::new_v4().unwrap();
            // The least that the kernel gives: the window is small, and closed soon.
            socket.set_recv_buffer_size(1).unwrap();
            let far = socket.connect(replica).await.unwrap();
            let (mut from_near, mut to_near) = near.into_split();
            let (mut from_far, mut to_far) = far.into_split();
            tokio::select! {
                () = forward(&mut from_near, &mut to_far, None) => {}
                () = forward(&mut from_far, &mut to_near, Some(open)) => {}
            }
        });
        Self { address, shut, task }
    }

    pub(super) fn shut(&self) {
        self.shut.send_replace(true);
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Until either side has closed, or for ever once it is shut.
async fn forward(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    shut: Option<watch::Receiver<bool>>,
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        if shut.as_ref().is_some_and(|shut| *shut.borrow()) {
            std::future::pending::<()>().await;
        }
        match from.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                if to.write_all(&bytes[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
