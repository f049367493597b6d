//! The group with sentinels: its pods start, die, are stopped, lose their volumes and come back, and locks survive.

use super::group::{Group, PASSWORD};
use redis::Value;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{Client, eventually, until};

pub(super) const SERVERS: [&str; 3] = ["leasehold-0", "leasehold-1", "leasehold-2"];
pub(super) const SENTINELS: [&str; 3] =
    ["leasehold-sentinel-0", "leasehold-sentinel-1", "leasehold-sentinel-2"];

/// All pods at once, until they are ready.
fn start_all(group: &mut Group) {
    SERVERS.into_iter().chain(SENTINELS).for_each(|pod| group.start(pod));
    SERVERS.into_iter().chain(SENTINELS).for_each(|pod| group.wait_until_ready(pod));
}

/// All pods, started, and knowing each other.
pub(super) fn started() -> Group {
    let mut group = Group::with_sentinels();
    start_all(&mut group);
    // A sentinel that has not heard of replicas and of the others cannot choose.
    for pod in SENTINELS {
        group.until(pod, "SENTINEL MASTER locks", |told| {
            told.contains("num-slaves\n2\n") && told.contains("num-other-sentinels\n2\n")
        });
    }
    group
}

/// Alice's lock, which both replicas have heard of; its fence.
pub(super) fn grant(group: &Group, primary: &str) -> String {
    let is_number = |told: &str| told.parse::<u64>().is_ok();
    let fence = group.until(primary, "LOCK.ACQUIRE printer alice 600000", is_number);
    group.until(primary, "WAIT 1 100", |heard| ["1", "2"].contains(&heard));
    fence
}

/// That it is still hers, and nobody else's.
#[track_caller]
pub(super) fn assert_held(group: &Group, primary: &str, fence: &str) {
    assert_eq!(group.tell(primary, "LOCK.CHECK printer alice"), fence);
    // Until a replica follows nothing is granted at all.
    let is_told = |told: &str| !told.starts_with("NOREPLICAS");
    assert_eq!(group.until(primary, "LOCK.ACQUIRE printer bob 600000", is_told), "");
}

/// It follows the primary, and never was one itself since it was started.
#[track_caller]
fn assert_came_back_as_a_replica(group: &mut Group, pod: &str, primary: &str, log: usize) {
    group.wait_until_ready(pod);
    let primary = group.address(primary);
    let role = group.tell(pod, "ROLE");
    assert!(role.starts_with(&format!("slave\n{primary}\n")), "{role}");
    let log = group.container(pod).log().split_off(log);
    assert!(log.contains(&format!("the primary is {primary}")), "{log}");
    assert!(group.container(pod).read("data/server.conf").contains("\nreplicaof "), "{log}");
}

