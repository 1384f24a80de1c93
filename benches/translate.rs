//! The time of the compiler for a whole mesh, and for single changes.

#![allow(clippy::unwrap_used, reason = "a benchmark stops where its own mesh is not valid")]

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use smc_benches::mesh::Mesh;
use smc_mesh::translate::{Compiler, Input, Settings};
use smc_types::ids::TrustDomain;

fn compiled(mesh: &Mesh) -> Compiler {
    let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
    compiler.apply(mesh.inputs().unwrap());
    assert_eq!(compiler.served_state().proxies.len(), mesh.proxies);
    assert_eq!(compiler.served_state().snapshots.len(), mesh.services.min(mesh.proxies));
    compiler
}

fn whole(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("translate_all");
    group.sample_size(10);
    let mesh = Mesh::new(1000, 2000, 10);
    let inputs = mesh.inputs().unwrap();
    group.bench_function("1000_services_2000_proxies", |bencher| {
        bencher.iter_batched(
            || inputs.clone(),
            |inputs| {
                let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
                compiler.apply(inputs);
                compiler
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// The cost of an endpoint change must not grow with the services that it does not affect: the same change in
/// meshes of three sizes.
fn endpoint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("endpoint_change");
    for services in [100, 1000, 4000] {
        let mesh = Mesh::new(services, 2 * services, 10);
        let mut compiler = compiled(&mesh);
        let mut ready = true;
        group.bench_function(BenchmarkId::from_parameter(services), |bencher| {
            bencher.iter(|| {
                ready = !ready;
                assert!(compiler.apply([Input::Source(mesh.pod(7, ready).unwrap())]));
                black_box(compiler.served_state())
            });
        });
    }
    group.finish();
}

/// What is wrong in the mesh: in every object, as after a start, and where an endpoint changed.
fn problems(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("problems");
    for services in [100, 1000, 4000] {
        let mesh = Mesh::new(services, 2 * services, 10);
        let mut compiler = compiled(&mesh);
        if services > 100 {
            // Of so many objects every check is due, until the first are done.
            group.bench_function(BenchmarkId::new("of_every_object", services), |bencher| {
                bencher.iter(|| black_box(compiler.problems()));
            });
        }
        compiler.recheck();
        let mut ready = true;
        group.bench_function(BenchmarkId::new("after_a_change", services), |bencher| {
            bencher.iter(|| {
                ready = !ready;
                assert!(compiler.apply([Input::Source(mesh.pod(7, ready).unwrap())]));
                compiler.recheck();
                black_box(compiler.problems())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, whole, endpoint, problems);
criterion_main!(benches);
