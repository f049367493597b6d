//! Another password, while the group serves: the steps of docs/kubernetes.md.

use super::group::{Group, PASSWORD};
use super::surviving::{SENTINELS, SERVERS, assert_held, grant, started};
use crate::text;
use testkit::eventually;

const NEW: &str = "5ec2e7";

/// What the page has each pod of a kind be told, in its order.
fn told_to(kind: &str) -> Vec<String> {
    let page = text("docs/kubernetes.md");
    let section = page.split("### Another password").nth(1).unwrap();
    let steps = section.split("```").nth(1).unwrap().lines();
    let words = steps.filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    words.map(|words| words.replace('"', "").replace("$new", NEW)).collect()
}

fn wait_for_quorum(group: &Group, sentinel: &str, wanted: &str) {
    group.until(sentinel, "SENTINEL CKQUORUM locks", |told| told.starts_with(wanted));
}

#[test]
fn the_steps_of_the_page_change_the_password_and_the_lock_survives() {
    let mut group = started();
    let fence = grant(&group, "leasehold-0");
    let (servers, sentinels) = (told_to("in_servers"), told_to("in_sentinels"));
    assert_eq!((servers.len(), sentinels.len()), (2, 3), "{servers:?}, {sentinels:?}");
    // All take both passwords before any uses the new one.
    for (pods, words) in [
        (SERVERS, &servers[..1]),
        (SENTINELS, &sentinels[..1]),
        (SERVERS, &servers[1..]),
        (SENTINELS, &sentinels[1..]),
    ] {
        for words in words {
            for pod in pods {
                assert_eq!(group.tell(pod, words), "OK", "{pod}: {words}");
            }
        }
    }
    // As a StatefulSet replaces its pods: the last one first, each when the one before is ready.
    for pod in SERVERS.into_iter().rev() {
        group.hand_over(pod);
        group.kill(pod);
        group.container(pod).set("REDISCLI_AUTH", NEW);
        group.start(pod);
        group.wait_until_ready(pod);
        if pod == "leasehold-2" {
            // Who is replaced later may have to follow another one until then.
            group.hand_over("leasehold-0");
            assert_ne!(group.primary().unwrap(), "leasehold-0");
            SERVERS.into_iter().for_each(|pod| group.wait_until_ready(pod));
        }
    }
    for pod in SENTINELS.into_iter().rev() {
        group.kill(pod);
        if pod == "leasehold-sentinel-2" {
            // Else the others might not have noticed that they have to speak with it anew.
            wait_for_quorum(&group, "leasehold-sentinel-0", "OK 2 usable Sentinels");
        }
        group.container(pod).set("REDISCLI_AUTH", NEW);
        group.start(pod);
        group.wait_until_ready(pod);
        wait_for_quorum(&group, "leasehold-sentinel-0", "OK 3 usable Sentinels");
    }
    let primary = eventually("the sentinels agree", || group.primary());
    assert_held(&group, &primary, &fence);
    for pod in SERVERS.into_iter().chain(SENTINELS) {
        assert!(group.tell_by(pod, PASSWORD, "PING").contains("WRONGPASS"), "{pod}");
    }
    // They know each other: one is promoted, and the others follow it.
    group.kill(&primary);
    let next = group.wait_for_another_primary_than(&primary);
    assert_held(&group, &next, &fence);
}
