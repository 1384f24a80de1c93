//! The kinds of object that SMC reads.
//!
//! Owns the description of each kind, one row: what an API server calls it, which of its objects the mesh
//! reads, and what SMC does with them. What is served, watched, granted, judged and written follows from it.

use std::fmt;

/// What SMC knows of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindSpec {
    /// Its name, as the API spells it.
    pub name: &'static str,
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// The versions that are read, the best first: the one in which its definition stores objects.
    pub versions: &'static [&'static str],
    /// The versions, as a problem names them.
    pub advertised: &'static str,
    /// Its name in paths of the API.
    pub plural: &'static str,
    /// Which objects the mesh reads.
    pub extent: Extent,
    /// Whether its definition is installed with SMC, which then writes the status of its objects.
    pub custom: bool,
    /// What its objects mean to the mesh.
    pub enforcement: Enforcement,
    /// Its letter in versions of resources. Proxies keep it for as long as they run, and other versions of
    /// SMC read it: a letter never changes its kind, and that of a kind that is given up is not given to
    /// another. `A` to `Z`.
    pub letter: u8,
}

/// Which objects of a kind the mesh reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those of the cluster as a whole.
    Cluster,
    /// Those in namespaces of the mesh.
    Mesh,
    /// Those in namespaces of the mesh, and in the control plane's own, where they mean the whole mesh.
    MeshAndOwn,
    /// Those in the control plane's own namespace.
    Own,
}

impl Extent {
    /// Whether objects in a namespace are read, which is the control plane's `own` one or not, and `of_mesh`
    /// or not.
    pub fn reads(self, own: bool, of_mesh: bool) -> bool {
        match self {
            Self::Cluster => true,
            Self::Mesh => of_mesh,
            Self::MeshAndOwn => own || of_mesh,
            Self::Own => own,
        }
    }

    /// Whether objects in a namespace, which is the control plane's `own` one or not, come and go as it
    /// enters the mesh and leaves it.
    pub fn moves(self, own: bool) -> bool {
        match self {
            Self::Mesh => true,
            Self::MeshAndOwn => !own,
            Self::Cluster | Self::Own => false,
        }
    }

    /// Whether objects are read as their namespaces enter the mesh.
    pub fn follows_namespaces(self) -> bool {
        matches!(self, Self::Mesh | Self::MeshAndOwn)
    }

    /// Whether objects in the control plane's own namespace are read, also while it is not of the mesh.
    pub fn has_own(self) -> bool {
        matches!(self, Self::Own | Self::MeshAndOwn)
    }
}

/// What the objects of a kind mean to the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// They decide what sidecars do.
    Enforced,
    /// Other objects name them, and nothing follows from it.
    Named,
}

impl KindSpec {
    /// The version in which its objects have a status that SMC writes: that in which its definition stores
    /// them. `None` for a kind of Kubernetes itself.
    pub fn stored_version(&self) -> Option<&'static str> {
        self.versions.first().copied().filter(|_| self.custom)
    }

    /// The versions that are read as `apiVersion` spells them, the best first.
    pub fn api_versions(&self) -> impl Iterator<Item = String> + use<> {
        let group = self.group;
        self.versions.iter().map(move |version| match group {
            "" => (*version).to_owned(),
            group => format!("{group}/{version}"),
        })
    }
}

/// A kind of Kubernetes' core group.
const CORE: KindSpec = KindSpec {
    name: "",
    group: "",
    versions: &["v1"],
    advertised: "v1",
    plural: "",
    extent: Extent::Mesh,
    custom: false,
    enforcement: Enforcement::Enforced,
    letter: 0,
};

/// A kind whose definition is installed with SMC.
const CUSTOM: KindSpec = KindSpec { versions: &[], advertised: "", custom: true, ..CORE };

/// A kind of SMI's specs.
const SPECS: KindSpec = KindSpec {
    group: "specs.smi-spec.io",
    versions: &["v1alpha4"],
    advertised: "specs.smi-spec.io/v1alpha4",
    ..CUSTOM
};

/// A kind of OSM's policy group.
const POLICY: KindSpec = KindSpec {
    group: "policy.openservicemesh.io",
    versions: &["v1alpha1"],
    advertised: "policy.openservicemesh.io/v1alpha1",
    ..CUSTOM
};

/// Declares [`Kind`] with its rows, so that no kind is without one.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $spec:expr,)*) => {
        /// The kinds of object that SMC reads. Prints as the API spells it, such as `HTTPRouteGroup`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// What SMC knows of the kind.
            pub const fn spec(self) -> &'static KindSpec {
                match self {
                    $(Self::$kind => const { &$spec },)*
                }
            }
        }
    };
}

