//! Clusters, Sentinel, encrypted connections, and names that users give servers.

use super::{Scenario, quick, slow};
use crate::program::{Program, lock};
use crate::scene::{LONG, Scene, at_cluster, at_sentinels, is_held, millis, ttl_of, until_waiting};
use serde_json::{Value, json};
use testkit::{
    Cluster, Sentinels, Server, SlotMove, Takeover, eventually, lacks_tls, wait_until_in_sync,
};

pub(crate) const ALL: &[Scenario] = &[
    slow(
        "cluster",
        "the locks of a cluster are on all of its nodes, and a waiter gets one of each",
        cluster,
    ),
    slow(
        "slot-moves",
        "a slot that moves to another node takes the lease and the waiter along",
        slot_moves,
    ),
    slow(
        "node-fails-over",
        "a node that is replaced by its replica costs no lease and no wait",
        node_fails_over,
    ),
    slow("sentinel", "the primary is found through sentinels, and the lock is on it", sentinel),
    slow(
        "sentinel-failover",
        "a failover costs no lease that the replica has, and no wait",
        sentinel_failover,
    ),
    slow(
        "no-primary",
        "while there is no primary a try fails within its limit, and a wait goes on",
        no_primary,
    ),
    quick("database", "a lock is in the database that the client is connected to", database),
    slow("tls", "a lock is held and waited for over encrypted connections", tls),
    slow(
        "tls-unknown",
        "a server whose certificate nobody vouches for is not talked to",
        tls_unknown,
    ),
];

fn cluster(scene: &Scene<'_>) {
    let cluster = Cluster::of(3, 0);
    let program = scene.open(&at_cluster(&cluster));
    let other = scene.open(&at_cluster(&cluster));
    let name = |number: usize| format!("lock-{number}");
    let leases: Vec<_> = (0..30).map(|number| program.acquire(&lock(&name(number)))).collect();
    for node in cluster.nodes() {
        assert!(node.client().info_field("keyspace", "db0").is_some(), "a node without locks");
    }
    assert!((0..30).all(|number| other.try_acquire(&lock(&name(number))).is_none()));
    let waiting: Vec<_> =
        (0..30).map(|number| other.begin(&lock(&name(number)).wait(LONG))).collect();
    for lease in &leases {
        assert_eq!(lease.release(), "released");
    }
    for request in waiting {
        assert_eq!(request.lease().release(), "released");
    }
}

fn until_renewed(server: &Server, name: &str, ttl: i64) {
    eventually("it is renewed", || match ttl_of(server, name) {
        left if left > ttl * 9 / 10 => Ok(()),
        left => Err(left),
    });
}

fn slot_moves(scene: &Scene<'_>) {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let name = slot.key("printer");
    let (holder, other) = (scene.open(&at_cluster(&cluster)), scene.open(&at_cluster(&cluster)));
    let lease = holder.acquire(&lock(&name).ttl(millis(6_000)));
    let waiting = other.begin(&lock(&name).wait(LONG));
    until_waiting(cluster.node(0), &name, 1);
    let slot_move = SlotMove { slot: slot.number, from: 0, to: 1 };
    slot_move.import(&cluster);
    slot_move.migrate(&cluster);
    slot_move.move_keys(&cluster);
    slot_move.give(&cluster);
    until_renewed(cluster.node(1), &name, 6_000);
    until_waiting(cluster.node(1), &name, 1);
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
    let next = waiting.lease();
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
}

fn node_fails_over(scene: &Scene<'_>) {
    let mut cluster = Cluster::start();
    let name = cluster.slot_of(0).key("printer");
    let (holder, other) = (scene.open(&at_cluster(&cluster)), scene.open(&at_cluster(&cluster)));
    let lease = holder.acquire(&lock(&name).ttl(millis(20_000)));
    let waiting = other.begin(&lock(&name).wait(LONG));
    until_waiting(cluster.node(0), &name, 1);
    wait_until_in_sync(cluster.node(0), cluster.node(3));
    cluster.node_mut(0).kill();
    cluster.take_over(3, Takeover::Unasked);
    let renewed = lease.fence;
    until_waiting(cluster.node(3), &name, 1);
    until_renewed(cluster.node(3), &name, 20_000);
    assert_eq!(lease.release(), "released");
    let next = waiting.lease();
    assert!(next.fence > renewed);
    assert_eq!(next.release(), "released");
}

