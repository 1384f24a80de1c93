//! Owns the end that a process learns of: its standard input closes when the owner's process ends, however
//! that ends.

use std::io::Read;

use tokio::sync::oneshot;

/// Becomes ready, with an error, when standard input closes. Call it once in a process.
pub fn closed() -> oneshot::Receiver<()> {
    let (open, closed) = oneshot::channel();
    // A thread of its own: a blocking read of standard input cannot be cancelled, and the process exits
    // during it.
    std::thread::spawn(move || {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
        drop(open);
    });
    closed
}
