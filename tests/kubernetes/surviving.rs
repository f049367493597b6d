//! The group with sentinels: its pods start, die, are stopped, lose their volumes and come back, and locks survive.

use super::group::Group;
use crate::docker::CLI_SINCE;
use crate::support::{eventually, find_cli};
use std::time::{Duration, Instant};

const SERVERS: [&str; 3] = ["leasehold-0", "leasehold-1", "leasehold-2"];
const SENTINELS: [&str; 3] =
    ["leasehold-sentinel-0", "leasehold-sentinel-1", "leasehold-sentinel-2"];

/// All pods, started at once, and ready.
fn started() -> Option<Group> {
    find_cli(CLI_SINCE)?;
    let mut group = Group::with_sentinels();
    for pod in SERVERS.into_iter().chain(SENTINELS) {
        group.start(pod);
    }
    for pod in SERVERS.into_iter().chain(SENTINELS) {
        group.wait_until_ready(pod);
    }
    // A sentinel that has not heard of replicas and of the others cannot choose.
    for pod in SENTINELS {
        eventually("the sentinel knows all", || {
            let told = group.tell(pod, "SENTINEL MASTER locks");
            let wanted = ["num-slaves\n2\n", "num-other-sentinels\n2\n"];
            if wanted.iter().all(|part| told.contains(part)) { Ok(()) } else { Err(told) }
        });
    }
    Some(group)
}

/// Alice's lock, which both replicas have heard of; its fence.
fn grant(group: &Group, primary: &str) -> String {
    let fence = eventually("the lock is granted", || {
        let told = group.tell(primary, "LOCK.ACQUIRE printer alice 600000");
        if told.parse::<u64>().is_ok() { Ok(told) } else { Err(told) }
    });
    eventually("replicas have heard", || {
        let heard = group.tell(primary, "WAIT 1 100");
        if heard.parse::<u64>().is_ok_and(|count| count > 0) { Ok(()) } else { Err(heard) }
    });
    fence
}

/// That it is still hers, and nobody else's.
#[track_caller]
fn assert_held(group: &Group, primary: &str, fence: &str) {
    assert_eq!(group.tell(primary, "LOCK.CHECK printer alice"), fence);
    eventually("nobody else is granted it", || {
        let told = group.tell(primary, "LOCK.ACQUIRE printer bob 600000");
        // Until a replica follows, nothing is granted at all.
        if told.starts_with("NOREPLICAS") { Err(told) } else { Ok(assert_eq!(told, "")) }
    });
}

/// It follows the primary, and never was one itself since it was started.
#[track_caller]
fn assert_came_back_as_a_replica(group: &mut Group, pod: &str, log: usize) {
    group.wait_until_ready(pod);
    assert!(group.tell(pod, "ROLE").starts_with("slave\n"));
    let log = group.log(pod).split_off(log);
    let primary = group.primary().unwrap();
    assert!(log.contains(&format!("the primary is {}", group.address(&primary))), "{log}");
    assert!(group.kept(pod, "server.conf").contains("\nreplicaof "), "{log}");
}

#[test]
fn the_first_server_becomes_the_primary_and_every_probe_passes() {
    let Some(group) = started() else { return };
    assert_eq!(group.primary().as_deref(), Ok("leasehold-0"));
    for pod in SERVERS.into_iter().chain(SENTINELS) {
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(group.probe(pod, probe), Ok(()), "{pod}");
        }
    }
    // The password counts.
    let told = group.tell("leasehold-1", "--user default --pass wrong --no-auth-warning PING");
    assert!(told.contains("WRONGPASS"), "{told}");
    grant(&group, "leasehold-0");
}

