//! Another server decides: tickets are forgotten, and who asks there queues anew.

use super::{LONG, by_ticket, held_on, queue, queue_of, queue_up, until_no_tickets};
use redis::Value;
use testkit::{Cluster, Server, SlotMove, code, eventually, start_pair, wait_until_in_sync};

#[test]
fn a_replica_keeps_no_ticket_and_when_it_is_promoted_who_asks_there_queues_anew() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    let held = client.grant("k", "alice", LONG);
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    wait_until_in_sync(&primary, &replica);
    let mut there = replica.client();
    assert_eq!(code(there.cmd(by_ticket("carol", LONG))), "READONLY");
    assert!(queue(&mut there).is_empty(), "the queue is at the primary");
    assert_eq!(there.info("k").unwrap().waiters, 0);
    // One that was made writable changes its own copy, and keeps nobody's place.
    assert_eq!(there.cmd("CONFIG SET replica-read-only no"), Value::Okay);
    assert_eq!(
        there.cmd(by_ticket("carol", LONG)),
        testkit::error("ERR BLOCK and TICKET are not possible on a replica, wait at its primary")
    );
    assert!(queue(&mut there).is_empty());
    assert_eq!(queue(&mut client), ["ticket bob", "ticket carol"]);

    drop(primary);
    assert_eq!(there.cmd("REPLICAOF NO ONE"), Value::Okay);
    assert!(queue(&mut there).is_empty());
    queue_up(&mut there, "carol");
    queue_up(&mut there, "bob");
    assert_eq!(queue(&mut there), ["ticket carol", "ticket bob"]);
    assert!(there.release("k", "alice"));
    assert!(there.check("k", "carol").unwrap() > held);
}

#[test]
fn a_primary_that_becomes_a_replica_forgets_its_tickets() {
    let primary = Server::builder().tcp().start();
    let (server, mut client) = held_on(Server::builder().tcp());
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    server.follow(&primary);
    until_no_tickets(&mut client);
    assert_eq!(code(client.cmd(by_ticket("bob", LONG))), "READONLY");
    testkit::wait_until_it_is(&server, "slave");
    assert_eq!(client.cmd("REPLICAOF NO ONE"), Value::Okay);
    assert!(queue(&mut client).is_empty());
    eventually("it is a primary", || match client.cmd("LOCK.ACQUIRE k alice 60000") {
        Value::Int(1..) => Ok(()),
        other => Err(other),
    });
    queue_up(&mut client, "bob");
}

fn goes_on_over(cluster: &Cluster, moves: fn(SlotMove, &Cluster)) {
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    from.grant(&key, "alice", LONG);
    let ask = |owner: &str| format!("LOCK.ACQUIRE {key} {owner} {LONG} TICKET {LONG}");
    for owner in ["bob", "carol"] {
        assert_eq!(from.fence(ask(owner)), None);
    }
    moves(SlotMove { slot: slot.number, from: 0, to: 1 }, cluster);
    until_no_tickets(&mut from);
    assert_eq!(code(from.cmd(ask("bob"))), "MOVED");
    assert!(queue_of(&mut to, &key).is_empty());
    assert_eq!(to.fence(ask("carol")), None);
    assert_eq!(to.fence(ask("bob")), None);
    assert_eq!(queue_of(&mut to, &key), ["ticket carol", "ticket bob"]);
    assert!(to.release(&key, "alice"));
    assert!(to.check(&key, "carol").is_some());
}

#[test]
fn tickets_of_a_slot_that_moves_are_forgotten() {
    for moves in SlotMove::ways() {
        goes_on_over(&Cluster::of(2, 0), moves);
    }
}

#[test]
fn while_a_slot_is_on_its_way_a_ticket_is_taken_where_the_key_is() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let key = slot.key("k");
    let (mut from, mut to) = (cluster.node(0).client(), cluster.node(1).client());
    from.grant(&key, "alice", LONG);
    let ask = format!("LOCK.ACQUIRE {key} bob {LONG} TICKET {LONG}");
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    step.import(&cluster);
    step.migrate(&cluster);
    assert_eq!(from.fence(&*ask), None);
    step.move_keys(&cluster);
    until_no_tickets(&mut from);
    assert_eq!(code(from.cmd(&*ask)), "ASK");
    assert_eq!(to.pipeline(&["ASKING", &ask])[1], Value::Nil);
    step.give(&cluster);
    assert_eq!(queue_of(&mut to, &key), ["ticket bob"]);
    assert!(to.release(&key, "alice"));
    assert!(to.check(&key, "bob").is_some());
}
