//! `smc crds`: the CustomResourceDefinitions.

use std::path::{Path, PathBuf};

use clap::Args;
use smc_kubernetes::crds::{Definition, definitions};
use smc_types::ids::MeshNamespace;
use thiserror::Error;

use super::outcome::{Outcome, Verdict};
use super::output::write;

/// The flags of `smc crds`.
#[derive(Debug, Args)]
pub(super) struct CrdsArgs {
    /// Write one file for each definition into this directory, instead of printing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The namespace of the control plane that converts TrafficSplits
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    mesh_namespace: MeshNamespace,
}

/// A definition cannot be written to a file.
#[derive(Debug, Error)]
#[error("cannot write {}", path.display())]
struct NotWritten {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Prints or writes the definitions.
pub(super) fn run(args: CrdsArgs) -> Outcome {
    let definitions = definitions(&args.mesh_namespace)?;
    let mut documents = Vec::new();
    for definition in &definitions {
        documents.push((definition, definition.to_yaml()?));
    }
    if let Some(dir) = args.dir {
        for (definition, yaml) in &documents {
            write_file(&dir, definition, yaml)?;
        }
    } else {
        let documents: Vec<_> = documents.into_iter().map(|(_, yaml)| yaml).collect();
        write(&documents.join("---\n"))?;
    }
    Ok(Verdict::Ok)
}

fn write_file(dir: &Path, definition: &Definition, yaml: &str) -> Result<(), NotWritten> {
    let path = dir.join(definition.file());
    std::fs::write(&path, yaml).map_err(|source| NotWritten { path, source })
}
