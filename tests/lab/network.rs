//! Owns the lab's network as input of `ip -batch`: one bridge, one veth pair per Pod. Pure.
//!
//! Pods have host routes through the node only, as with a routing CNI plugin, so every packet
//! between Pods passes the node's tables. There kube-proxy's rules translate virtual IPs, and a
//! test can drop packets.

use std::net::IpAddr;

use super::addresses::{NODE_V4, NODE_V6};

/// `spec.nodeName` of every Pod.
pub(super) const NODE_NAME: &str = "lab";

/// Fixed: by default a bridge takes the address of one of its ports and changes it with them, while
/// Pods keep the old one in their ARP caches.
const NODE_HARDWARE_ADDRESS: &str = "02:00:0a:f4:00:01";

/// Kernel settings of the node's namespace: path below `/proc/sys/net`, value.
pub(super) const NODE_SETTINGS: [(&str, &str); 6] = [
    ("ipv4/ip_forward", "1"),
    // Traffic between Pods enters and leaves by the same bridge; a redirect would make Pods bypass
    // the node.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/smc0/send_redirects", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // With br_netfilter loaded, the bridge would apply the NAT rules itself, and drop what a Pod
    // sends to itself through a virtual IP. With this setting, rules apply once, on every machine
    // in the same way.
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
];

/// Kernel settings of a Pod's namespace, written before it has an interface.
pub(super) const POD_SETTINGS: [(&str, &str); 5] = [
    // As with container runtimes: an ordinary user may listen on port 80.
    ("ipv4/ip_unprivileged_port_start", "0"),
    // IPv6 has no setting to stop sending redirects, so Pods ignore them.
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
];

/// Sets up the node's bridge.
pub(super) fn node(dual_stack: bool) -> String {
    let v6 = if dual_stack { format!("address add {NODE_V6}/64 dev smc0 nodad\n") } else { String::new() };
    format!(
        "link set lo up\nlink add smc0 address {NODE_HARDWARE_ADDRESS} type bridge\naddress add {NODE_V4}/16 dev smc0\n{v6}link set smc0 up\n"
    )
}

/// Creates the node's side of a Pod's veth pair: `number` names the interface, `pid` the Pod's
/// namespace. The hardware address follows from the Pod's IP address, so that ARP entries stay
/// right when a Pod with this address is replaced.
pub(super) fn attach(number: u64, pid: u32, addresses: &[IpAddr]) -> String {
    let [high, low] = match addresses.first() {
        Some(IpAddr::V4(address)) => [address.octets()[2], address.octets()[3]],
        Some(IpAddr::V6(address)) => [address.octets()[14], address.octets()[15]],
        None => [0, 0],
    };
    format!(
        "link add veth{number} type veth peer name eth0 address 02:00:0a:f4:{high:02x}:{low:02x} netns {pid}\n\
         link set veth{number} master smc0 up\n"
    )
}

/// Undoes [`attach`].
pub(super) fn detach(number: u64) -> String {
    format!("link delete veth{number}\n")
}

/// Configures the Pod's side of the veth pair.
pub(super) fn pod(addresses: &[IpAddr]) -> String {
    let address = |address: &IpAddr| match address {
        IpAddr::V4(address) => format!(
            "address add {address}/32 dev eth0\n\
             route add {NODE_V4}/32 dev eth0 scope link src {address}\n\
             route add default via {NODE_V4} dev eth0 src {address}\n"
        ),
        IpAddr::V6(address) => format!(
            "address add {address}/128 dev eth0 nodad\n\
             route add {NODE_V6}/128 dev eth0\n\
             route add default via {NODE_V6} dev eth0\n"
        ),
    };
    let addresses: String = addresses.iter().map(address).collect();
    format!("link set lo up\nlink set eth0 up\n{addresses}")
}
