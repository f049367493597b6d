//! Clusters and sentinels: what moves on while locks are held and waited for.

use crate::scene::{
    Kind, LONG, NOTHING, Way, cluster_locks, eventually_renewed, eventually_waiting, is_held_by,
    millis, sentinel_locks, sentinels_locks, soon,
};
use leasehold_client::{Error, Locks, Released, Settings};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Cluster, Sentinels, Setup, SlotMove, Takeover, start_pair, wait_until_in_sync};

/// Long enough for a failover, short enough that renewals fall into it.
const TTL: Duration = millis(12_000);

fn settings() -> Settings {
    Settings { ttl: TTL, ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_cluster_are_wherever_their_slots_are() {
    for kind in Kind::BOTH {
        let setup = |setup: Setup| match kind {
            Kind::With => setup,
            Kind::Without => setup.without_module(),
        };
        let cluster = Cluster::with(3, 0, |_, node| setup(node));
        let locks = cluster_locks(&cluster, settings());
        let mut guards = Vec::new();
        for number in 0..30 {
            let name = format!("lock:{number}");
            let guard = locks.lock(&name).try_now().await.unwrap().expect("it is free");
            assert!(locks.lock(&name).try_now().await.unwrap().is_none());
            guards.push(guard);
        }
        for node in cluster.nodes() {
            let keys = node.client().info_field("keyspace", "db0");
            assert!(keys.is_some(), "a node without locks");
        }
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Released::InTime);
        }
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    }
}

/// Whoever waits is told by the node that has the slot, over a connection to that node.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_whoever_waits_is_told_by_each_node_of_its_locks() {
    let cluster = Cluster::of(3, 0);
    let locks = cluster_locks(&cluster, Settings { check_every: LONG, ..settings() });
    for way in Way::BOTH {
        let urls = cluster.nodes().iter().map(|node| {
            node.cmd("ACL SETUSER worker on >secret ~* +@all resetchannels");
            format!("redis://127.0.0.1:{}", node.port())
        });
        let builder = ClusterClientBuilder::new(urls.collect::<Vec<_>>());
        let client = match way {
            Way::Tickets => builder.build(),
            Way::Connections => builder.username("worker").password("secret").build(),
        };
        let waiting = Locks::with_settings(client.unwrap(), settings()).unwrap();
        for node in 0..3 {
            let name = cluster.slot_of(node).key("printer");
            let guard = locks.lock(&name).await.unwrap();
            let waiter = tokio::spawn(waiting.lock(&name).into_future());
            eventually_waiting(cluster.node(node), &name, 1).await;
            let (fence, begun) = (guard.fence(), Instant::now());
            assert_eq!(guard.release().await.unwrap(), Released::InTime);
            assert!(soon(waiter).await.unwrap().unwrap().fence() > fence, "{way:?}");
            assert!(begun.elapsed() < millis(2_000), "{way:?}: {:?}", begun.elapsed());
        }
        assert_eq!(soon(waiting.close(LONG)).await, NOTHING);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_holds_and_those_who_wait_for_them_go_along_when_a_node_is_replaced() {
    let mut cluster = Cluster::start();
    let name = cluster.slot_of(0).key("printer");
    let locks = cluster_locks(&cluster, settings());
    let guard = locks.lock(&name).ephemeral(TTL).await.unwrap();
    let waiter = tokio::spawn(locks.lock(&name).ephemeral(TTL).into_future());
    eventually_waiting(cluster.node(0), &name, 1).await;
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    cluster.node_mut(0).kill();
    // Nobody is asked, so that it takes less than the lease.
    cluster.take_over(3, Takeover::Unasked);
    eventually_renewed(&guard, TTL).await;
    assert!(!waiter.is_finished());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    let next = soon(waiter).await.unwrap().unwrap();
    assert!(next.fence() > fence && is_held_by(cluster.node(3), &name, &next));
    cluster.node(3).cmd("CLIENT KILL TYPE normal SKIPME yes");
    eventually_renewed(&next, TTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_and_bound_holds_go_along_when_a_slot_moves() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let names = ["a", "b"].map(|name| slot.key(name));
    let locks = cluster_locks(&cluster, settings());
    let all = locks.all(&names).await.unwrap();
    let bound = locks.lock(slot.key("c")).ephemeral(Duration::ZERO).await.unwrap();
    let waiter = tokio::spawn(locks.all(&names).into_future());
    eventually_waiting(cluster.node(0), &names[1], 1).await;
    SlotMove { slot: slot.number, from: 0, to: 1 }.by_hand(&cluster);
    // Nothing else has been asked since.
    drop(soon(locks.lock(slot.key("d")).ephemeral(Duration::ZERO)).await.unwrap());
    all.extend(TTL).await.unwrap();
    assert!(names.iter().all(|name| is_held_by(cluster.node(1), name, &all)));
    let fence = all.fence();
    assert_eq!(all.release().await.unwrap(), Released::InTime);
    assert!(soon(waiter).await.unwrap().unwrap().fence() > fence);
    // It is a hold like any other there, until its connection is lost: then it is bound again.
    bound.extend(TTL).await.unwrap();
    assert_eq!((bound.loss(), bound.release().await.unwrap()), (None, Released::InTime));
}

/// A primary dies while a guard is renewed and somebody waits; both go on at the next one.
#[tokio::test(flavor = "multi_thread")]
async fn guards_and_waiters_go_along_to_a_primary_without_the_module() {
    let mut sentinels = Sentinels::with(|index, setup| match index {
        0 => setup,
        _ => setup.without_module(),
    });
    let locks = sentinel_locks(&sentinels, settings());
    let guard = locks.lock("printer").await.unwrap();
    let waiter = tokio::spawn(locks.lock("printer").into_future());
    eventually_waiting(sentinels.server(0), "printer", 1).await;
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    eventually_renewed(&guard, TTL).await;
    assert!(is_held_by(sentinels.server(primary), "printer", &guard));
    assert!(!waiter.is_finished());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    assert!(soon(waiter).await.unwrap().unwrap().fence() > fence);
    assert_eq!(locks.info("printer").await.unwrap().map(|info| info.waiters), None);
}

/// A sentinel that says what the test wants, one line of a reply for each command; nothing while it names port 0.
fn sentinel_that_names(primary: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |mut client: TcpStream, primary: &AtomicU16| {
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            if primary.load(SeqCst) == 0 {
                continue;
            }
            // They come whole, because they are short.
            for command in String::from_utf8_lossy(&bytes[..count]).split('*').skip(1) {
                let port = primary.load(SeqCst).to_string();
                let words = ["name", "locks", "ip", "127.0.0.1", "port", &port, "flags", "master"];
                let words = words.map(|word| format!("${}\r\n{word}\r\n", word.len())).concat();
                let reply = if command.contains("MASTERS") {
                    format!("*1\r\n*8\r\n{words}")
                } else if command.contains("ROLE") {
                    "*2\r\n$8\r\nsentinel\r\n*0\r\n".to_owned()
                } else {
                    "+OK\r\n".to_owned()
                };
                if client.write_all(reply.as_bytes()).is_err() {
                    return;
                }
            }
        }
    };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let primary = Arc::clone(&primary);
            std::thread::spawn(move || answer(client.unwrap(), &primary));
        }
    });
    port
}

