//! Owns the command lines of the components. Pure.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::{API_PORT, DNS_SERVICE, ETCD_PORTS, NODE, NODE_ADDRESS, NODE_POD_RANGE, SERVICE_RANGE};
use crate::pki::Keys;

/// What the command lines depend on.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The cluster's directory.
    pub(crate) state: PathBuf,
    pub(crate) keys: Keys,
    /// The address of the loopback interface at which the API server and etcd listen.
    pub(crate) host: Ipv4Addr,
    /// A node's addresses are advertised; without a node, the loopback interface is all there is.
    pub(crate) node: bool,
}

impl Layout {
    fn path(&self, name: &str) -> String {
        text(&self.state.join(name))
    }

    /// Where the API server listens.
    pub(crate) fn api_address(&self) -> SocketAddr {
        SocketAddr::from((self.host, API_PORT))
    }

    fn certificate(&self, name: &str) -> String {
        text(&self.keys.certificate(name))
    }

    fn key(&self, name: &str) -> String {
        text(&self.keys.key(name))
    }

    /// The kubeconfig of a component.
    pub(crate) fn kubeconfig(&self, component: &str) -> PathBuf {
        self.keys.directory().join(format!("{component}.kubeconfig"))
    }

    pub(crate) fn etcd(&self) -> Vec<String> {
        let (client, peer) = ETCD_PORTS;
        let host = self.host;
        let ca = text(&self.keys.ca());
        let (client, peer) = (format!("https://{host}:{client}"), format!("https://{host}:{peer}"));
        flags(&[
            ("name", "etcd".to_owned()),
            ("data-dir", self.path("etcd")),
            // The data dies with the cluster.
            ("unsafe-no-fsync", "true".to_owned()),
            ("log-level", "warn".to_owned()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer.clone()),
            ("initial-cluster", format!("etcd={peer}")),
            // Other users of the machine reach the port as well.
            ("client-cert-auth", "true".to_owned()),
            ("trusted-ca-file", ca.clone()),
            ("cert-file", self.certificate("etcd")),
            ("key-file", self.key("etcd")),
            ("peer-client-cert-auth", "true".to_owned()),
            ("peer-trusted-ca-file", ca),
            ("peer-cert-file", self.certificate("etcd")),
            ("peer-key-file", self.key("etcd")),
        ])
    }

    pub(crate) fn api_server(&self) -> Vec<String> {
        let ca = text(&self.keys.ca());
        let mut flags = flags(&[
            ("etcd-servers", format!("https://{}:{}", self.host, ETCD_PORTS.0)),
            ("etcd-cafile", ca.clone()),
            ("etcd-certfile", self.certificate("etcd-client")),
            ("etcd-keyfile", self.key("etcd-client")),
            ("secure-port", API_PORT.to_string()),
            ("tls-cert-file", self.certificate("apiserver")),
            ("tls-private-key-file", self.key("apiserver")),
            ("client-ca-file", ca.clone()),
            ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
            ("service-account-key-file", text(&self.keys.directory().join("service-accounts.pub"))),
            ("service-account-signing-key-file", self.key("service-accounts")),
            ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
            ("authorization-mode", "Node,RBAC".to_owned()),
            ("allow-privileged", "true".to_owned()),
            ("enable-admission-plugins", "NodeRestriction".to_owned()),
            // Services that webhooks name are resolved to endpoints here, so that they work without
            // kube-proxy.
            ("enable-aggregator-routing", "true".to_owned()),
            ("profiling", "false".to_owned()),
            ("requestheader-client-ca-file", ca),
            ("requestheader-allowed-names", "front-proxy".to_owned()),
            ("requestheader-username-headers", "X-Remote-User".to_owned()),
            ("requestheader-group-headers", "X-Remote-Group".to_owned()),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
            ("proxy-client-cert-file", self.certificate("front-proxy")),
            ("proxy-client-key-file", self.key("front-proxy")),
            ("max-requests-inflight", "2000".to_owned()),
            ("max-mutating-requests-inflight", "1000".to_owned()),
        ]);
        flags.extend(if self.node {
            self::flags(&[
                ("advertise-address", NODE_ADDRESS.to_owned()),
                ("kubelet-client-certificate", self.certificate("apiserver-kubelet")),
                ("kubelet-client-key", self.key("apiserver-kubelet")),
                ("kubelet-preferred-address-types", "InternalIP".to_owned()),
            ])
        } else {
            self::flags(&[
                ("bind-address", self.host.to_string()),
                ("advertise-address", self.host.to_string()),
                // The API refuses loopback addresses in endpoints.
                ("endpoint-reconciler-type", "none".to_owned()),
            ])
        });
        flags
    }

    pub(crate) fn controller_manager(&self) -> Vec<String> {
        let mut flags = self.client_flags("controller-manager");
        flags.extend(self::flags(&[
            ("root-ca-file", text(&self.keys.ca())),
            ("service-account-private-key-file", self.key("service-accounts")),
            ("use-service-account-credentials", "true".to_owned()),
            ("cluster-signing-cert-file", text(&self.keys.ca())),
            ("cluster-signing-key-file", self.key("ca")),
            ("concurrent-deployment-syncs", "10".to_owned()),
            ("controllers", "*".to_owned()),
        ]));
        flags
    }

    pub(crate) fn scheduler(&self) -> Vec<String> {
        self.client_flags("scheduler")
    }

    fn client_flags(&self, component: &str) -> Vec<String> {
        let kubeconfig = text(&self.kubeconfig(component));
        flags(&[
            ("kubeconfig", kubeconfig.clone()),
            ("authentication-kubeconfig", kubeconfig.clone()),
            ("authorization-kubeconfig", kubeconfig),
            ("leader-elect", "false".to_owned()),
            // Thousands of pods would take minutes with the defaults.
            ("kube-api-qps", "500".to_owned()),
            ("kube-api-burst", "1000".to_owned()),
            // No metrics, and so no port that two clusters could both want.
            ("secure-port", "0".to_owned()),
        ])
    }

    pub(crate) fn containerd(&self) -> Vec<String> {
        vec!["--config".to_owned(), self.path("containerd.toml")]
    }

    pub(crate) fn kubelet(&self) -> Vec<String> {
        flags(&[
            ("config", self.path("kubelet.yaml")),
            ("kubeconfig", text(&self.kubeconfig("kubelet"))),
            ("root-dir", self.path("kubelet")),
            ("node-ip", NODE_ADDRESS.to_owned()),
            ("hostname-override", NODE.to_owned()),
        ])
    }

    pub(crate) fn proxy(&self) -> Vec<String> {
        flags(&[("config", self.path("proxy.yaml"))])
    }

    pub(crate) fn coredns(&self) -> Vec<String> {
        vec!["-conf".to_owned(), self.path("Corefile")]
    }

    /// Files of the node, by name in the cluster's directory.
    pub(crate) fn node_files(&self) -> [(&'static str, String); 6] {
        use crate::node_files as files;
        [
            ("containerd.toml", files::containerd(&self.state)),
            ("cni/10-bridge.conflist", files::cni(NODE_POD_RANGE)),
            ("resolv.conf", format!("nameserver {DNS_SERVICE}\n")),
            ("kubelet.yaml", files::kubelet(&self.state, &self.keys)),
            ("proxy.yaml", files::proxy(&self.kubeconfig("proxy"))),
            ("Corefile", files::corefile(&self.kubeconfig("coredns"))),
        ]
    }
}

fn flags(flags: &[(&str, String)]) -> Vec<String> {
    flags.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
