//! Who may name a channel: whoever may publish there. That is asked at each request, and not at the grant.

use super::notifying::notified;
use super::{
    CHANNEL, LONG, Subscriber, asked, by_ticket, held, held_on, lacks_notify, notice, queue,
    queue_up, until_held_by,
};
use redis::Value;
use testkit::{Client, Server, bulk, bulk_text, error, field, int};

const DENIED: &str = "NOPERM this user has no permissions to access the channel given to NOTIFY";

/// A connection of the user `worker`, who may do this.
fn log_in(server: &Server, rules: &str) -> Client {
    let words = format!("ACL SETUSER worker reset on nopass +@all ~* {rules}");
    assert_eq!(server.cmd(words.trim_end()), Value::Okay, "{rules}");
    let mut client = server.client();
    assert_eq!(client.cmd("AUTH worker x"), Value::Okay);
    client
}

/// The latest entry of `ACL LOG`: what was denied, and to whom.
#[track_caller]
fn latest_denial(server: &Server) -> (String, String, String) {
    let Value::Array(entries) = server.cmd("ACL LOG 1") else { panic!("no list") };
    let entry = entries.first().expect("the log is empty");
    let text = |name| bulk_text(field(entry, name).unwrap());
    (text("reason"), text("object"), text("username"))
}

#[test]
fn a_channel_is_refused_to_who_may_not_publish_there_and_nothing_changes() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    for rules in ["resetchannels", "resetchannels &other &grant", "resetchannels &grants?"] {
        let mut worker = log_in(&server, rules);
        server.cmd("ACL LOG RESET");
        assert_eq!(worker.cmd(notified("bob", LONG)), error(DENIED), "{rules}");
        let expected = ["channel", CHANNEL, "worker"].map(str::to_owned);
        assert_eq!(latest_denial(&server), expected.into(), "{rules}");
        assert!(queue(&mut client).is_empty());
        // A lock that is free is not granted either: a request is allowed or it is not.
        let free = format!("LOCK.ACQUIRE free bob {LONG} TICKET {LONG} NOTIFY {CHANNEL}");
        assert_eq!(worker.cmd(&*free), error(DENIED));
        assert_eq!(client.info("free"), None);
        assert_eq!(worker.cmd(by_ticket("bob", LONG)), Value::Nil, "without a channel it may");
        assert!(!client.release("k", "bob"));
    }
}

#[test]
fn a_channel_is_given_to_who_may_publish_there() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    for rules in ["allchannels", "resetchannels &grants", "resetchannels &gr*"] {
        let mut worker = log_in(&server, rules);
        assert_eq!(worker.cmd(notified("bob", LONG)), Value::Nil, "{rules}");
        assert!(!client.release("k", "bob"));
    }
    // The right is to the channel, and not to the command PUBLISH.
    let mut worker = log_in(&server, "&grants -publish");
    assert_eq!(worker.cmd(notified("bob", LONG)), Value::Nil);
}

#[test]
fn a_place_stays_as_it_is_when_its_owner_asks_for_a_channel_that_is_refused() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut worker = log_in(&server, "resetchannels &other");
    let mut subscriber = Subscriber::to(&server, "other");
    let ask = format!("{} NOTIFY other", by_ticket("bob", LONG));
    assert_eq!(worker.cmd(&*ask), Value::Nil);
    assert_eq!(worker.cmd(notified("bob", 1)), error(DENIED));
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    assert_eq!(subscriber.messages(), [notice(fence, b"bob", b"k")]);
    assert_eq!(worker.cmd(notified("bob", LONG)), error(DENIED), "nor may it claim it so");
    assert_eq!(asked(&mut worker, by_ticket("bob", LONG)), Some(fence));
}