/// The former primary is alive, and a replica: whatever is asked there is asked again elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_still_reaches_a_replaced_primary_follows_the_sentinels() {
    for kind in Kind::BOTH {
        let (former, next) = start_pair(kind.setup(), kind.setup());
        let named = Arc::new(AtomicU16::new(former.port()));
        let locks = sentinels_locks([sentinel_that_names(Arc::clone(&named))], settings());
        let guard = locks.lock("printer").await.unwrap();
        let waiter = tokio::spawn(locks.lock("printer").into_future());
        let has_module = kind == Kind::With;
        let bound = if has_module {
            eventually_waiting(&former, "printer", 1).await;
            Some(locks.lock("bound").ephemeral(TTL).await.unwrap())
        } else {
            None
        };
        wait_until_in_sync(&former, &next);
        next.cmd("REPLICAOF NO ONE");
        former.cmd(["REPLICAOF", "127.0.0.1", &next.port().to_string()]);
        named.store(next.port(), SeqCst);
        if let Some(bound) = bound {
            // Nothing else has been asked since.
            let again = soon(locks.lock("scanner").ephemeral(TTL)).await.unwrap();
            assert!(is_held_by(&next, "scanner", &again));
            let visits: u64 =
                soon(guard.run_command(&redis::cmd("INCR").arg("visits").take())).await.unwrap();
            assert_eq!((visits, bound.loss()), (1, None));
        }
        guard.extend(TTL).await.unwrap();
        assert!(is_held_by(&next, "printer", &guard) && !waiter.is_finished());
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let waited = soon(waiter).await.unwrap().unwrap();
        assert!(is_held_by(&next, "printer", &waited), "{kind}");
        assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    }
}

/// Both share a client of the redis crate, which asks for one of them at a time.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_gives_up_while_sentinels_are_silent_holds_up_nobody_else() {
    let (server, named) = (crate::scene::server(), Arc::new(AtomicU16::new(0)));
    let address = crate::scene::client(sentinel_that_names(Arc::clone(&named)));
    let addresses = [address.get_connection_info().addr().clone()];
    let client = SentinelClientBuilder::new(addresses, "locks", SentinelServerType::Master);
    let place = leasehold_client::Server::from(client.unwrap().build().unwrap());
    let settings = Settings { retry_for: millis(100), ..settings() };
    let one = Locks::with_settings(place.clone(), settings.clone()).unwrap();
    let other = Locks::with_settings(place, Settings { retry_for: LONG, ..settings }).unwrap();
    assert!(soon(one.lock("printer").try_now()).await.is_err());
    assert_eq!(soon(one.close(LONG)).await, ["printer"]);
    named.store(server.port(), SeqCst);
    assert!(soon(other.lock("printer").try_now()).await.unwrap().is_some());
}

/// Whoever is asked first accepts connections, and answers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_or_sentinel_that_is_silent_holds_up_nobody_who_knows_others() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let (cluster, sentinels) = (Cluster::of(3, 0), Sentinels::start());
    let urls = [port, cluster.node(0).port()].map(|port| format!("redis://127.0.0.1:{port}"));
    let of_cluster = Locks::with_settings(ClusterClient::new(urls).unwrap(), settings()).unwrap();
    let of_sentinels = sentinels_locks([port].into_iter().chain(sentinels.ports()), settings());
    for locks in [of_cluster, of_sentinels] {
        let guard = soon(locks.lock("printer").try_now()).await.unwrap().expect("it is free");
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_knows_another_password_says_so_at_once() {
    let cluster = Cluster::of(3, 0);
    let node = format!("redis://127.0.0.1:{}", cluster.node(0).port());
    let client = ClusterClient::builder([node]).username("worker").password("no").build().unwrap();
    let begun = Instant::now();
    let refused = soon(Locks::new(client).lock("printer")).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert!(begun.elapsed() < Settings::default().retry_for);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_one_server_does_not_wait_for_a_lock_of_another_node() {
    let cluster = Cluster::of(2, 0);
    let locks = Locks::new(crate::scene::client(cluster.node(1).port()));
    let refused = soon(locks.lock(cluster.slot_of(0).key("printer"))).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}
