//! Golden snapshots: the text and the versions of the configuration of some meshes, compared with `golden/`.
//!
//! A version is a hash of bytes, so a change that moves a byte (of the translation, or of the
//! generated types) makes every proxy receive all resources again after an upgrade. That can be
//! right, but must not happen unnoticed. `SMC_GOLDEN=write cargo test --release --workspace --test
//! translation golden` writes the present state; read the difference before you commit it. A real
//! Envoy validates the same meshes in `tests/envoy_validate.rs`.

mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use smc_mesh::lint;
use smc_testkit::mesh::meshes::{self, Mesh};
use smc_testkit::mesh::view;
use smc_xds::resource::{ResourceType, Version};

/// The versions that each proxy is served, then the text of each resource once.
fn snapshots(mesh: &Mesh) -> String {
    let compiler = mesh.compile("ROOTS", "CHAIN", "KEY");
    let mut out = String::new();
    let mut contents = BTreeMap::new();
    for pod in &mesh.pods {
        let view = view(&compiler, pod).unwrap_or_else(|| panic!("{pod} has a snapshot"));
        assert_eq!(lint::lint(&view), []);
        writeln!(out, "proxy {pod}").unwrap();
        for kind in ResourceType::ALL {
            let members = view.all(kind).map(|resource| (&*resource.name, resource.version));
            writeln!(out, "  {} {}", kind.short(), Version::of_set(members)).unwrap();
            for resource in view.all(kind) {
                writeln!(out, "    {} {}", resource.version, resource.name).unwrap();
                let key = (kind, resource.name.to_string(), resource.version);
                contents.insert(key, resource.any());
            }
        }
    }
    let mut seen = text::Seen::new();
    for ((kind, name, version), any) in contents {
        let any = Any::decode(any).unwrap();
        assert_eq!(Version::of(&any.value), version);
        write!(
            out,
            "\n{} {version} {name}\n{}",
            kind.short(),
            text::of(&any.type_url, &any.value, &mut seen)
        )
        .unwrap();
    }
    out
}

/// The first line that differs, before and now, with the lines above it.
fn first_difference(before: &str, now: &str) -> String {
    let same = before.lines().zip(now.lines()).take_while(|(before, now)| before == now).count();
    let context: Vec<&str> = now.lines().take(same).collect();
    let context = context[same.saturating_sub(5)..].join("\n");
    let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
    format!("line {}:\n{context}\n- {}\n+ {}", same + 1, line(before), line(now))
}

#[test]
fn the_configuration_and_its_versions_are_unchanged() {
    #[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
    let write = std::env::var_os("SMC_GOLDEN").is_some_and(|value| value == "write");
    // `cargo test` runs in the directory of the package. A compiled-in path could be that of another clone.
    let directory = Path::new("tests/golden");
    let mut changed = Vec::new();
    for mesh in meshes::all() {
        let path = directory.join(format!("{}.txt", mesh.name));
        let now = snapshots(&mesh);
        if write {
            std::fs::write(&path, &now).unwrap();
        }
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        if before != now {
            changed.push(format!("{}, {}", mesh.name, first_difference(&before, &now)));
        }
    }
    assert!(
        changed.is_empty(),
        "every proxy would receive this again; if that is intended, run with SMC_GOLDEN=write and read the difference:\n{}",
        changed.join("\n\n")
    );
}
