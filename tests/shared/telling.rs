//! What the log, the events, the figures and the lists say of one of several holders.

use super::share;
use crate::observing::play;
use redis::Value;
use testkit::Server;

#[test]
fn what_becomes_of_each_of_several_holders_is_counted_published_and_noted() {
    play(
        "",
        "",
        "
        # who comes, asks again and goes as it should
        LOCK.ACQUIRE k r1 60000 SHARE 0 -> A | grants+1 held+1 | acquired
        LOCK.ACQUIRE k r2 60000 SHARE 0 -> B | grants+1 | acquired
        LOCK.ACQUIRE k r1 120000 SHARE 0 -> A | retries+1 | extended
        LOCK.EXTEND k r2 90000 -> 1 | extends+1 | extended
        LOCK.ACQUIRE k w 60000; LOCK.ACQUIRE k r1 60000 -> nil; nil | tries_refused+2 | -
        LOCK.RELEASE k r2 A; LOCK.RELEASE k r3 -> 0; 0 | releases_refused+2 | -
        LOCK.RELEASE k r1 -> 1 | releases+1 | released
        LOCK.ACQUIRE k r2 60000 -> C | | acquired
        r3: LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0 -> waits
        r4: LOCK.ACQUIRE k r4 60000 SHARE 0 BLOCK 0 -> waits
        LOCK.ACQUIRE k r2 120000 SHARE 0 -> C
        r3: -> D
        r4: -> E | | extended handed-off handed-off
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        LOCK.RELEASE k r2; LOCK.RELEASE k r4; LOCK.RELEASE k r3 -> 1; 1; 1
        w: -> W
        LOCK.RELEASE k w; LOCK.LOG -1 -> 1; (empty)
        INFO leasehold_expiries_with_waiters -> 0
        INFO leasehold_held -> 0
        # one whose lease ends is lost and late, and the others are not
        LOCK.ACQUIRE k long 60000 SHARE 2; LOCK.ACQUIRE k short 60000 SHARE 2 -> A; B
        next: LOCK.ACQUIRE k next 60000 SHARE 2 BLOCK 0 -> waits
        LOCK.EXTEND k short 20 -> 1
        next: -> C | | acquired acquired extended lost handed-off
        INFO leasehold_expiries_with_waiters -> 1
        LOCK.RELEASE k short -> 0 | | -
        INFO leasehold_releases_late -> 1
        LOCK.RELEASE k long; LOCK.RELEASE k next -> 1; 1 | | released released
        LOCK.LOG -1 -> late-release(short)
        # nor is anybody else late where nobody waits
        LOCK.ACQUIRE k long 60000 SHARE 2; LOCK.ACQUIRE k short 20 SHARE 2 -> A; B
        LOCK.HOLDERS k -> until long
        LOCK.EXTEND k short 60000; LOCK.EXTEND k long 60000 -> 0; 1
        INFO leasehold_extends_late -> 1
        LOCK.LOG -1 -> late-extend(short)
        # the lease of one ends, and a writer waits on for the others
        LOCK.ACQUIRE k long 60000 SHARE 0; LOCK.ACQUIRE k short 60000 SHARE 0 -> A; B
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        LOCK.EXTEND k short 20 -> 1
        INFO leasehold_expiries_with_waiters -> until 1
        w: -> waits
        # a shared lock that is deleted is lost to each of its holders
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        DEL k -> 1
        w: -> W
        LOCK.LOG -1 -> deleted(r2) deleted(r1)
        # one that is overwritten, too, and to none of those who left
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        LOCK.ACQUIRE k r3 60000 SHARE 0; LOCK.RELEASE k r3 -> C; 1
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        SET k stranger -> OK
        LOCK.LOG -1 -> until overwritten(r2) overwritten(r1)
        w: -> waits
        # LOCK.INFO is of the oldest, and the lists are of all
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 7 -> A; B
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        r3: LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0 -> waits
        LOCK.INFO k; LOCK.INFO k; LOCK.WAITERS k -> …owner r1; …holders 2 share 7; w r3
        LOCK.RELEASE k r1; LOCK.INFO k -> 1; …owner r2
        ",
    );
}

#[test]
fn a_shared_lock_is_replicated_in_its_place() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    share(&mut client, "r1", 60_000, 0).unwrap();
    share(&mut client, "r2", 60_000, 0).unwrap();
    assert!(client.extend("k", "r1", 60_000) && client.release("k", "r2"));
    assert!(client.release("k", "r1"));
    let lines = testkit::aof::lines(&server);
    let commands: Vec<_> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
    let of_holds = |command: &&&str| **command != "SELECT";
    let commands: Vec<_> = commands.iter().filter(of_holds).copied().collect();
    assert_eq!(
        commands,
        ["SET", "APPEND", "PEXPIREAT", "SETRANGE", "PEXPIREAT", "SETRANGE", "PEXPIREAT", "DEL"]
    );
}

#[test]
fn who_watches_a_shared_lock_notices_each_who_comes_changes_or_goes_and_nothing_else() {
    let server = Server::start();
    let (mut client, mut watching) = (server.client(), server.client());
    for owner in ["r1", "r2"] {
        share(&mut client, owner, 60_000, 0).unwrap();
    }
    for (request, is_noticed) in [
        ("LOCK.ACQUIRE k r3 60000 SHARE 0", true),
        ("LOCK.EXTEND k r3 90000", true),
        ("LOCK.ACQUIRE k r3 95000 SHARE 0", true),
        ("LOCK.ACQUIRE k r3 1 SHARE 0", false),
        ("LOCK.ACQUIRE k r3 60000 SHARE 4", true),
        ("LOCK.RAISE k r3 9", false),
        ("LOCK.RELEASE k r3", true),
        ("LOCK.RELEASE k r3", false),
        ("LOCK.ACQUIRE k w 60000", false),
        ("LOCK.HOLDERS k", false),
    ] {
        assert_eq!(watching.cmd("WATCH k"), Value::Okay);
        client.cmd(request);
        let seen = watching.pipeline(&["MULTI", "PING", "EXEC"]).pop();
        assert_eq!(seen == Some(Value::Nil), is_noticed, "{request}: {seen:?}");
    }
}
