//! Who may name a channel: whoever may publish there. That is asked at each request, and not at the grant.

use super::notifying::notified;
use super::{CHANNEL, LONG, held, lacks_notify, queue};
use crate::waiting::play;
use redis::Value;
use testkit::{Client, Server, bulk_text, error, field};

const DENIED: &str = "NOPERM this user has no permissions to access the channel given to NOTIFY";

/// A connection of the user `worker`, who may do this.
fn log_in(server: &Server, rules: &str) -> Client {
    server.user("worker", &format!("+@all ~* {rules}"))
}

/// The latest entry of `ACL LOG`: what was denied, and to whom.
#[track_caller]
fn assert_latest_denial_is_the_channel(server: &Server) {
    let Value::Array(entries) = server.cmd("ACL LOG 1") else { panic!("no list") };
    let entry = entries.first().expect("the log is empty");
    let told = ["reason", "object", "username"].map(|name| bulk_text(field(entry, name).unwrap()));
    assert_eq!(told, ["channel", CHANNEL, "worker"]);
    server.cmd("ACL LOG RESET");
}

#[test]
fn a_channel_is_refused_to_who_may_not_publish_there_and_nothing_changes() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    for rules in ["resetchannels", "resetchannels &other &grant", "resetchannels &grants?"] {
        let mut worker = log_in(&server, rules);
        assert_eq!(worker.cmd(notified("bob", LONG)), error(DENIED), "{rules}");
        assert_latest_denial_is_the_channel(&server);
        assert!(queue(&mut client).is_empty());
        // A lock that is free is not granted either: a request is allowed or it is not.
        let free = format!("LOCK.ACQUIRE free bob {LONG} TICKET {LONG} NOTIFY {CHANNEL}");
        assert_eq!(worker.cmd(&*free), error(DENIED));
        assert_eq!(client.info("free"), None);
    }
}

#[test]
fn a_channel_is_refused_inside_transactions_scripts_and_functions_too() {
    if lacks_notify() {
        return;
    }
    let (server, mut client) = held();
    let mut worker = log_in(&server, "resetchannels");
    let replies = worker.transaction(&["SET a 1", &notified("bob", LONG), "SET b 1"]);
    assert_eq!(replies, [Value::Okay, error(DENIED), Value::Okay]);
    assert_latest_denial_is_the_channel(&server);
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'TICKET', 60000, 'NOTIFY', 'grants')";
    let library =
        format!("#!lua name=locks\nredis.register_function('ask', function(KEYS) {script} end)");
    client.cmd(["FUNCTION", "LOAD", &library]);
    for call in [["EVAL", script, "1", "k"], ["FCALL", "ask", "1", "k"]] {
        assert_eq!(testkit::code(worker.cmd(call)), "NOPERM");
        assert_latest_denial_is_the_channel(&server);
    }
    assert!(queue(&mut client).is_empty());
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), Value::Nil, "and others may");
    assert_eq!(queue(&mut client), ["ticket bob"]);
}

const SESSIONS: &str = r#"
    # a channel is given to who may publish there, by name or pattern, with PUBLISH or without
    ACL SETUSER worker reset on nopass +@all ~* allchannels -> OK
    worker: AUTH worker any -> OK
    worker: LOCK.ACQUIRE k ba 60000 TICKET 60000 NOTIFY grants -> nil
    ACL SETUSER worker resetchannels &gr* -> OK
    worker: LOCK.ACQUIRE k bb 60000 TICKET 60000 NOTIFY grants -> nil
    ACL SETUSER worker resetchannels &grants -publish -> OK
    worker: LOCK.ACQUIRE k bc 60000 TICKET 60000 NOTIFY grants -> nil

    # a place stays as it is when its owner asks for a channel that is refused
    ACL SETUSER worker reset on nopass +@all ~* resetchannels &other -> OK
    worker: AUTH worker any -> OK
    sub: SUBSCRIBE other -> subscribe other 1
    worker: LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY other -> nil
    worker: LOCK.ACQUIRE k bob 60000 TICKET 1 NOTIFY grants -> -NOPERM
    LOCK.WAITERS k -> ticket(bob)
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    sub: -> message other {B} 3 bob k
    worker: LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> -NOPERM
    worker: LOCK.ACQUIRE k bob 60000 TICKET 60000 -> B

    # mistakes come before rights, and rights before the key
    RPUSH list x -> 1
    ACL SETUSER worker reset on nopass +@all ~* resetchannels -> OK
    worker: AUTH worker any -> OK
    worker: LOCK.ACQUIRE list bob 1 TICKET 0 NOTIFY grants -> -ERR
    ACL LOG -> (empty)
    worker: LOCK.ACQUIRE list bob 1 TICKET 1 NOTIFY grants -> -NOPERM

    # a right that is taken away is missed at the next request and not at the grant
    ACL SETUSER worker reset on nopass +@all ~* resetchannels &grants -> OK
    worker: AUTH worker any -> OK
    sub: SUBSCRIBE grants -> subscribe grants 1
    worker: LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    ACL SETUSER worker resetchannels -> OK
    worker: LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> -NOPERM
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    sub: -> message grants {B} 3 bob k

    # the place of a user that is deleted is kept
    ACL SETUSER worker reset on nopass +@all ~* resetchannels &grants -> OK
    worker: AUTH worker any -> OK
    sub: SUBSCRIBE grants -> subscribe grants 1
    worker: LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
    ACL DELUSER worker -> 1
    worker: -> closed
    LOCK.WAITERS k -> ticket(bob)
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    sub: -> message grants {B} 3 bob k
"#;

#[test]
fn the_right_to_a_channel_is_asked_for_at_each_request_and_not_at_the_grant() {
    if !lacks_notify() {
        play(Server::builder, SESSIONS);
    }
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
    let session = r#"# a module
        ACL SETUSER worker reset on nopass +@all ~* resetchannels -> OK
        worker: AUTH worker any -> OK
        sub: SUBSCRIBE grants -> subscribe grants 1
        worker: CALLER.CALL LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
        worker: MULTI: CALLER.CALL LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> nil
        worker: EVAL "return tostring(redis.call('CALLER.CALL', unpack(ARGV)))" 0 LOCK.ACQUIRE k bob 60000 TICKET 60000 NOTIFY grants -> false
        LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
        sub: -> message grants {B} 3 bob k"#;
    play(|| Server::builder().with_caller(), session);
}
