//! More tickets than one turn of the server has time for.

use super::{LONG, held};
use redis::Value;
use testkit::{Client, int};

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
