//! Where a command may not wait, a ticket may still be taken: in transactions, scripts, functions and calls of other modules.

use super::{LONG, asked, by_ticket, held, held_on, queue, queue_of, queue_up, until_held_by};
use redis::Value;
use testkit::{Server, bulk, eventually, int, lacks};

const ASK: &str = "LOCK.ACQUIRE k bob 60000 TICKET 60000";

#[test]
fn a_transaction_takes_a_place() {
    let (_server, mut client) = held();
    let replies = client.transaction(&["SET a 1", ASK, "LOCK.ACQUIRE free bob 5 TICKET 5", ASK]);
    assert_eq!([&replies[1], &replies[3]], [&Value::Nil, &Value::Nil]);
    assert!(matches!(replies[2], Value::Int(1..)), "{replies:?}");
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}

#[test]
fn a_transaction_that_frees_the_lock_and_asks_for_it_is_behind_those_who_wait() {
    let (_server, mut client) = held();
    queue_up(&mut client, "carol");
    let replies = client.transaction(&["LOCK.RELEASE k alice", ASK, "LOCK.CHECK k carol"]);
    assert_eq!(replies[..2], [int(1), Value::Nil]);
    assert!(matches!(replies[2], Value::Int(1..)), "{replies:?}");
    let replies = client.transaction(&["DEL k", ASK]);
    assert!(matches!(replies[1], Value::Int(1..)), "nobody is before it: {replies:?}");
}

#[test]
fn a_transaction_that_is_discarded_or_aborted_takes_no_place() {
    let (server, mut client) = held();
    let notify = format!("{ASK} NOTIFY grants");
    client.pipeline(&["MULTI", &notify, "DISCARD"]);
    client.cmd("WATCH a");
    server.cmd("SET a 2");
    assert_eq!(client.pipeline(&["MULTI", &notify, "EXEC"])[2], Value::Nil);
    let replies = client.pipeline(&["MULTI", &notify, "NO-SUCH-COMMAND", "EXEC"]);
    assert!(matches!(&replies[3], Value::ServerError(told) if told.code() == "EXECABORT"));
    assert!(queue(&mut client).is_empty());
    assert_eq!(client.counter("tickets"), 0);
}

#[test]
fn a_script_takes_a_place() {
    let (_server, mut client) = held();
    let script = "local ask = { 'LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'TICKET', 60000 }
        local first = redis.call(unpack(ask))
        ask[3] = '*'
        return { tostring(first), #redis.call('LOCK.WAITERS', KEYS[1]), redis.call(unpack(ask))[1] }";
    let Value::Array(reply) = client.cmd(["EVAL", script, "1", "k"]) else { panic!("no list") };
    assert_eq!(reply[..2], [bulk("false"), int(1)]);
    let minted = testkit::bulk_text(&reply[2]);
    assert_eq!(queue(&mut client), ["ticket bob".to_owned(), format!("ticket {minted}")]);
    let script = "redis.call('LOCK.RELEASE', KEYS[1], 'alice')
        return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'TICKET', 60000)";
    let Value::Int(fence) = client.cmd(["EVAL", script, "1", "k"]) else { panic!("no fence") };
    assert_eq!(client.check("k", "bob"), Some(fence.unsigned_abs()));
}

#[test]
fn a_function_takes_a_place() {
    if lacks((7, 0), "functions") {
        return;
    }
    let (_server, mut client) = held();
    let library = "#!lua name=locks
        redis.register_function('ask', function(keys)
            return redis.call('LOCK.ACQUIRE', keys[1], 'bob', 60000, 'TICKET', 60000) end)";
    assert_eq!(client.cmd(["FUNCTION", "LOAD", library]), bulk("locks"));
    assert_eq!(client.cmd("FCALL ask 1 k"), Value::Nil);
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert!(client.release("k", "alice"));
    assert!(matches!(client.cmd("FCALL ask 1 k"), Value::Int(1..)));
}

#[test]
fn another_module_takes_a_place() {
    let (_server, mut client) = held_on(Server::builder().with_caller());
    assert_eq!(client.cmd(format!("CALLER.CALL {ASK}")), Value::Nil);
    let script = "return tostring(redis.call('CALLER.CALL', unpack(ARGV)))";
    let words = by_ticket("carol", LONG);
    let words: Vec<_> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let eval = [b"EVAL".to_vec(), script.as_bytes().to_vec(), b"0".to_vec()];
    assert_eq!(client.cmd([&eval[..], &words].concat()), bulk("false"));
    client.transaction(&[&format!("CALLER.CALL {}", by_ticket("dave", LONG))]);
    assert_eq!(queue(&mut client), ["ticket bob", "ticket carol", "ticket dave"]);
    assert!(client.release("k", "alice"));
    assert!(matches!(client.cmd(format!("CALLER.CALL {ASK}")), Value::Int(1..)));
}

