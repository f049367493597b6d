//! What a request by a ticket is refused with, and how many there may be.

use super::{LONG, asked, by_ticket, held, held_on, lacks_notify, queue, queue_up};
use redis::Value;
use testkit::errors::{
    KEY_TOO_LONG_TO_WAIT, OWNER_LENGTH, TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE, UNKNOWN_OPTION,
    WRONG_TYPE, wrong_arity,
};
use testkit::{Client, Server, Waiter, assert_each_is_refused, bulk, error, lacks, strings};

const SHARE_OUT_OF_RANGE: &str = "ERR SHARE must be an integer from 0 to 99999 (holders at a time)";
const BOTH: &str = "ERR BLOCK and TICKET cannot be combined";
const ALONE: &str = "ERR NOTIFY needs TICKET";
const OUT_OF_RANGE: &str =
    "ERR TICKET must be an integer from 1 to 86400000 (milliseconds, config leasehold.max-ttl)";
const CHANNEL_LENGTH: &str = "ERR channel must be 1 to 255 bytes long";
const FULL: &str = "QUEUEFULL too many tickets (config leasehold.max-tickets)";
const WAITERS_FULL: &str = "QUEUEFULL too many waiters (config leasehold.max-waiters)";

#[test]
fn mistakes_are_found_in_the_order_of_the_page() {
    let server = Server::builder().aof().start();
    server.cmd("RPUSH list x");
    let too_long = format!("LOCK.ACQUIRE {} a 1 TICKET 1", "k".repeat(4_097));
    // Each has one mistake less than the one before.
    assert_each_is_refused(
        &server,
        &[
            ("LOCK.ACQUIRE list \"\"", &wrong_arity("LOCK.ACQUIRE")),
            ("LOCK.ACQUIRE list \"\" 0 SHARE x BLOCK x TICKET 0 NOTIFY", OWNER_LENGTH),
            ("LOCK.ACQUIRE list a 0 SHARE x BLOCK x TICKET 0 NOTIFY", TTL_NOT_POSITIVE),
            ("LOCK.ACQUIRE list a 86400001 SHARE x BLOCK x TICKET 0 NOTIFY", TTL_ABOVE_LIMIT),
            ("LOCK.ACQUIRE list a 1 SHARE x BLOCK x TICKET 0 NOTIFY", UNKNOWN_OPTION),
            ("LOCK.ACQUIRE list a 1 SHARE x BLOCK x TICKET 0 NOTIFY \"\"", SHARE_OUT_OF_RANGE),
            ("LOCK.ACQUIRE list a 1 BLOCK x TICKET 0 NOTIFY \"\"", BOTH),
            ("LOCK.ACQUIRE list a 1 BLOCK x NOTIFY \"\"", ALONE),
            ("LOCK.ACQUIRE list a 1 TICKET 0 NOTIFY \"\"", OUT_OF_RANGE),
            ("LOCK.ACQUIRE list a 1 TICKET 1 NOTIFY \"\"", CHANNEL_LENGTH),
            (&too_long, KEY_TOO_LONG_TO_WAIT),
            ("LOCK.ACQUIRE list a 1 TICKET 1", WRONG_TYPE),
        ],
    );
    if !lacks_notify() {
        assert_each_is_refused(
            &server,
            &[("LOCK.ACQUIRE list a 1 TICKET 1 NOTIFY x SHARE 1", WRONG_TYPE)],
        );
    }
    assert_eq!(server.client().counter("tickets"), 0);
}

#[test]
fn the_words_are_taken_in_any_order_and_each_once() {
    let (_server, mut client) = held();
    let known = ["TICKET 5000 SHARE 1", "share 1 ticket 5000", "Ticket 5000"];
    for options in known {
        assert_eq!(client.cmd(format!("LOCK.ACQUIRE k bob 1 {options}")), Value::Nil, "{options}");
    }
    for options in [
        "TICKET",
        "TICKETS 1",
        "TICKET 1 TICKET 1",
        "TICKET 1 NOTIFY",
        "TICKET 1 NOTIFY x NOTIFY x",
        "NOTIFY x TICKET",
        "5 TICKET",
        "TICKET 1 SHARE 1 NOTIFY x BLOCK 1 TICKET 1",
        "TICKET 1 SHARE 1 NOTIFY x BLOCK 1 EVEN MORE WORDS",
    ] {
        let request = format!("LOCK.ACQUIRE k bob 1 {options}");
        assert_eq!(client.cmd(request), error(UNKNOWN_OPTION), "{options}");
    }
    let keys = client.cmd("COMMAND GETKEYS LOCK.ACQUIRE k bob 1 TICKET 5 NOTIFY NOTIFY");
    assert_eq!(keys, Value::Array(vec![bulk("k")]));
}