fn sentinel(scene: &Scene<'_>) {
    let sentinels = Sentinels::start();
    let program = scene.open(&at_sentinels(&sentinels));
    let lease = program.acquire(&lock("x"));
    assert!(is_held(sentinels.server(0), "x"));
    assert_eq!(lease.release(), "released");
}

fn sentinel_failover(scene: &Scene<'_>) {
    let mut sentinels = Sentinels::start();
    let (holder, other) =
        (scene.open(&at_sentinels(&sentinels)), scene.open(&at_sentinels(&sentinels)));
    let lease = holder.acquire(&lock("x").ttl(millis(20_000)));
    let waiting = other.begin(&lock("x").wait(LONG));
    until_waiting(sentinels.server(0), "x", 1);
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    until_renewed(sentinels.server(primary), "x", 20_000);
    until_waiting(sentinels.server(primary), "x", 1);
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
    let next = waiting.lease();
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
}

/// A replica whose primary is gone, and that stays a replica.
fn no_primary(scene: &Scene<'_>) {
    let mut primary = crate::scene::server();
    let replica = crate::scene::with_module().replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    primary.kill();
    let place = crate::scene::with(crate::scene::at(&replica), json!({ "within": 1_000 }));
    let program: Program = scene.open(&place);
    let (trouble, took) = program.fail_to_try(&lock("x"));
    assert!(
        ["read only", "unreachable"].contains(&trouble.kind.as_str()) || trouble.code == "READONLY",
        "{trouble:?}"
    );
    crate::scene::assert_took(took, millis(0), millis(1_000));
    let waiting = program.begin(&lock("x").wait(LONG));
    std::thread::sleep(millis(1_500));
    assert!(waiting.pending.is_open());
    replica.cmd("REPLICAOF NO ONE");
    assert_eq!(waiting.lease().release(), "released");
}

fn database(scene: &Scene<'_>) {
    let server = crate::scene::server();
    let place = json!({ "url": format!("redis://127.0.0.1:{}/3", server.port()) });
    let program = scene.open(&place);
    let lease = program.acquire(&lock("x"));
    assert!(!is_held(&server, "x"));
    let mut client = server.client();
    client.cmd("SELECT 3");
    assert_eq!(client.info("x").unwrap().fence, lease.fence);
    let other = scene.open(&place);
    let waiting = other.begin(&lock("x").wait(LONG));
    eventually("it waits", || match client.info("x").map(|info| info.waiters) {
        Some(1) => Ok(()),
        other => Err(other),
    });
    assert_eq!(lease.release(), "released");
    assert_eq!(waiting.lease().release(), "released");
}

fn encrypted(server: &Server, is_trusted: bool) -> Value {
    let file = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let mut place = json!({
        "url": format!("rediss://127.0.0.1:{}", server.port()),
        "certificate": file("tls.crt"),
        "key": file("tls.key"),
    });
    if is_trusted {
        place["ca"] = json!(file("tls.crt"));
    }
    place
}

fn server_over_tls() -> Server {
    if lacks_tls() {
        let why = "this server was built without TLS".to_owned();
        std::panic::panic_any(crate::adapter::Unsupported(why));
    }
    Server::builder().clients_over_tls().start()
}

fn tls(scene: &Scene<'_>) {
    let server = server_over_tls();
    let (one, other) =
        (scene.open(&encrypted(&server, true)), scene.open(&encrypted(&server, true)));
    let lease = one.acquire(&lock("x"));
    let waiting = other.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    assert_eq!(lease.release(), "released");
    assert_eq!(waiting.lease().release(), "released");
}

fn tls_unknown(scene: &Scene<'_>) {
    let server = server_over_tls();
    let place = crate::scene::with(encrypted(&server, false), json!({ "within": 1_000 }));
    let program = scene.open(&place);
    let (trouble, _) = program.fail_to_try(&lock("x"));
    assert_eq!(trouble.kind, "unreachable");
    assert!(!is_held(&server, "x"));
}
