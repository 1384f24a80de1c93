//! Generates the messages and the gRPC client and server of SMC's own `.proto` files, without `protoc`.

use std::error::Error;

/// Enum fields with their enums: JSON has the name of the value instead of its number.
const ENUM_FIELDS: [(&str, &str); 7] = [
    ("smc.admin.v1.ProxyCertificate.state", "CertificateState"),
    ("smc.admin.v1.Stream.variant", "Variant"),
    ("smc.admin.v1.BootstrapRequest.variant", "Variant"),
    ("smc.admin.v1.Problem.severity", "Severity"),
    ("smc.admin.v1.Shard.phase", "ReplicaPhase"),
    ("smc.admin.v1.CertificateAuthority.state", "AuthorityState"),
    ("smc.admin.v1.EgressWay.protocol", "EgressProtocol"),
];

/// Messages with a private key: their `Debug` is written by hand and omits it.
const SECRET_MESSAGES: [&str; 2] =
    ["smc.admin.v1.BootstrapResponse", "smc.admin.v1.GetGatewayCertificateResponse"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=smc");
    let files = protox::compile(["smc/admin/v1/admin.proto"], ["."])?;
    let mut builder = tonic_prost_build::configure()
        .type_attribute(".", "#[derive(serde::Serialize)]")
        .skip_debug(SECRET_MESSAGES);
    for (field, holds) in ENUM_FIELDS {
        let serialize = format!("#[serde(serialize_with = \"crate::enum_name::<{holds}, _>\")]");
        builder = builder.field_attribute(field, serialize);
    }
    builder.compile_fds(files)?;
    let files = protox::compile(["smc/raft/v1/raft.proto"], ["."])?;
    // Entries and chunks are shared between the log, the network and the state machine without a copy.
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(files)?;
    Ok(())
}