#[test]
fn a_ticket_lasts_from_one_millisecond_to_the_longest_ttl() {
    let (_server, mut client) = held();
    for wrong in [
        "",
        "0",
        "-1",
        "+1",
        "01",
        "1.0",
        "1e3",
        " 1",
        "86400001",
        "9223372036854775807",
        "18446744073709551617",
        "x",
    ] {
        let request = ["LOCK.ACQUIRE", "k", "bob", "1", "TICKET", wrong];
        assert_eq!(client.cmd(request), error(OUT_OF_RANGE), "{wrong:?}");
    }
    assert!(queue(&mut client).is_empty());
    assert_eq!(asked(&mut client, "LOCK.ACQUIRE k bob 1 TICKET 86400000"), None);
    assert_eq!(asked(&mut client, "LOCK.ACQUIRE k bob 86400000 TICKET 1"), None);
}

#[test]
fn the_longest_ticket_follows_the_setting_for_the_longest_ttl() {
    let (_server, mut client) = held_on(Server::builder().module_args("max-ttl 60000"));
    let text = OUT_OF_RANGE.replace("86400000", "60000");
    assert_eq!(client.cmd("LOCK.ACQUIRE k bob 1 TICKET 60001"), error(&text));
    assert_eq!(asked(&mut client, "LOCK.ACQUIRE k bob 60000 TICKET 60000"), None);
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    // The grant has no longer lease than is allowed by then.
    assert_eq!(client.cmd("CONFIG SET leasehold.max-ttl 1000"), Value::Okay);
    assert!(client.release("k", "alice"));
    if client.check("k", "bob").is_some() {
        assert!(super::left(&mut client) <= 1_000 + super::ROUNDING);
    }
}

#[test]
fn a_channel_has_at_most_255_bytes() {
    if lacks_notify() {
        return;
    }
    let (_server, mut client) = held();
    let mut asks = |length: usize| {
        let channel = "c".repeat(length);
        client.cmd(["LOCK.ACQUIRE", "k", "bob", "1", "TICKET", "60000", "NOTIFY", &channel])
    };
    assert_eq!(asks(256), error(CHANNEL_LENGTH));
    assert_eq!(asks(0), error(CHANNEL_LENGTH));
    assert_eq!(asks(255), Value::Nil);
    assert_eq!(asks(1), Value::Nil);
}

#[test]
fn notify_is_refused_where_the_server_does_not_tell_what_a_user_may_do() {
    let (_server, mut client) = held();
    let request = format!("{} NOTIFY c", by_ticket("bob", LONG));
    if testkit::is_older_than((7, 0)) {
        let text = "ERR NOTIFY is not possible on this server, which does not tell modules what a user may do";
        assert_eq!(client.cmd(&*request), error(text));
        assert!(queue(&mut client).is_empty());
    } else {
        assert_eq!(client.cmd(&*request), Value::Nil);
    }
    queue_up(&mut client, "bob");
}

#[track_caller]
fn asks_for(client: &mut Client, key: &str, owner: &str) -> Value {
    client.cmd(format!("LOCK.ACQUIRE {key} {owner} {LONG} TICKET {LONG}"))
}

#[test]
fn no_more_tickets_are_kept_than_the_limit_and_renewing_needs_no_room() {
    let (_server, mut client) = held_on(Server::builder().module_args("max-tickets 2"));
    client.grant("l", "alice", LONG);
    for key in ["k", "l"] {
        assert_eq!(asks_for(&mut client, key, "bob"), Value::Nil);
    }
    for key in ["k", "l"] {
        assert_eq!(asks_for(&mut client, key, "carol"), error(FULL));
        assert_eq!(asks_for(&mut client, key, "bob"), Value::Nil, "it has its place");
        assert_eq!(client.acquire(key, "carol", LONG), None, "a try is not refused");
    }
    assert_eq!(asks_for(&mut client, "k", "*"), error(FULL));
    assert!(matches!(asks_for(&mut client, "free", "carol"), Value::Int(1..)));
    assert!(matches!(asks_for(&mut client, "free", "carol"), Value::Int(1..)), "it holds it");
    assert_eq!(client.counter("queue_full"), 3);
    assert!(!client.release("l", "bob"));
    assert_eq!(asks_for(&mut client, "k", "carol"), Value::Nil);
    assert!(client.release("k", "alice"));
    assert_eq!(asks_for(&mut client, "l", "dave"), Value::Nil, "a grant leaves room");
}

