//! What Envoys are told is what they were told before: text and versions of the snapshots of some meshes, compared
//! with those in `golden/`.
//!
//! A version is a hash of bytes, so whatever moves a byte (a changed translation, a new version of the generated
//! types) makes every proxy take everything anew after an upgrade. That may be right, but is not to happen unnoticed.
//! `SMC_GOLDEN=write cargo test --release --workspace --test golden` writes what is there now; read the difference before
//! it is committed.
//! The same meshes are judged by a real Envoy in `tests/envoy_validate.rs`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fixture;
#[path = "golden/text.rs"]
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use envoy_types::pb::google::protobuf::Any;
use fixture::meshes::{self, Mesh};
use fixture::view;
use prost::Message;
use smc_mesh::lint;
use smc_mesh::resource::{ResourceType, Version};

/// Who is served what, and then each of those resources once.
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
                contents.insert(key, resource.any.clone());
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

/// The first line that differs, as it was and as it is, with what stands before it.
fn first_difference(before: &str, now: &str) -> String {
    let same = before.lines().zip(now.lines()).take_while(|(before, now)| before == now).count();
    let context: Vec<&str> = now.lines().take(same).collect();
    let context = context[same.saturating_sub(5)..].join("\n");
    let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
    format!("line {}:\n{context}\n- {}\n+ {}", same + 1, line(before), line(now))
}

#[test]
fn what_envoys_are_told_and_its_versions_are_what_they_were() {
    #[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
    let write = std::env::var_os("SMC_GOLDEN").is_some_and(|value| value == "write");
    // `cargo test` starts here in the directory of the package. Compiled in, it could be that of another clone.
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
        "every proxy would take this anew; if that is meant, SMC_GOLDEN=write, and read what it wrote:\n{}",
        changed.join("\n\n")
    );
}