#[test]
fn a_primary_that_is_killed_comes_back_as_a_replica_and_its_lock_survives() {
    let Some(mut group) = started() else { return };
    let fence = grant(&group, "leasehold-0");
    group.kill("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    assert_held(&group, &next, &fence);
    for _ in 0..2 {
        let log = group.log("leasehold-0").len();
        group.start("leasehold-0");
        assert_came_back_as_a_replica(&mut group, "leasehold-0", log);
        group.kill("leasehold-0");
    }
    assert_eq!(group.primary(), Ok(next.clone()));
    assert_held(&group, &next, &fence);
}

#[test]
fn a_primary_that_is_stopped_hands_over_first() {
    let Some(mut group) = started() else { return };
    let fence = grant(&group, "leasehold-0");
    let log = group.log("leasehold-0").len();
    let begun = Instant::now();
    let told = group.stop("leasehold-0");
    let next = group.primary().unwrap();
    assert_ne!(next, "leasehold-0");
    assert!(told.ends_with(&format!("the primary is {}", group.address(&next))), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert_held(&group, &next, &fence);
    group.start("leasehold-0");
    assert_came_back_as_a_replica(&mut group, "leasehold-0", log);
    // A replica has nothing to hand over.
    assert_eq!(group.stop("leasehold-0"), "");
    assert_eq!(group.primary(), Ok(next));
}

#[test]
fn a_primary_that_cannot_hand_over_serves_on_until_it_is_stopped() {
    let Some(mut group) = started() else { return };
    for pod in SENTINELS {
        group.kill(pod);
    }
    let fence = grant(&group, "leasehold-0");
    let told = group.stop("leasehold-0");
    assert!(told.ends_with("no replica could take over"), "{told}");
    for pod in SENTINELS {
        group.start(pod);
    }
    let next = group.wait_for_another_primary_than("leasehold-0");
    assert_held(&group, &next, &fence);
}

#[test]
fn a_primary_that_has_lost_its_data_waits_until_a_replica_is_promoted() {
    let Some(mut group) = started() else { return };
    let fence = grant(&group, "leasehold-0");
    let log = group.log("leasehold-0").len();
    group.kill("leasehold-0");
    group.lose("leasehold-0");
    group.start("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    assert_held(&group, &next, &fence);
    assert_came_back_as_a_replica(&mut group, "leasehold-0", log);
    let log = group.log("leasehold-0").split_off(log);
    assert!(log.contains("has lost its data"), "{log}");
    assert_held(&group, &next, &fence);
}

#[test]
fn a_server_starts_only_when_sentinels_say_as_what() {
    let Some(mut group) = started() else { return };
    let fence = grant(&group, "leasehold-0");
    group.kill("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    for pod in SENTINELS {
        group.kill(pod);
    }
    let log = group.log("leasehold-0").len();
    group.start("leasehold-0");
    eventually("it waits", || {
        let log = group.log("leasehold-0").split_off(log);
        if log.contains("waiting until 2 sentinels name the same primary") {
            Ok(())
        } else {
            Err(log)
        }
    });
    // One alone may be mistaken.
    group.start("leasehold-sentinel-0");
    group.wait_until_ready("leasehold-sentinel-0");
    group.look("leasehold-0");
    assert!(group.probe("leasehold-0", "startupProbe").is_err());
    group.start("leasehold-sentinel-1");
    assert_came_back_as_a_replica_of(&mut group, "leasehold-0", &next);
    assert_held(&group, &next, &fence);
}

#[track_caller]
fn assert_came_back_as_a_replica_of(group: &mut Group, pod: &str, primary: &str) {
    group.wait_until_ready(pod);
    let role = group.tell(pod, "ROLE");
    assert!(role.starts_with(&format!("slave\n{}\n", group.address(primary))), "{role}");
}

#[test]
fn sentinels_that_have_lost_their_files_learn_who_the_primary_is() {
    let Some(mut group) = started() else { return };
    group.kill("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    group.start("leasehold-0");
    group.wait_until_ready("leasehold-0");
    // From the others.
    group.kill("leasehold-sentinel-2");
    group.lose("leasehold-sentinel-2");
    group.start("leasehold-sentinel-2");
    group.wait_until_ready("leasehold-sentinel-2");
    assert_eq!(group.primary(), Ok(next.clone()));
    // From the servers.
    for pod in SENTINELS {
        group.kill(pod);
        group.lose(pod);
    }
    for pod in SENTINELS {
        group.start(pod);
    }
    for pod in SENTINELS {
        group.wait_until_ready(pod);
        let named = group.kept(pod, "sentinel.conf");
        let line = format!("sentinel monitor locks {} ", group.address(&next));
        assert!(named.contains(&line), "{named}");
    }
    assert_eq!(group.primary(), Ok(next));
}
