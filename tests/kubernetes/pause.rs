//! `smc-pause`: the process that holds a pod's namespaces open until the kubelet ends it.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, waitpid};

fn main() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    if signals.thread_block().is_err() {
        return;
    }
    loop {
        match signals.wait() {
            // In a pod whose containers share their processes, this one is the first, and reaps.
            Ok(Signal::SIGCHLD) => {
                while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
            }
            _ => return,
        }
    }
}
