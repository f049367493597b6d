//! To which connection a hold is bound, and to which no more. What all orders of these come to is found in the simulation.

use super::bindings;
use redis::Value;
use testkit::{Server, Session, becomes};

/// What is bound last to a connection is freed last. Commands show what is to be freed as free, but EXISTS.
const BINDINGS: &str = "
# who asks again without the option stays bound as before
alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
LOCK.ACQUIRE k alice 120000 -> A
alice: leaves
EXISTS k -> until 0
# a release ends the binding and the next grant is not bound
alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
LOCK.RELEASE k alice -> 1
INFO leasehold_bindings -> 0
LOCK.ACQUIRE k alice 60000 -> B
alice: LOCK.ACQUIRE last alice 60000 EPHEMERAL 0 -> C
alice: leaves
EXISTS last -> until 0
LOCK.CHECK k alice -> B
# a binding is forgotten soon after the lease ran out
alice: LOCK.ACQUIRE k alice 30 EPHEMERAL 0; LOCK.ACQUIRE longer alice 30 EPHEMERAL 0 -> A; B
LOCK.EXTEND longer alice 60000 -> 1
INFO leasehold_bindings -> until 1
LOCK.RELEASE longer alice -> 1
INFO leasehold_bindings -> 0
# two holders of one lock, also with the same fence, are two
a: LOCK.ACQUIRE k a 60000 SHARE 0 EPHEMERAL 0 -> A
b: LOCK.ACQUIRE k b 60000 SHARE 0 EPHEMERAL 0 -> B
LOCK.RAISE k a B+1000; LOCK.RAISE k b B+1000 -> C; C
INFO leasehold_bindings -> 2
w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
a: leaves
LOCK.HOLDERS k -> until b
w: -> waits
b: leaves
w: -> W
# one who waited is bound when it is granted the lock
LOCK.ACQUIRE k first 60000 -> A
alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 BLOCK 0 -> waits
INFO leasehold_bindings -> 0
LOCK.RELEASE k first -> 1
alice: -> B
INFO leasehold_bindings -> 1
alice: leaves
EXISTS k -> until 0
# a transaction binds to the connection that executes it
alice: MULTI; LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> OK; QUEUED
alice: LOCK.ACQUIRE other alice 60000 EPHEMERAL 0; EXEC -> QUEUED; …
INFO leasehold_bindings -> 2
alice: leaves
EXISTS k -> until 0
EXISTS other -> until 0
# a foreign lock is not bound
SET k alice PX 60000 -> OK
alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0; LOCK.ACQUIRE last alice 60000 EPHEMERAL 0 -> 0; A
INFO leasehold_bindings -> 1
alice: leaves
EXISTS last -> until 0
LOCK.CHECK k alice -> 0
# who asks again within the grace has the same fence and the full ttl
former: LOCK.ACQUIRE k alice 60000 EPHEMERAL 20000 -> A
former: leaves
PTTL k -> until 1..20000
present: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
KEEPS
present: leaves
LOCK.INFO k -> until nil
# an extension from elsewhere lengthens the lease and binds nothing, also if it comes after the end of the connection
alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 20000 -> A
elsewhere: LOCK.EXTEND k alice 60000 -> 1
elsewhere: leaves
KEEPS
alice: leaves
PTTL k -> until 1..20000
LOCK.EXTEND k alice 60000 -> 1
KEEPS
# a command that comes in one packet with the end of the connection finds the lock as it is then
alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0; LOCK.ACQUIRE later alice 60000 EPHEMERAL 20000 -> A; B
LOCK.CHECK k alice; CLIENT KILL ID {alice}; LOCK.CHECK k alice; LOCK.INFO k; LOCK.EXTEND k alice 60000; LOCK.ACQUIRE k bob 60000; LOCK.EXTEND later alice 60000 -> A; 1; nil; nil; 0; C; 1
3 ms pass
PTTL later -> 30001..60000
# a transaction that frees the lock tells nobody, so that the grant comes about within the request of the owner
LOCK.ACQUIRE k bob 60000 -> A
alice: LOCK.ACQUIRE k alice 60000 TICKET 60000 EPHEMERAL 0 -> nil
CLIENT KILL ID {alice} -> 1
MULTI: DEL k; LOCK.ACQUIRE k alice 60000 -> 1; B
3 ms pass
LOCK.CHECK k alice; LOCK.RELEASE k alice; LOCK.ACQUIRE k bob 60000 -> B; 1; C
carol: LOCK.ACQUIRE k carol 60000 TICKET 60000 EPHEMERAL 0 ALSO 1 other -> nil
CLIENT KILL ID {carol} -> 1
MULTI: DEL k; LOCK.ACQUIRE k carol 60000 ALSO 1 other -> 1; D
3 ms pass
LOCK.CHECK k carol; LOCK.CHECK other carol -> D; D
# a script has no connection
EVAL \"SCRIPT\" 1 k -> NO_CONNECTION
EXISTS k -> 0
";

