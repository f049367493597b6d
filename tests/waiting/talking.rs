//! What else goes over the connection of one that waits.

use super::{LONG, Waiter, id_of, owners, wait_until_parked};
use redis::Value;
use testkit::{Server, bulk, eventually, int, is_valkey_since, strings};

#[test]
fn commands_behind_the_request_are_executed_after_its_reply() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = server.client();
    let id = id_of(&mut bob);
    bob.send_bytes(
        b"SET before 1\r\nLOCK.ACQUIRE k bob 60000 BLOCK 0\r\nSET behind 1\r\nLOCK.CHECK k bob\r\n",
    );
    wait_until_parked(&server, id);
    assert_eq!(client.cmd("EXISTS before"), int(1));
    bob.send_bytes(b"LOCK.RELEASE k bob\r\nECHO last\r\n");
    assert_eq!(client.cmd("EXISTS behind"), int(0));
    client.release("k", "alice");
    assert_eq!(bob.receive(), Value::Okay);
    let fence = bob.receive();
    assert!(matches!(fence, Value::Int(1..)), "{fence:?}");
    assert_eq!(bob.receive(), Value::Okay);
    assert_eq!([bob.receive(), bob.receive(), bob.receive()], [fence, int(1), bulk("last")]);
}

#[test]
fn several_requests_that_wait_may_stand_in_one_pipeline() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["a", "b", "c"] {
        client.grant(key, "alice", LONG);
    }
    let mut bob = server.client();
    let id = id_of(&mut bob);
    bob.send_bytes(
        b"LOCK.ACQUIRE a bob 60000 BLOCK 0\r\nLOCK.ACQUIRE b bob 60000 BLOCK 20\r\n\
          LOCK.ACQUIRE c bob 60000 BLOCK 0\r\n",
    );
    wait_until_parked(&server, id);
    assert_eq!((owners(&server, "a").len(), owners(&server, "b").len()), (1, 0));
    client.release("a", "alice");
    assert!(matches!(bob.receive(), Value::Int(1..)));
    assert_eq!(bob.receive(), Value::Nil);
    client.release("c", "alice");
    assert!(matches!(bob.receive(), Value::Int(1..)));
}

#[test]
fn a_waiter_that_wants_no_replies_is_granted_the_lock_in_silence() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    for (mute, unmute) in [("CLIENT REPLY OFF", "CLIENT REPLY ON"), ("CLIENT REPLY SKIP", "PING")] {
        let mut bob = server.client();
        let id = id_of(&mut bob);
        bob.send(mute);
        bob.send("LOCK.ACQUIRE k bob 60000 BLOCK 0");
        wait_until_parked(&server, id);
        let carol = Waiter::of(&server, "k", "carol");
        client.release("k", "alice");
        let fence = eventually("bob has the lock", || client.check("k", "bob").ok_or(()));
        // Nobody may take it for a grant that was not heard.
        carol.assert_waits(&server);
        bob.send(unmute);
        assert!(matches!(bob.receive(), Value::Okay | Value::SimpleString(_)), "the first reply");
        assert_eq!(bob.check("k", "bob"), Some(fence));
        drop(carol);
        eventually("carol has left", || match owners(&server, "k").len() {
            0 => Ok(()),
            left => Err(left),
        });
        client.release("k", "bob");
        client.grant("k", "alice", LONG);
    }
}

#[test]
fn a_waiter_that_wants_no_replies_gives_up_in_silence() {
    let server = Server::start();
    server.client().grant("k", "alice", LONG);
    let mut bob = server.client();
    bob.send("CLIENT REPLY OFF");
    bob.send("LOCK.ACQUIRE k bob 60000 BLOCK 20");
    bob.send("CLIENT REPLY ON");
    assert_eq!(bob.receive(), Value::Okay);
    assert_eq!(bob.cmd("ECHO next"), bulk("next"));
}

#[test]
fn a_waiter_is_told_of_invalidated_keys_while_it_waits() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = server.client_resp3();
    assert_eq!(bob.cmd("CLIENT TRACKING ON"), Value::Okay);
    bob.cmd("GET cached");
    let mut bob = Waiter::sends_on(bob, &server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    client.cmd("SET cached new");
    let Value::Push { data, .. } = bob.reply() else { panic!("no message") };
    assert_eq!(strings(&data[0]), ["cached"]);
    bob.assert_waits(&server);
    client.release("k", "alice");
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence));
}

#[test]
fn a_waiter_is_told_of_the_lock_itself_before_its_grant() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = server.client_resp3();
    bob.cmd("CLIENT TRACKING ON");
    bob.cmd("LOCK.INFO k");
    let mut bob = Waiter::sends_on(bob, &server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    client.release("k", "alice");
    let mut messages = 0;
    let fence = loop {
        match bob.reply() {
            Value::Push { data, .. } => {
                assert_eq!(strings(&data[0]), ["k"]);
                messages += 1;
            }
            reply => break reply,
        }
    };
    assert!(matches!(fence, Value::Int(1..)), "{fence:?}");
    assert_ne!(messages, 0, "it was not told that the lock changed");
}

#[test]
fn a_subscriber_that_waits_gets_its_messages_meanwhile() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = server.client_resp3();
    bob.cmd("SUBSCRIBE news");
    if is_valkey_since((8, 1)) {
        return; // It gets an error, see `contexts`.
    }
    let mut bob = Waiter::sends_on(bob, &server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    assert_eq!(client.cmd("PUBLISH news hello"), int(1));
    let Value::Push { data, .. } = bob.reply() else { panic!("no message") };
    assert_eq!(data[1], bulk("hello"));
    client.release("k", "alice");
    bob.fence();
}

#[test]
fn a_waiter_may_speak_either_protocol() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut two = Waiter::sends(&server, "LOCK.ACQUIRE k * 60000 BLOCK 0");
    let three = server.client_resp3();
    let mut three = Waiter::sends_on(three, &server, "LOCK.ACQUIRE k * 60000 BLOCK 0");
    let mut giving_up = server.client_resp3();
    assert_eq!(giving_up.cmd("LOCK.ACQUIRE k * 60000 BLOCK 5"), Value::Nil);
    client.release("k", "alice");
    for waiter in [&mut two, &mut three] {
        let reply = waiter.reply();
        let Value::Array(parts) = &reply else { panic!("{reply:?}") };
        let [Value::BulkString(owner), Value::Int(1..)] = &parts[..] else { panic!("{reply:?}") };
        assert!(client.release("k", owner));
    }
}
