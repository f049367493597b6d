//! Mistakes, in the order of the page, and how many may wait.

use super::{asks, takes, waits};
use redis::Value;
use testkit::{Server, Session};

#[test]
fn the_option_is_in_any_letters_at_any_place_and_names_may_be_called_like_it() {
    Session::play(
        &Server::start(),
        "
        # in any letters
        LOCK.ACQUIRE a o 60000 also 2 b c SHARE 3 BLOCK 5; LOCK.RELEASE a o aLSO 2 b c -> A; 3
        LOCK.ACQUIRE a o 60000 SHARE 3 Also 2 b c BLOCK 5; LOCK.RELEASE a o ALSO 2 b c -> B; 3
        LOCK.ACQUIRE a o 60000 BLOCK 5 SHARE 3 aLSO 2 b c; LOCK.RELEASE a o ALSO 2 b c -> C; 3
        # locks and owners
        LOCK.ACQUIRE ALSO ALSO 60000 ALSO 3 BLOCK 2 SHARE -> A
        LOCK.CHECK ALSO ALSO; LOCK.CHECK BLOCK ALSO; LOCK.CHECK 2 ALSO; LOCK.CHECK SHARE ALSO -> A; A; A; A
        LOCK.RELEASE ALSO ALSO ALSO 3 SHARE 2 BLOCK -> 4
        # mistakes are named, and nothing is granted
        LOCK.ACQUIRE a o 5 ALSO 01 b; LOCK.RELEASE a o ALSO -> -ERR numkeys must be an integer from 1 to 128; -ERR numkeys must…
        LOCK.ACQUIRE a o 5 ALSO 3 b c; LOCK.EXTEND a o 5 6 ALSO 2 b -> -ERR numkeys is larger than the number of keys; -ERR numkeys is…
        LOCK.ACQUIRE a o 5 ALSO 3 b c a BLOCK x; LOCK.RELEASE a o 5 ALSO 1 a -> -ERR a key is named twice; -ERR a key is named twice
        LOCK.ACQUIRE a o 5 ALSO 1 b ALSO 1 c; LOCK.CHECK a o ALSO 1 b -> -ERR unknown option…; -ERR wrong number…
        LOCK.ACQUIRE a o 5 TICKET 5 NOTIFY also ALSO 1 b; DBSIZE -> -ERR channel must not be called ALSO; 0
        ",
    );
}

#[test]
fn one_who_waits_for_several_has_a_place_for_each_and_one_connection() {
    for (limits, keys, full) in [
        ("max-waiters 7", &["a", "b"][..], Some("max-waiters)")),
        ("max-waiters 7", &["a"], None),
        // Two of the 40 connections that there may be.
        ("max-waiters 7 max-waiters-percent 5", &["a"], Some("max-waiters-percent)")),
    ] {
        let server = Server::builder().config("maxclients", "40").module_args(limits).start();
        let mut client = server.client();
        takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
        let _first = waits(&server, "r0", &["a", "b", "c"]);
        let _second = waits(&server, "r1", &["a", "b", "c"]);
        assert_eq!(client.counter("waiters"), 2);
        let Some(full) = full else {
            waits(&server, "r2", keys).assert_waits(&server);
            continue;
        };
        let reply = client.cmd(format!("{} BLOCK 0", asks("r2", keys)));
        let Value::ServerError(told) = reply else { panic!("{limits}: {reply:?}") };
        assert_eq!(told.code(), "QUEUEFULL");
        assert!(told.details().unwrap().ends_with(full), "{limits}: {told:?}");
    }
}

#[test]
fn a_full_queue_of_one_of_them_is_full_for_the_request() {
    Session::play(
        &Server::builder().module_args("max-waiters-per-lock 1").start(),
        "
        # and nobody waits for the others
        LOCK.ACQUIRE a alice 60000 ALSO 1 b -> A
        r0: LOCK.ACQUIRE b r0 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE a r1 60000 ALSO 1 b BLOCK 0; LOCK.WAITERS a -> -QUEUEFULL; (empty)
        ",
    );
}

#[test]
fn a_ticket_for_several_counts_once_for_each() {
    Session::play(
        &Server::builder().module_args("max-tickets 4").start(),
        "
        # who asks again has its places
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c; LOCK.ACQUIRE a r0 60000 ALSO 2 b c TICKET 60000 -> A; nil
        INFO leasehold_tickets -> 3
        LOCK.ACQUIRE a r1 60000 ALSO 1 b TICKET 60000; LOCK.ACQUIRE a r1 60000 TICKET 60000 -> -QUEUEFULL; nil
        LOCK.ACQUIRE c r0 60000 ALSO 2 b a TICKET 60000 -> nil
        INFO leasehold_tickets -> 4
        LOCK.RELEASE b r0 -> 0
        INFO leasehold_tickets -> 1
        ",
    );
}
