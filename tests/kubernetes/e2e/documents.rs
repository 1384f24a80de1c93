//! The commands of the documents, run as a person types them: taken from the fenced blocks, in
//! order, with the images, paths and names that the documents have.
//!
//! Each page has a file here. It owns which sections are run, and in which order; a block that is
//! left out has its reason there, and one that was forgotten fails the test. What runs the pages of
//! the lab is in `tests/lab/`; `tests/tidy/` has the list of all.

mod cluster;
mod installation;
mod machines;
mod migration;
mod operation;
mod page;
mod reader;

use smc_test_kubernetes::{Cluster, ClusterOptions, ENVOY_IMAGE, Image, Programs, SMC_IMAGE};

use crate::shared;

/// A cluster whose node has the images by the names that the documents use.
async fn start(programs: Programs) -> Cluster {
    let images = shared::images().into_iter().map(|image| {
        let name = match image.name.as_str() {
            SMC_IMAGE => "registry.example/smc:0.1.0",
            ENVOY_IMAGE => "docker.io/envoyproxy/envoy:v1.40.0",
            other => other,
        };
        Image { name: name.to_owned(), ..image }
    });
    let options = ClusterOptions::new(programs, images.collect());
    Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}