#[test]
fn the_first_server_is_the_primary_and_killed_comes_back_as_a_replica_and_its_lock_survives() {
    let mut group = started();
    assert_eq!(group.primary().as_deref(), Ok("leasehold-0"));
    for pod in SERVERS.into_iter().chain(SENTINELS) {
        group.assert_probes_pass(pod);
    }
    let told = group.tell_by("leasehold-1", "wrong", "PING");
    assert!(told.contains("WRONGPASS"), "{told}");
    let fence = grant(&group, "leasehold-0");
    group.kill("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    assert_held(&group, &next, &fence);
    for _ in 0..2 {
        let log = group.container("leasehold-0").log().len();
        group.start("leasehold-0");
        assert_came_back_as_a_replica(&mut group, "leasehold-0", &next, log);
        group.kill("leasehold-0");
    }
    assert_eq!(group.primary(), Ok(next.clone()));
    assert_held(&group, &next, &fence);
}

/// One lock after the other, until the server does not answer any more; the fence of each.
fn keep_locking(endpoint: &str) -> JoinHandle<Vec<u64>> {
    let mut client = Client::over_tcp(endpoint).unwrap();
    thread::spawn(move || {
        assert_eq!(client.cmd(["AUTH", PASSWORD]), Value::Okay);
        let grants = (0..).map_while(|number| {
            let request = format!("LOCK.ACQUIRE lock:{number} worker 600000");
            match client.try_cmd(request) {
                Ok(Value::Int(fence)) => u64::try_from(fence).ok(),
                _ => None,
            }
        });
        grants.collect()
    })
}

#[test]
fn a_primary_that_is_stopped_hands_over_first_and_no_grant_is_lost() {
    let mut group = started();
    let printer = grant(&group, "leasehold-0");
    let log = group.container("leasehold-0").log().len();
    let locking = keep_locking(&group.endpoint("leasehold-0"));
    group.until("leasehold-0", "DBSIZE", |held| held.parse::<u64>().is_ok_and(|held| held > 100));
    let begun = Instant::now();
    let told = group.stop("leasehold-0");
    let next = group.primary().unwrap();
    assert_ne!(next, "leasehold-0");
    assert!(told.ends_with(&format!("the primary is {}", group.address(&next))), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    // Not because the primary was silent.
    let logs = SENTINELS.map(|pod| group.container(pod).log());
    let asked = logs.iter().filter(|log| log.contains("user requested FAILOVER of 'locks'"));
    assert_eq!(asked.count(), 1, "{logs:?}");

    let granted: Vec<_> = locking.join().unwrap().into_iter().enumerate().collect();
    // All in one go would be longer than a command line may be.
    for some in granted.chunks(500) {
        let keys: Vec<_> = some.iter().map(|(number, _)| format!("lock:{number}")).collect();
        let told = group.tell(&next, &format!("EXISTS {}", keys.join(" ")));
        assert_eq!(told, some.len().to_string(), "from {} of {}", keys[0], granted.len());
    }
    let (last, fence) = granted.last().unwrap();
    let told = group.tell(&next, &format!("LOCK.CHECK lock:{last} worker"));
    assert_eq!(told, fence.to_string());
    assert_held(&group, &next, &printer);
    group.start("leasehold-0");
    assert_came_back_as_a_replica(&mut group, "leasehold-0", &next, log);
    // A replica has nothing to hand over.
    assert_eq!(group.stop("leasehold-0"), "");
    assert_eq!(group.primary(), Ok(next));
}

#[test]
fn a_primary_that_cannot_hand_over_serves_on_until_it_is_stopped() {
    let mut group = started();
    SENTINELS.into_iter().for_each(|pod| group.kill(pod));
    let fence = grant(&group, "leasehold-0");
    let told = group.hand_over("leasehold-0");
    assert!(told.ends_with("no replica could take over"), "{told}");
    assert_eq!(group.tell("leasehold-0", "LOCK.EXTEND printer alice 600000"), "1");
    group.stop("leasehold-0");
    // Nobody to follow is no reason to be restarted.
    eventually("the replica is not ready", || match group.probe("leasehold-1", "readinessProbe") {
        Err(told) if told.starts_with("a replica that does not follow") => Ok(()),
        other => Err(other),
    });
    assert_eq!(group.probe("leasehold-1", "livenessProbe"), Ok(()));
    SENTINELS.into_iter().for_each(|pod| group.start(pod));
    let next = group.wait_for_another_primary_than("leasehold-0");
    assert_held(&group, &next, &fence);
}

#[test]
fn a_primary_that_has_lost_its_data_waits_until_a_replica_is_promoted() {
    let mut group = started();
    let fence = grant(&group, "leasehold-0");
    let log = group.container("leasehold-0").log().len();
    group.kill("leasehold-0");
    group.lose("leasehold-0");
    group.start("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    assert_held(&group, &next, &fence);
    assert_came_back_as_a_replica(&mut group, "leasehold-0", &next, log);
    let log = group.container("leasehold-0").log().split_off(log);
    assert!(log.contains("has lost its data"), "{log}");
    assert_held(&group, &next, &fence);
}

#[test]
fn a_server_starts_only_when_sentinels_say_as_what() {
    let mut group = started();
    let fence = grant(&group, "leasehold-0");
    group.kill("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    SENTINELS.into_iter().for_each(|pod| group.kill(pod));
    let log = group.container("leasehold-0").log().len();
    group.start("leasehold-0");
    let later = |group: &mut Group| group.container("leasehold-0").log().split_off(log);
    let waits = "waiting until 2 sentinels name the same primary";
    until("it waits", || later(&mut group), |log| log.contains(waits));
    // One alone may be mistaken.
    group.start("leasehold-sentinel-0");
    group.wait_until_ready("leasehold-sentinel-0");
    assert_eq!(group.container("leasehold-0").call("../etc/primary", &[]), (false, String::new()));
    group.container("leasehold-0").look();
    assert!(group.probe("leasehold-0", "startupProbe").is_err());
    // There is nothing to hand over, and nobody to wait for.
    let begun = Instant::now();
    group.hand_over("leasehold-0");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    group.start("leasehold-sentinel-1");
    assert_came_back_as_a_replica(&mut group, "leasehold-0", &next, log);
    assert_held(&group, &next, &fence);
}

#[test]
fn sentinels_that_have_lost_their_files_learn_who_the_primary_is() {
    let mut group = started();
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
    SENTINELS.into_iter().for_each(|pod| group.start(pod));
    for pod in SENTINELS {
        group.wait_until_ready(pod);
        let named = group.container(pod).read("data/sentinel.conf");
        let line = format!("sentinel monitor locks {} ", group.address(&next));
        assert!(named.contains(&line), "{named}");
    }
    assert_eq!(group.primary(), Ok(next));
}

/// It was promoted, and its file says so. So it waits for nobody.
#[test]
fn a_group_that_was_killed_as_a_whole_comes_back_with_its_lock() {
    let mut group = started();
    group.stop("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    group.start("leasehold-0");
    group.wait_until_ready("leasehold-0");
    let fence = grant(&group, &next);
    group.until(&next, "WAIT 2 100", |heard| heard == "2");
    let log = group.container(&next).log().len();
    SERVERS.into_iter().chain(SENTINELS).for_each(|pod| group.kill(pod));
    start_all(&mut group);
    let primary = eventually("the sentinels agree", || group.primary());
    assert_held(&group, &primary, &fence);
    let log = group.container(&next).log().split_off(log);
    assert!(!log.contains("waiting for a person"), "{log}");
}

/// They name the first server then, and it would have the others delete what it has not.
#[test]
fn a_server_that_followed_another_one_waits_if_all_sentinels_have_forgotten_that() {
    let mut group = started();
    group.stop("leasehold-0");
    let next = group.wait_for_another_primary_than("leasehold-0");
    let log = group.container("leasehold-0").log().len();
    group.start("leasehold-0");
    assert_came_back_as_a_replica(&mut group, "leasehold-0", &next, log);
    group.kill("leasehold-0");
    let fence = grant(&group, &next);
    for pod in SERVERS.into_iter().chain(SENTINELS).filter(|pod| *pod != "leasehold-0") {
        group.kill(pod);
    }
    let log = group.container("leasehold-0").log().len();
    for pod in SENTINELS {
        group.lose(pod);
        group.start(pod);
    }
    SERVERS.into_iter().for_each(|pod| group.start(pod));
    let waits = format!("it followed {} ", group.address(&next));
    eventually("it waits", || {
        group.container("leasehold-0").look();
        let log = group.container("leasehold-0").log().split_off(log);
        if log.contains(&waits) { Ok(()) } else { Err(log) }
    });
    // The words of docs/kubernetes.md, by a person who has read them.
    let last = SERVERS.into_iter().find(|pod| *pod != "leasehold-0" && *pod != next).unwrap();
    let address = group.endpoint(&next).replace(':', " ");
    for (pod, words) in [(&*next, "REPLICAOF NO ONE"), (last, &format!("REPLICAOF {address}"))] {
        group.until(pod, words, |told| told.starts_with("OK"));
    }
    group.wait_until_ready(last);
    for pod in SENTINELS {
        assert_eq!(group.tell(pod, "SENTINEL REMOVE locks"), "OK");
    }
    SENTINELS.into_iter().for_each(|pod| group.kill(pod));
    SENTINELS.into_iter().for_each(|pod| group.start(pod));
    assert_came_back_as_a_replica(&mut group, "leasehold-0", &next, log);
    assert_eq!(group.primary(), Ok(next.clone()));
    assert_held(&group, &next, &fence);
}