#[test]
fn a_connection_that_wants_no_replies_takes_places() {
    let (server, mut observer) = held();
    let mut client = server.client();
    client.send("CLIENT REPLY OFF");
    client.send(ASK);
    client.send("CLIENT REPLY ON");
    assert_eq!(client.receive(), Value::Okay);
    client.send_all(&["CLIENT REPLY SKIP", &by_ticket("carol", LONG), "PING"]);
    assert_eq!(client.receive(), Value::SimpleString("PONG".to_owned()));
    assert_eq!(queue(&mut observer), ["ticket bob", "ticket carol"]);
}

#[test]
fn a_connection_with_a_subscription_takes_places() {
    let (server, mut observer) = held();
    let mut client = server.client_resp3();
    client.cmd("SUBSCRIBE news");
    assert_eq!(client.cmd(ASK), Value::Nil);
    assert_eq!(queue(&mut observer), ["ticket bob"]);
}

#[test]
fn a_connection_that_watches_the_lock_hears_of_its_grant() {
    let (server, mut client) = held();
    queue_up(&mut client, "bob");
    client.cmd("WATCH k");
    server.client().release("k", "alice");
    assert_eq!(client.pipeline(&["MULTI", "SET a 1", "EXEC"])[2], Value::Nil, "it was granted");
}

#[test]
fn ten_thousand_places_are_taken_on_one_connection() {
    const LOCKS: usize = 10_000;
    let server = Server::start();
    let (mut client, mut alice) = (server.client(), server.client());
    let of_each = |line: &str| -> Vec<String> {
        (0..LOCKS).map(|number| line.replace("{}", &number.to_string())).collect()
    };
    fn sent(client: &mut testkit::Client, lines: &[String]) -> Vec<Value> {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        lines.chunks(1_000).flat_map(|chunk| client.pipeline(chunk)).collect()
    }
    sent(&mut alice, &of_each("LOCK.ACQUIRE lock{} alice 60000"));
    let ask = of_each("LOCK.ACQUIRE lock{} bob 60000 TICKET 60000");
    assert!(sent(&mut client, &ask).iter().all(|reply| *reply == Value::Nil));
    assert_eq!(client.counter("tickets"), LOCKS as u64);
    assert_eq!(client.info_number("clients", "blocked_clients"), 0);
    sent(&mut alice, &of_each("LOCK.RELEASE lock{} alice"));
    let fences = sent(&mut client, &ask);
    let fences: Vec<_> = fences
        .iter()
        .map(|reply| match reply {
            Value::Int(fence) => *fence,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(fences.is_sorted(), "they were granted in the order of the releases");
    assert_eq!(client.counter("tickets"), 0);
}

#[test]
fn the_queues_of_many_locks_are_drained_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let (locks, owners) = (50, 20);
    for lock in 0..locks {
        client.grant(format!("lock{lock}"), "w-", LONG);
        for owner in 0..owners {
            let request = format!("LOCK.ACQUIRE lock{lock} w{owner} {LONG} TICKET {LONG}");
            assert_eq!(asked(&mut client, request), None);
        }
    }
    let mut holder = "w-".to_owned();
    for owner in 0..owners {
        for lock in 0..locks {
            assert!(client.release(format!("lock{lock}"), &holder), "{lock} {holder}");
        }
        holder = format!("w{owner}");
        for lock in 0..locks {
            assert!(client.check(format!("lock{lock}"), &holder).is_some(), "{lock} {holder}");
        }
    }
    assert!(queue_of(&mut client, "lock0").is_empty());
}

/// A write is queued in the transaction, so the server holds `EXEC` back until the pause is over.
#[test]
fn a_place_is_taken_in_a_transaction_that_a_pause_holds_back() {
    let (server, mut client) = held();
    let mut observer = server.client();
    observer.cmd("CLIENT PAUSE 60000 WRITE");
    client.send_all(&["MULTI", ASK, "LOCK.RELEASE k alice", ASK, "EXEC"]);
    eventually("it is held back", || match observer.info_number("clients", "blocked_clients") {
        1 => Ok(()),
        other => Err(other),
    });
    assert!(queue(&mut observer).is_empty());
    observer.cmd("CLIENT UNPAUSE");
    for _ in 0..4 {
        client.receive();
    }
    let Value::Array(replies) = client.receive() else { panic!("no replies") };
    assert_eq!(replies[..2], [Value::Nil, int(1)]);
    assert!(matches!(replies[2], Value::Int(1..)), "{replies:?}");
}

#[test]
fn tickets_end_and_are_granted_when_a_pause_is_over() {
    let (server, mut client) = held();
    assert_eq!(asked(&mut client, by_ticket("brief", 10)), None);
    queue_up(&mut client, "bob");
    let replies = client.pipeline(&["LOCK.EXTEND k alice 50", "CLIENT PAUSE 60000 WRITE"]);
    assert_eq!(replies, [int(1), Value::Okay]);
    let mut observer = server.client();
    eventually("the lease is over", || match observer.cmd("PTTL k") {
        Value::Int(..=0) => Ok(()),
        other => Err(other),
    });
    eventually("the other ticket has ended", || match queue(&mut observer) {
        queue if queue == ["ticket bob"] => Ok(()),
        queue => Err(queue),
    });
    observer.cmd("CLIENT UNPAUSE");
    until_held_by(&mut observer, "bob");
}
