//! Owns the configuration files of the node: containerd, the bridge, kubelet, kube-proxy, CoreDNS.
//! Pure.

use std::path::Path;

use serde_json::json;

use crate::config::{DNS_SERVICE, NODE, NODE_ADDRESS, POD_RANGE};
use crate::images::PAUSE;
use crate::pki::Keys;

/// The socket of containerd, in the cluster's own `/run`.
pub(crate) const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// Port of CoreDNS at which it says that it is ready.
pub(crate) const DNS_READY_PORT: u16 = 8181;

pub(crate) fn containerd(state: &Path) -> String {
    let state = state.display();
    // Without CAP_SYS_RESOURCE, which containers that run tests often lack, runc cannot lower the
    // score of the out-of-memory killer.
    format!(
        r#"version = 2
root = "{state}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{CONTAINERD}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{state}/cni"
"#
    )
}

pub(crate) fn cni(range: &str) -> String {
    let plugins = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": "/run/cni-ipam",
                    "ranges": [[{ "subnet": range }]], "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    format!("{plugins:#}\n")
}

pub(crate) fn kubelet(state: &Path, keys: &Keys) -> String {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "x509": { "clientCAFile": keys.ca() },
            "webhook": { "enabled": true },
            "anonymous": { "enabled": false },
        },
        "authorization": { "mode": "Webhook" },
        "address": NODE_ADDRESS,
        "tlsCertFile": keys.certificate("kubelet"),
        "tlsPrivateKeyFile": keys.key("kubelet"),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": ["pods"],
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": state.join("resolv.conf"),
        "podLogsDir": state.join("pods"),
        // Tests read the log of a pod from its first line to its last.
        "containerLogMaxSize": "200Mi",
        "registerNode": true,
        "maxPods": 110,
        // A machine with a full disk would evict tests, and collect images that no registry has.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "registryPullQPS": 0,
        "serializeImagePulls": false,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "shutdownGracePeriod": "0s",
    });
    format!("{config:#}\n")
}

pub(crate) fn proxy(kubeconfig: &Path) -> String {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig, "qps": 200, "burst": 400 },
        "mode": "iptables",
        "hostnameOverride": NODE,
        "clusterCIDR": POD_RANGE,
        "iptables": { "minSyncPeriod": "100ms", "syncPeriod": "30s" },
        // These limits are of the whole machine.
        "conntrack": {
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
        },
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "127.0.0.1:10256",
    });
    format!("{config:#}\n")
}

pub(crate) fn corefile(kubeconfig: &Path) -> String {
    let kubeconfig = kubeconfig.display();
    format!(
        "cluster.local:53 in-addr.arpa:53 {{
    ready 127.0.0.1:{DNS_READY_PORT}
    errors
    kubernetes {{
        kubeconfig {kubeconfig} smc
        pods insecure
        ttl 5
    }}
}}
"
    )
}