#[test]
fn those_who_wait_on_a_connection_and_those_with_tickets_have_limits_of_their_own() {
    let (server, mut client) =
        held_on(Server::builder().module_args("max-tickets 1 max-waiters 1"));
    queue_up(&mut client, "ticket");
    let mut blocked = Waiter::of(&server, "k", "block");
    assert_eq!(asks_for(&mut client, "k", "other"), error(FULL));
    assert_eq!(client.cmd("LOCK.ACQUIRE k other 60000 BLOCK 5"), error(WAITERS_FULL));
    // To change from one way to the other takes room, and whoever is refused stays where it is.
    assert_eq!(asks_for(&mut client, "k", "block"), error(FULL));
    assert_eq!(client.cmd("LOCK.ACQUIRE k ticket 60000 BLOCK 5"), error(WAITERS_FULL));
    assert_eq!(queue(&mut client), ["ticket ticket", "block block"]);
    blocked.assert_waits(&server);
    assert!(client.release("k", "alice"));
    assert_eq!(asks_for(&mut client, "k", "block"), Value::Nil, "there is room now");
    assert!(matches!(blocked.reply(), Value::ServerError(told) if told.code() == "REPLACED"));
    let _other = Waiter::of(&server, "k", "other");
    assert_eq!(queue(&mut client), ["ticket block", "block other"]);
}

#[test]
fn the_limits_for_waiters_are_not_for_tickets() {
    let args = "max-waiters 0 max-waiters-per-lock 0";
    let (_server, mut client) = held_on(Server::builder().module_args(args));
    for number in 0..100 {
        queue_up(&mut client, &format!("w{number}"));
    }
    assert_eq!(client.counter("tickets"), 100);
}

#[test]
fn where_no_tickets_are_kept_a_free_lock_is_granted_and_a_holder_answered() {
    let (_server, mut client) = held_on(Server::builder().module_args("max-tickets 0"));
    assert_eq!(asks_for(&mut client, "k", "bob"), error(FULL));
    assert!(matches!(asks_for(&mut client, "k", "alice"), Value::Int(1..)));
    assert!(matches!(asks_for(&mut client, "free", "bob"), Value::Int(1..)));
}

#[test]
fn the_limit_can_be_changed_while_the_server_runs() {
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    let (_server, mut client) = held();
    let shown = client.cmd("CONFIG GET leasehold.max-tickets");
    assert_eq!(strings(&shown), ["leasehold.max-tickets", "100000"]);
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert_eq!(client.cmd("CONFIG SET leasehold.max-tickets 0"), Value::Okay);
    assert_eq!(asks_for(&mut client, "k", "dave"), error(FULL));
    queue_up(&mut client, "carol");
    assert_eq!(queue(&mut client), ["ticket bob", "ticket carol"], "nobody is sent away");
    assert_eq!(client.cmd("CONFIG SET leasehold.max-tickets 3"), Value::Okay);
    queue_up(&mut client, "dave");
    for refused in ["-1", "1000001", "x"] {
        let reply = client.cmd(format!("CONFIG SET leasehold.max-tickets {refused}"));
        assert!(matches!(reply, Value::ServerError(_)), "{refused}: {reply:?}");
    }
}

#[test]
fn a_server_that_is_out_of_memory_keeps_no_more_tickets_and_grants_those_that_it_keeps() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert_eq!(client.cmd("CONFIG SET maxmemory 1"), Value::Okay);
    for owner in ["bob", "carol"] {
        let Value::ServerError(told) = asks_for(&mut client, "k", owner) else { panic!("{owner}") };
        assert_eq!(told.code(), "OOM");
    }
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert!(client.release("k", "alice"));
    assert!(client.check("k", "bob").is_some());
}