kinds! {
    /// A namespace of Kubernetes.
    Namespace = KindSpec {
        name: "Namespace", plural: "namespaces", extent: Extent::Cluster, letter: b'N', ..CORE
    },
    /// A Service of Kubernetes.
    Service = KindSpec { name: "Service", plural: "services", letter: b'S', ..CORE },
    /// A service account.
    ServiceAccount = KindSpec { name: "ServiceAccount", plural: "serviceaccounts", letter: b'A', ..CORE },
    /// A pod.
    Pod = KindSpec { name: "Pod", plural: "pods", letter: b'P', ..CORE },
    /// Endpoints of a Service.
    EndpointSlice = KindSpec {
        name: "EndpointSlice", group: "discovery.k8s.io", advertised: "discovery.k8s.io/v1",
        plural: "endpointslices", letter: b'E', ..CORE
    },
    /// A machine without a pod.
    MeshWorkload = KindSpec {
        name: "MeshWorkload", group: "mesh.smc.dev", versions: &["v1alpha1"],
        advertised: "mesh.smc.dev/v1alpha1", plural: "meshworkloads", letter: b'W', ..CUSTOM
    },
    /// SMI's grant of access.
    TrafficTarget = KindSpec {
        name: "TrafficTarget", group: "access.smi-spec.io", versions: &["v1alpha3"],
        advertised: "access.smi-spec.io/v1alpha3", plural: "traffictargets", letter: b'T', ..CUSTOM
    },
    /// SMI's groups of HTTP requests. v1alpha3 and v1alpha4 have one shape.
    HttpRouteGroup = KindSpec {
        name: "HTTPRouteGroup", versions: &["v1alpha4", "v1alpha3"], plural: "httproutegroups",
        letter: b'H', ..SPECS
    },
    /// SMI's ports over TCP. v1alpha3 has no ports, and is not read.
    TcpRoute = KindSpec { name: "TCPRoute", plural: "tcproutes", letter: b'C', ..SPECS },
    /// SMI's ports over UDP. There is none before v1alpha4.
    UdpRoute = KindSpec {
        name: "UDPRoute", plural: "udproutes", enforcement: Enforcement::Named, letter: b'U', ..SPECS
    },
    /// SMI's weights of backends.
    TrafficSplit = KindSpec {
        name: "TrafficSplit", group: "split.smi-spec.io",
        versions: &["v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"],
        advertised: "split.smi-spec.io/v1alpha1 to v1alpha4", plural: "trafficsplits", letter: b'D', ..CUSTOM
    },
    /// OSM's configuration of the mesh. OSM 1.2 serves both versions.
    MeshConfig = KindSpec {
        name: "MeshConfig", group: "config.openservicemesh.io", versions: &["v1alpha2", "v1alpha1"],
        advertised: "config.openservicemesh.io/v1alpha2", plural: "meshconfigs", extent: Extent::Own,
        letter: b'M', ..CUSTOM
    },
    /// OSM's backends of an ingress.
    IngressBackend = KindSpec { name: "IngressBackend", plural: "ingressbackends", letter: b'I', ..POLICY },
    /// OSM's hosts outside of the mesh.
    Egress = KindSpec { name: "Egress", plural: "egresses", letter: b'G', ..POLICY },
    /// OSM's retries.
    Retry = KindSpec { name: "Retry", plural: "retries", letter: b'R', ..POLICY },
    /// OSM's limits of connections and requests.
    UpstreamTrafficSetting = KindSpec {
        name: "UpstreamTrafficSetting", plural: "upstreamtrafficsettings", letter: b'Z', ..POLICY
    },
    /// OSM's access logs.
    Telemetry = KindSpec {
        name: "Telemetry", plural: "telemetries", extent: Extent::MeshAndOwn, letter: b'Y', ..POLICY
    },
    /// OSM's servers outside of the mesh, which other objects name.
    ExtensionService = KindSpec {
        name: "ExtensionService", group: "config.openservicemesh.io", versions: &["v1alpha2"],
        advertised: "config.openservicemesh.io/v1alpha2", plural: "extensionservices",
        extent: Extent::MeshAndOwn, letter: b'X', ..CUSTOM
    },
    /// OSM's roots of the mesh.
    MeshRootCertificate = KindSpec {
        name: "MeshRootCertificate", group: "config.openservicemesh.io", versions: &["v1alpha2"],
        advertised: "config.openservicemesh.io/v1alpha2", plural: "meshrootcertificates",
        extent: Extent::Own, letter: b'K', ..CUSTOM
    },
}

impl Kind {
    /// The name of the kind, as the API spells it.
    pub const fn as_str(self) -> &'static str {
        self.spec().name
    }

    /// Whether objects of the kind decide what sidecars do.
    pub fn is_enforced(self) -> bool {
        matches!(self.spec().enforcement, Enforcement::Enforced)
    }

    /// The kind that the API spells so.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
