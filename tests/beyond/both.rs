//! A primary that was replaced and does not know it. For how long it goes on granting locks beside its successor, and what
//! becomes of those grants.

use super::LONG;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{
    Client, Cluster, Pace, Sentinels, Server, eventually, figure, short_or_long, start_pair,
    wait_until_it_is,
};

/// A grant of a server that should not have given it any more.
struct Stray {
    fence: u64,
    told: Instant,
}

/// Asks for a lock that nobody else wants, again and again, until the server grants no more.
fn strays(client: &mut Client, key: &str) -> Vec<Stray> {
    let mut strays = Vec::new();
    loop {
        match client.try_cmd(format!("LOCK.ACQUIRE {key} alice {LONG}")) {
            Ok(Value::Int(fence)) => {
                strays.push(Stray { fence: fence.try_into().unwrap(), told: Instant::now() });
            }
            Ok(Value::ServerError(_)) | Err(_) => return strays,
            Ok(other) => panic!("{other:?}"),
        }
    }
}

/// For how long it granted locks, in milliseconds.
fn window(strays: &[Stray], since: Instant) -> f64 {
    let last = strays.last().map_or(since, |stray| stray.told);
    last.saturating_duration_since(since).as_secs_f64() * 1_000.0
}

fn is_held_by_bob_alone(server: &Server, key: &str, fence: u64) {
    eventually("what was granted too late is gone", || {
        let mut client = server.client();
        client.try_cmd("READONLY").map_err(|error| error.to_string())?;
        let checks = ["alice", "bob"].map(|owner| client.try_cmd(["LOCK.CHECK", key, owner]));
        match &checks {
            [Ok(Value::Nil), Ok(Value::Int(held))] if u64::try_from(*held) == Ok(fence) => Ok(()),
            checks => Err(format!("{checks:?}")),
        }
    });
}

/// The primary hangs, is replaced, and goes on.
#[test]
fn what_a_primary_that_only_hung_grants_after_sentinels_have_replaced_it_is_gone_with_its_resync() {
    let pace = short_or_long(Pace::Hurried, Pace::Usual);
    let mut sentinels = Sentinels::at_pace(pace, |_, setup| setup);
    let mut client = sentinels.server(0).client();
    sentinels.server_mut(0).freeze();
    let primary = sentinels.wait_for_another_primary_than(0);
    let bobs = sentinels.server(primary).client().grant("k", "bob", LONG);
    sentinels.server_mut(0).thaw();
    let since = Instant::now();
    let strays = strays(&mut client, "k");
    assert!(!strays.is_empty(), "it knew at once, so nothing was shown");
    assert!(strays.iter().all(|stray| stray.fence < bobs), "the store can tell who is to win");
    figure(&format!(
        "former primary that hung, Sentinel at its {} pace: granted for {:.0} ms beside its successor",
        short_or_long("hurried", "usual"),
        window(&strays, since)
    ));
    sentinels.wait_until_follows(0, primary);
    is_held_by_bob_alone(sentinels.server(0), "k", bobs);
}

/// The primary and its clients are cut off from everybody else.
#[test]
fn a_primary_that_is_cut_off_grants_as_long_as_that_lasts() {
    let sentinels = Sentinels::start();
    let mut client = sentinels.server(0).client();
    sentinels.proxy.cut();
    let primary = sentinels.wait_for_another_primary_than(0);
    let bobs = sentinels.server(primary).client().grant("k", "bob", LONG);
    let alices = client.grant("k", "alice", LONG);
    assert!(alices < bobs, "two hold the lock, and the store can tell who is to win");
    sentinels.proxy.heal();
    sentinels.wait_until_follows(0, primary);
    is_held_by_bob_alone(sentinels.server(0), "k", bobs);
}

/// From then on the former one's clock is past what its successor gave out first.
#[test]
fn a_successor_is_above_its_former_primary_for_as_long_as_the_margin() {
    for (margin, is_over) in [(100, true), (600_000, false)] {
        let setup = || Server::builder().module_args(&format!("fence-margin {margin}"));
        let (former, successor) = start_pair(setup(), setup());
        successor.cmd("REPLICAOF NO ONE");
        wait_until_it_is(&successor, "master");
        let bobs = successor.client().grant("k", "bob", LONG);
        let mut client = former.client();
        if is_over {
            client.wait_until_past(bobs.cast_signed() / 1_000);
        }
        assert_eq!(client.grant("k", "alice", LONG) > bobs, is_over, "a margin of {margin} ms");
    }
}

/// In whole seconds, which is all the server knows.
const MAX_LAG: u64 = 1;

#[test]
fn a_primary_that_is_cut_off_and_needs_replicas_soon_grants_nothing() {
    let sentinels = Sentinels::with(|_, setup| {
        let setup = setup.config("min-replicas-to-write", "1");
        setup.config("min-replicas-max-lag", &MAX_LAG.to_string())
    });
    let mut client = sentinels.server(0).client();
    sentinels.proxy.cut();
    let cut = Instant::now();
    let strays = strays(&mut client, "k");
    let window = window(&strays, cut);
    // A replica says each second how far it is, and the server counts whole seconds.
    let most = Duration::from_secs(MAX_LAG + 2).as_secs_f64() * 1_000.0;
    assert!(window < most, "for {window:.0} ms");
    let primary = sentinels.wait_for_another_primary_than(0);
    eventually("the successor has a replica", || {
        match sentinels.server(primary).client().try_cmd(format!("LOCK.ACQUIRE k bob {LONG}")) {
            Ok(Value::Int(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    figure(&format!(
        "former primary that is cut off, min-replicas-max-lag {MAX_LAG}: granted for {window:.0} ms"
    ));
}

#[test]
fn what_a_node_that_only_hung_grants_after_it_was_replaced_is_gone_with_its_resync() {
    let rounds = short_or_long(1, 20);
    let mut windows = Vec::new();
    for _ in 0..rounds {
        let mut cluster = Cluster::of(3, 1);
        let key = cluster.slot_of(0).key("k");
        let mut client = cluster.node(0).client();
        cluster.node_mut(0).freeze();
        wait_until_it_is(cluster.node(3), "master");
        cluster.wait_until_ok();
        let bobs = cluster.node(3).client().grant(&key, "bob", LONG);
        // This is there before it hears of anything else.
        client.send(format!("LOCK.ACQUIRE {key} alice {LONG}"));
        cluster.node_mut(0).thaw();
        let since = Instant::now();
        let mut strays = match client.try_receive() {
            Ok(Value::Int(fence)) => {
                vec![Stray { fence: fence.try_into().unwrap(), told: Instant::now() }]
            }
            _ => Vec::new(),
        };
        strays.extend(self::strays(&mut client, &key));
        assert!(strays.iter().all(|stray| stray.fence < bobs), "the store can tell who is to win");
        windows.push((strays.len(), window(&strays, since)));
        wait_until_it_is(cluster.node(0), "slave");
        is_held_by_bob_alone(cluster.node(0), &key, bobs);
    }
    let longest = windows.iter().map(|(_, window)| *window).fold(0.0, f64::max);
    let strayed = windows.iter().filter(|(strays, _)| *strays > 0).count();
    figure(&format!(
        "former node of a cluster that hung: granted beside its successor in {strayed} of {rounds} cases, for at most \
         {longest:.1} ms"
    ));
}
