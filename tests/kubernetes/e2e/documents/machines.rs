//! The parts of the page on operation that are about machines. The machines are directories here,
//! each with a loopback address.

use std::future::Future;

use futures_util::future::join_all;

use super::page::Page;
use super::reader::Reader;

const THREE: &str = "Three replicas";
const MORE: &str = "More replicas, fewer replicas";
const LAST_RESORT: &str = "When a majority is lost";
const BACKUPS: &str = "Backups";
const OFF_FOR_YEARS: &str = "A group that was off for years";

/// A reader at a machine that has no Kubernetes. This table says what the page's paths and
/// addresses are here.
pub(super) fn machine(page: &Page, number: u8) -> Reader<'_> {
    let mut reader = Reader::of(page);
    let directory = reader.directory().to_owned();
    std::fs::create_dir(directory.join("mesh")).unwrap();
    std::fs::create_dir(directory.join("key")).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    reader = reader.with("SMC_ADMIN_SOCKET", path("data/admin.sock"));
    for (host, other) in ["smc-0:", "smc-1:", "smc-2:", "smc-3:"].into_iter().zip(0..) {
        reader = reader.naming(host, format!("{}:", address(other)));
    }
    reader
        .naming("/var/lib/smc", path("data"))
        .naming("/etc/smc", path("key"))
        .naming("0.0.0.0", address(number))
        .naming("10.0.0.1", address(number))
        .naming("127.0.0.1:", format!("{}:", address(number)))
}

/// The loopback address of a machine: no other run of this test has it.
fn address(machine: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.{}", 1 + high % 250, 1 + machine)
}

/// Does for each machine what `action` says, at the same time.
async fn each<'m, 'p: 'm, Done: Future<Output = ()>>(
    machines: &'m mut [Reader<'p>],
    action: impl FnMut(&'m mut Reader<'p>) -> Done,
) {
    join_all(machines.iter_mut().map(action)).await;
}

/// Runs the whole life of a group.
pub(super) async fn operate(page: &Page) {
    let mut alone = machine(page, 9);
    alone.follow("A replica alone").await;
    alone.stop().await;

    let mut group = [0, 1, 2].map(|number| {
        // "In the same way", as the page says.
        machine(page, number).naming("--replica-id 0 ", format!("--replica-id {number} "))
    });
    group[0].follow_blocks(THREE, 0..1).await;
    group[1..].iter().for_each(|other| copy_key(&group[0], other));
    each(&mut group, |replica| replica.follow_blocks(THREE, 1..2)).await;
    members(&group[0], 3).await;
    // The page shows the output of the founder, which leads unless it was slow.
    group[0].until("smc cluster transfer 0; command smc cluster status | grep -q '^0 (asked).*leader'").await;
    group[0].follow_blocks(THREE, 2..3).await;

    let mut fourth = machine(page, 3);
    copy_key(&group[0], &fourth);
    fourth.follow_blocks(MORE, 0..1).await;
    members(&group[0], 4).await;
    group[0].types("smc cluster add 3 smc-3:15129").await;
    group[0].follow_blocks(MORE, 1..3).await;
    members(&group[0], 3).await;

    group[2].stop().await;
    std::fs::remove_dir_all(group[2].directory().join("data")).unwrap();
    group[2].start_again().await;
    members(&group[0], 3).await;

    group[0].follow_blocks(BACKUPS, 0..1).await;
    each(&mut group, Reader::stop).await;
    let (chosen, others) = group.split_first_mut().unwrap();
    chosen.follow_blocks(LAST_RESORT, 1..3).await;
    chosen.start_again().await;
    each(others, async |other: &mut Reader<'_>| {
        other.follow_blocks(LAST_RESORT, 3..4).await;
        other.start_again().await;
    })
    .await;
    members(chosen, 3).await;

    each(&mut group, Reader::stop).await;
    each(&mut group, |replica| replica.follow_blocks(BACKUPS, 3..4)).await;
    group[0].follow_blocks(BACKUPS, 4..5).await;
    group[0].start_again().await;
    each(&mut group[1..], Reader::start_again).await;
    members(&group[0], 3).await;

    each(&mut group, Reader::stop).await;
    each(&mut group, |replica| replica.follow_blocks(OFF_FOR_YEARS, 0..1)).await;
    each(&mut group, Reader::start_again).await;
    members(&group[0], 3).await;
}

/// Copies the key-encryption key to another machine.
fn copy_key(from: &Reader<'_>, to: &Reader<'_>) {
    std::fs::copy(from.directory().join("key/kek"), to.directory().join("key/kek")).unwrap();
}

/// Waits until the group has this many members, all of which vote.
async fn members(replica: &Reader<'_>, number: usize) {
    replica.until(&format!("[ $(command smc cluster status | grep -cwE 'leader|voter') = {number} ]")).await;
}
