//! More tickets than one turn of the server has time for.

use super::{LONG, held, until_held_by, until_no_tickets};
use redis::Value;
use testkit::{Client, Server, int};

/// Sends a line for each number, a thousand at a time.
fn for_each(client: &mut Client, count: usize, line: impl Fn(usize) -> String) -> Vec<Value> {
    let lines: Vec<_> = (0..count).map(line).collect();
    let chunks = lines.chunks(1_000);
    chunks
        .flat_map(|chunk| client.pipeline(&chunk.iter().map(String::as_str).collect::<Vec<_>>()))
        .collect()
}

#[test]
fn a_lock_that_a_hundred_thousand_owners_have_tickets_for_is_handed_on_in_order() {
    const OWNERS: usize = 100_000;
    let (_server, mut client) = held();
    let ask = |number: usize| format!("LOCK.ACQUIRE k w{number} {LONG} TICKET 86400000");
    assert!(for_each(&mut client, OWNERS, ask).iter().all(|reply| *reply == Value::Nil));
    assert_eq!(client.counter("tickets"), OWNERS as u64);
    // From the middle of the queue, and from its end.
    assert!(!client.release("k", "w50000"));
    assert!(!client.release("k", "w99999"));
    assert!(client.release("k", "alice"));
    let drain = |number: usize| format!("LOCK.RELEASE k w{number}");
    let released = for_each(&mut client, OWNERS, drain);
    let refused: Vec<_> = (0..OWNERS).filter(|number| released[*number] != int(1)).collect();
    assert_eq!(refused, [50_000, 99_999]);
    assert_eq!(client.info("k"), None);
}

#[test]
fn readers_with_tickets_are_let_in_a_few_at_a_time() {
    const READERS: usize = 900;
    let (_server, mut client) = held();
    let ask = |number: usize| format!("LOCK.ACQUIRE k r{number} {LONG} SHARE 0 TICKET {LONG}");
    assert!(for_each(&mut client, READERS, ask).iter().all(|reply| *reply == Value::Nil));
    let replies = client.pipeline(&["LOCK.RELEASE k alice", "LOCK.INFO k"]);
    let Some(&Value::Int(first)) = testkit::field(&replies[1], "holders") else { panic!() };
    assert!((1..200).contains(&first), "{first} were let in by one command");
    until_no_tickets(&mut client);
    assert_eq!(client.info("k").unwrap().holders, READERS as i64);
}

#[test]
fn tickets_of_many_locks_end_and_leave_nothing_behind() {
    const LOCKS: usize = 5_000;
    let server = Server::start();
    let mut client = server.client();
    let hold = |number: usize| format!("LOCK.ACQUIRE lock{number} alice 86400000");
    for_each(&mut client, LOCKS, hold);
    let ask = |number: usize| format!("LOCK.ACQUIRE lock{number} bob {LONG} TICKET 200");
    for_each(&mut client, LOCKS, ask);
    until_no_tickets(&mut client);
    assert_eq!(client.counter("waits_abandoned"), LOCKS as u64);
    client.grant("k", "alice", LONG);
    super::queue_up(&mut client, "bob");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}
