//! Tests `smc init` in network namespaces of its own: two hosts with a link between them, the rules of both
//! programs, and a listener in place of a proxy.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use smc_lab::{Privilege, beside};
use tempfile::TempDir;
use tokio::time::timeout;

/// How long a world may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Two hosts. `on HOST COMMAND...` runs a command on one, and `server HOST PORT` a listener that answers each
/// line with its port.
const WORLD: &str = r#"
mount -t tmpfs run /run && mkdir /run/netns
for host in client server; do ip netns add $host; ip -n $host link set lo up; done
ip link add eth0 netns client type veth peer name eth0 netns server
on() { ip netns exec "$@"; }
server() {
  on $1 smc-lab echo --tcp $2 >/dev/null 2>&1 &
  for _ in {1..100}; do [ "$(on $1 ss -Hltn "sport = :$2")" ] && return; sleep 0.1; done
  return 1
}
address() { ip -n $1 address add $2/24 dev eth0; ip -n $1 link set eth0 up; }
address client 10.9.0.1; address server 10.9.0.2
# Prints the port that answered, or why none did.
port() {
  on client timeout 10 bash -c "exec 3<>/dev/tcp/$1/$2 && echo x >&3 && read -ru 3 answer && echo \"\$answer\"" \
    2>&1 | sed -nE 's/.*"port":([0-9]+).*/\1/p; s/.*Connection (refused|reset).*/\1/p' | head -n 1
}
"#;

/// Runs a script in a world, and returns its output.
async fn run(directory: &Path, script: &str) -> String {
    let programs = |name| beside(name).unwrap().parent().unwrap().display().to_string();
    let path = format!("{}:{}:/usr/sbin:/usr/bin:/sbin:/bin", directory.display(), programs("smc"));
    let mut shell = Privilege::find().await.unwrap().unshare();
    shell
        .args(["--", "bash", "-euo", "pipefail", "-c", &format!("{WORLD}\n{script}")])
        .env("PATH", path)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = timeout(PATIENCE, shell.output()).await.unwrap().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
    assert!(ended.status.success(), "{script}\n{output}\n{}", String::from_utf8_lossy(&ended.stderr));
    output
}

/// Makes segments of an open connection stray, by another sequence number on their way out. The kernel sends
/// the right ones again. Of two numbers that are half of all apart, one is beyond the window; the other may
/// pass for what was repeated, which does no harm.
const STRAY: &str = r#"
on client bash -c '
  exec 3<>/dev/tcp/10.9.0.2/8080
  echo before >&3; read -ru 3 answer
  for number in 1 2147483649; do
    nft -f - <<< "table ip forger { chain out {
      type filter hook output priority 0; ip daddr 10.9.0.2 tcp flags & psh == psh tcp sequence set $number; }; }"
    echo after $number >&3; sleep 0.5
    nft delete table ip forger
    read -t 10 -ru 3 answer && [[ $answer = *"after $number"* ]] || { echo reset; exit; }
  done
  echo lives'
"#;

#[tokio::test]
async fn a_stray_segment_resets_no_connection_that_is_intercepted() {
    let directory = TempDir::new().unwrap();
    for backend in ["iptables", "nftables"] {
        let intercepted = format!(
            "on server smc init --backend {backend} 2>/dev/null; server server 15003; server server 8080\n{STRAY}"
        );
        assert_eq!(run(directory.path(), &intercepted).await, "lives", "{backend}");
        // What the mend is for: without it the application's port answers.
        let without = "on server iptables -t mangle -D PREROUTING -p tcp -m conntrack --ctstate INVALID \
                       -j SMC_PROXY_STRAY || on server nft delete chain ip smc_proxy stray";
        let without =
            intercepted.replace("; server server 15003", &format!("\n{without}\nserver server 15003"));
        assert_eq!(run(directory.path(), &without).await, "reset", "{backend}");
    }
}

#[tokio::test]
async fn resolvers_are_asked_directly_and_nothing_else_is() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("resolv.conf"), "nameserver 10.9.0.2\n").unwrap();
    for backend in ["iptables", "nftables"] {
        let script = format!(
            "ip -n server address add 10.9.0.3/24 dev eth0
             on client smc init --backend {backend} --resolv-conf {}/resolv.conf 2>/dev/null
             server client 15001; server server 53; server server 54
             for target in '10.9.0.2 53' '10.9.0.2 54' '10.9.0.3 53'; do port $target; done",
            directory.path().display()
        );
        assert_eq!(run(directory.path(), &script).await, "53\n15001\n15001", "{backend}");
    }
}

/// A kernel without the module that `program` needs: it says what iptables 1.8 says on such a node.
fn refuses(directory: &Path, program: &str) {
    use std::os::unix::fs::PermissionsExt;
    let says =
        "#!/bin/sh\necho 'Extension owner revision 0 not supported, missing kernel module?' >&2\nexit 1\n";
    let file = directory.join(program);
    std::fs::write(&file, says).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn where_iptables_does_not_work_nftables_does_it() {
    let serve = "server server 15003; server server 8080; server server 9090; port 10.9.0.2 8080; \
                 port 10.9.0.2 9090";
    let (whole, half) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    refuses(whole.path(), "iptables-restore");
    // It works for IPv4, and only then it shows that it does not for IPv6.
    refuses(half.path(), "ip6tables-restore");
    for directory in [&whole, &half] {
        let script = format!(
            "on server smc init --exclude-inbound-port 9090 2>/dev/null
             on server iptables-save | grep -c SMC_PROXY || true
             {serve}"
        );
        assert_eq!(run(directory.path(), &script).await, "0\n15003\n9090");
    }
    // It works again, and what was excluded is not: the former rules are gone.
    let again = format!(
        "on server smc init --exclude-inbound-port 9090 2>/dev/null
         rm {}/iptables-restore
         on server smc init 2>/dev/null
         {serve}
         on server smc init --remove 2>/dev/null
         port 10.9.0.2 8080; on server nft list tables | grep smc || true",
        whole.path().display()
    );
    assert_eq!(run(whole.path(), &again).await, "15003\n15003\n8080");
    // A person who names a program gets that one, or the reason.
    refuses(half.path(), "nft");
    for (backend, expected) in [
        ("iptables", "smc: `ip6tables-restore` failed with exit status: 1: Extension owner"),
        ("nftables", "smc: `nft` failed with exit status: 1: Extension owner"),
        ("auto", "smc: neither iptables nor nftables works here; iptables: `ip6tables-restore` failed"),
    ] {
        let said = run(half.path(), &format!("! on server smc init --backend {backend} 2>&1")).await;
        assert!(said.contains(expected), "{said}");
    }
}
