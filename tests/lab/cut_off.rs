//! Owns the node's rules that cut a controller replica off: nothing that it sends leaves, and nothing is
//! delivered to its ports. No connection is refused or closed by that, as with a cable that is cut. Pure.

use std::net::SocketAddr;

use super::config::controller_gid;
use super::controllers::{raft, xds};

/// The commands that do this (`--insert`) or undo it (`--delete`).
pub(super) fn rules(action: &str, replica: u16) -> [String; 3] {
    let from = format!("OUTPUT --match owner --gid-owner {}", controller_gid(replica));
    let to = |address: SocketAddr| format!("INPUT --protocol tcp --dport {}", address.port());
    [from, to(xds(replica)), to(raft(replica))]
        .map(|rule| format!("iptables --wait 5 {action} {rule} --jump DROP"))
}