#[test]
fn a_channel_is_refused_inside_transactions_and_scripts_too() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut worker = log_in(&server, "resetchannels");
    let ask = notified("bob", LONG);
    let replies = worker.transaction(&["SET a 1", &ask, "SET b 1"]);
    assert_eq!(replies, [Value::Okay, error(DENIED), Value::Okay]);
    assert_eq!(latest_denial(&server).2, "worker");
    server.cmd("ACL LOG RESET");
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'TICKET', 60000, 'NOTIFY', 'grants')";
    let Value::ServerError(told) = worker.cmd(["EVAL", script, "1", "k"]) else {
        panic!("not refused")
    };
    assert_eq!(told.code(), "NOPERM");
    assert_eq!(latest_denial(&server).1, CHANNEL);
    assert_eq!(latest_denial(&server).2, "worker");
    let library =
        format!("#!lua name=locks\nredis.register_function('ask', function(KEYS) {script} end)");
    assert_eq!(client.cmd(["FUNCTION", "LOAD", &library]), bulk("locks"));
    let Value::ServerError(told) = worker.cmd("FCALL ask 1 k") else { panic!("not refused") };
    assert_eq!(told.code(), "NOPERM");
    assert!(queue(&mut client).is_empty());
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), Value::Nil, "and others may");
    assert_eq!(queue(&mut client), ["ticket bob"]);
}

#[test]
fn mistakes_come_before_rights_and_rights_before_the_key() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    client.cmd("RPUSH list x");
    let mut worker = log_in(&server, "resetchannels");
    server.cmd("ACL LOG RESET");
    let wrong = "LOCK.ACQUIRE list bob 1 TICKET 0 NOTIFY grants";
    let Value::ServerError(told) = worker.cmd(wrong) else { panic!("not refused") };
    assert_eq!(told.code(), "ERR");
    assert_eq!(server.cmd("ACL LOG"), Value::Array(Vec::new()));
    assert_eq!(worker.cmd("LOCK.ACQUIRE list bob 1 TICKET 1 NOTIFY grants"), error(DENIED));
}

#[test]
fn a_right_that_is_taken_away_is_missed_at_the_next_request_and_not_at_the_grant() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut worker = log_in(&server, "resetchannels &grants");
    let mut subscriber = Subscriber::on(&server);
    assert_eq!(worker.cmd(notified("bob", LONG)), Value::Nil);
    server.cmd("ACL SETUSER worker resetchannels");
    assert_eq!(worker.cmd(notified("bob", LONG)), error(DENIED));
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    assert_eq!(subscriber.messages(), [notice(fence, b"bob", b"k")]);
}

#[test]
fn the_place_of_a_user_that_is_deleted_is_kept_until_its_ticket_ends() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut worker = log_in(&server, "resetchannels &grants");
    let mut subscriber = Subscriber::on(&server);
    assert_eq!(worker.cmd(notified("bob", LONG)), Value::Nil);
    assert_eq!(client.cmd("ACL DELUSER worker"), int(1));
    worker.assert_closed();
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert!(client.release("k", "alice"));
    let fence = until_held_by(&mut client, "bob");
    assert_eq!(subscriber.messages(), [notice(fence, b"bob", b"k")]);
}

#[test]
fn a_user_that_deletes_itself_in_the_transaction_that_asks_has_no_right_to_a_channel_any_more() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    server.cmd("ACL SETUSER default resetchannels");
    let mut worker = log_in(&server, "resetchannels &grants");
    worker.send_all(&["MULTI", "ACL DELUSER worker", &notified("bob", LONG), "EXEC"]);
    while worker.try_receive().is_ok() {}
    assert!(queue(&mut client).is_empty());
}

/// Another module asks as nobody: the server has no user for it, and it may do everything.
#[test]
fn another_module_may_name_any_channel() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held_on(Server::builder().with_caller());
    let mut subscriber = Subscriber::on(&server);
    let mut worker = log_in(&server, "resetchannels");
    let ask = format!("CALLER.CALL {}", notified("bob", LONG));
    assert_eq!(worker.cmd(&*ask), Value::Nil);
    assert_eq!(worker.transaction(&[&ask]), [Value::Nil]);
    let script = "return tostring(redis.call('CALLER.CALL', unpack(ARGV)))";
    let words = notified("bob", LONG);
    let words: Vec<_> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let eval = [b"EVAL".to_vec(), script.as_bytes().to_vec(), b"0".to_vec()];
    assert_eq!(worker.cmd([&eval[..], &words].concat()), bulk("false"));
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    assert_eq!(subscriber.messages(), [notice(fence, b"bob", b"k")]);
}
