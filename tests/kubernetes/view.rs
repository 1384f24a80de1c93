//! Owns what the node's processes see of the machine: their own `/run`, cgroups, logs, network and
//! kernel settings. Everything here happens in namespaces of the cluster's own.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::ClusterError;
use crate::cgroups::{Hierarchies, MOUNT};
use crate::config::{NODE, NODE_ADDRESS, PATH};

/// Directories that the node has empty, its own.
const OWN: [&str; 2] = ["/run", "/var/log"];
/// The directory in which the kubelet and the network plugins make directories of fixed names. The node
/// reads the machine's, and writes elsewhere.
const VAR_LIB: &str = "/var/lib";
/// Where it writes instead, in its own `/run`.
const VAR_LIB_WRITES: [&str; 2] = ["/run/var-lib", "/run/var-lib-work"];

/// Settings of the whole machine that the kubelet would change: path below `/proc/sys`, and the value
/// that it wants. The kubelet finds what it wants, and the machine keeps its own.
const MACHINE_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Settings of the cluster's own network: path below `/proc/sys/net`, value. A kernel may lack one.
const NETWORK_SETTINGS: [(&str, &str); 4] = [
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    // With these, kube-proxy's rules also apply to traffic between pods on the bridge.
    ("bridge/bridge-nf-call-iptables", "1"),
    ("bridge/bridge-nf-call-ip6tables", "1"),
];

/// Sets everything up. `hierarchies` are those that this process had on the host.
pub(crate) fn set_up(hierarchies: &Hierarchies) -> Result<(), ClusterError> {
    // In a namespace of its own, this file names that namespace's host.
    let hostname = Path::new("/proc/sys/kernel/hostname");
    fs::write(hostname, NODE).map_err(ClusterError::file("write", hostname))?;
    // containerd and the kubelet hand mounts to each other; the host gets none of them.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)
        .map_err(|errno| refused("share mounts", errno))?;
    for directory in OWN {
        tmpfs(directory)?;
    }
    let [upper, work] = VAR_LIB_WRITES;
    for directory in ["/run/lock", "/run/netns", "/run/containerd", upper, work] {
        fs::create_dir_all(directory).map_err(ClusterError::file("create", Path::new(directory)))?;
    }
    let layers = format!("lowerdir={VAR_LIB},upperdir={upper},workdir={work}");
    mount(Some("overlay"), VAR_LIB, Some("overlay"), MsFlags::empty(), Some(layers.as_str()))
        .map_err(|errno| refused("lay a directory over /var/lib", errno))?;
    mount_cgroups(hierarchies)?;
    for (setting, value) in MACHINE_SETTINGS {
        let (shown, real) = (format!("/run/{}", setting.replace('/', "-")), format!("/proc/sys/{setting}"));
        fs::write(&shown, format!("{value}\n")).map_err(ClusterError::file("write", Path::new(&shown)))?;
        mount(Some(shown.as_str()), real.as_str(), None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|errno| refused(&format!("cover {real}"), errno))?;
    }
    // A veth pair, since not every kernel has the dummy device. Virtual IPs need a default route.
    ip(&format!(
        "link set lo up\nlink add node0 type veth peer name node1\nlink set node1 up\n\
         address add {NODE_ADDRESS}/24 dev node0\nlink set node0 up\nroute add default dev node0\n"
    ))?;
    for (setting, value) in NETWORK_SETTINGS {
        let path = Path::new("/proc/sys/net").join(setting);
        match fs::write(&path, value) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ClusterError::file("write", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Mounts the hierarchies again, so that they begin at this cluster's cgroup.
fn mount_cgroups(hierarchies: &Hierarchies) -> Result<(), ClusterError> {
    umount2(MOUNT, MntFlags::MNT_DETACH).map_err(|errno| refused("unmount the cgroups", errno))?;
    match hierarchies {
        Hierarchies::V1(hierarchies) => {
            tmpfs(MOUNT)?;
            for (controllers, _) in hierarchies {
                let path = Path::new(MOUNT).join(controllers);
                fs::create_dir(&path).map_err(ClusterError::file("create", &path))?;
                mount(Some("cgroup"), &path, Some("cgroup"), MsFlags::empty(), Some(controllers.as_str()))
                    .map_err(|errno| refused(&format!("mount the cgroup {controllers}"), errno))?;
            }
        }
        Hierarchies::V2 => {
            mount(Some("cgroup2"), MOUNT, Some("cgroup2"), MsFlags::empty(), None::<&str>)
                .map_err(|errno| refused("mount the cgroups", errno))?;
            // A cgroup that gives controllers to others has no processes of its own.
            let own = Path::new(MOUNT).join("init");
            fs::create_dir(&own).map_err(ClusterError::file("create", &own))?;
            let file = own.join("cgroup.procs");
            fs::write(&file, "0").map_err(ClusterError::file("write", &file))?;
        }
    }
    Ok(())
}

fn tmpfs(path: &str) -> Result<(), ClusterError> {
    mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755"))
        .map_err(|errno| refused(&format!("mount {path}"), errno))
}

/// Runs `ip -batch`. Only before the first process reaps orphans, of which this child would be one.
fn ip(batch: &str) -> Result<(), ClusterError> {
    let failed = ClusterError::command::<String>;
    let spawned = Command::new("ip")
        .args(["-batch", "-"])
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| failed("ip")(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(batch.as_bytes()).map_err(|error| failed("ip")(error.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|error| failed("ip")(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed("ip -batch")(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn refused(action: &str, errno: Errno) -> ClusterError {
    ClusterError::Command { command: action.to_owned(), problem: errno.to_string() }
}