const NO_CONNECTION: &str = "ERR EPHEMERAL is not possible in a script or a call of another module, which have no connection";

#[test]
fn a_hold_is_bound_to_the_connection_on_which_its_owner_last_asked_for_that() {
    let words = "'LOCK.ACQUIRE', KEYS[1], 'alice', 60000, 'EPHEMERAL', 0, 'BLOCK', 0";
    let script = format!("return redis.pcall({words})");
    let text = BINDINGS.replace("SCRIPT", &script);
    plays(&text.replace("NO_CONNECTION", &format!("-{NO_CONNECTION}")));
}

/// Whatever is due has been done when some time has passed. Then alice keeps the lock, with nearly all of the ttl left.
const KEEPS: &str = "
3 ms pass
LOCK.CHECK k alice -> A
PTTL k -> 30001..60000
";

fn plays(text: &str) {
    Session::play(&Server::start(), &text.replace("KEEPS", KEEPS));
}

#[test]
fn who_asks_again_before_the_former_connection_ends_keeps_the_lock_when_it_does() {
    plays(
        "
        # on another connection
        former: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
        present: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A
        INFO leasehold_bindings -> 1
        former: leaves
        KEEPS
        present: leaves
        LOCK.INFO k -> until nil
        ",
    );
}

#[test]
fn a_binding_frees_no_other_grant_than_its_own() {
    let ends = ["FLUSHALL", "FLUSHDB", "DEL k", "PEXPIRE k 1", "SET k other"];
    let stories = ends.map(|end| {
        format!(
            "
            # {end}
            former: LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> F
            {end} -> …
            3 ms pass
            DEL k -> …
            LOCK.ACQUIRE k alice 60000 -> A
            former: leaves
            KEEPS
            "
        )
    });
    plays(&stories.concat());
}

/// However long their leases would have lasted.
#[test]
fn holds_that_are_flushed_or_deleted_all_the_time_leave_no_bindings_behind() {
    let server = Server::start();
    let (mut client, mut alice) = (server.client(), server.client());
    for number in 0..2_000 {
        client.cmd(format!("LOCK.ACQUIRE k{number} alice 86400000 EPHEMERAL 0"));
    }
    assert_eq!(bindings(&mut client), 2_000);
    assert_eq!(client.cmd("FLUSHALL"), Value::Okay);
    for _ in 0..10 {
        alice.pipeline(&["LOCK.ACQUIRE k alice 86400000 EPHEMERAL 0", "DEL k"].repeat(1_000));
    }
    becomes("they are forgotten", 0, || bindings(&mut client));
}

#[test]
fn a_call_of_another_module_has_no_connection_either() {
    let call = "CALLER.CALL LOCK.ACQUIRE k alice 60000 EPHEMERAL 0; EXISTS k";
    let story = format!("# it is refused\n{call} -> -{NO_CONNECTION}; 0");
    Session::play(&Server::builder().with_caller().start(), &story);
}
