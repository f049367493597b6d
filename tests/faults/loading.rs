//! A replica loads what its primary sends it, without a file in between: into nothing, or beside what it has, which it
//! goes on serving (`repl-diskless-load swapdb`).

use super::LONG;
use redis::Value;
use std::time::Duration;
use testkit::{
    Client, Clock, Proxy, Server, Setup, Snapshot, becomes, bulk_text, error, eventually, field,
    int, is_older_than, lacks, module, wait_until_in_sync,
};

/// So much data, and so long until each key is sent, that there is time to look around while it is loaded.
const FILLER: &str = "DEBUG POPULATE 1500 filler 4000";
const SAVE_DELAY_MICROS: &str = "400";

/// By how much a replica's clock is behind: less than the usual margin.
const BEHIND: Duration = Duration::from_secs(4);

struct Pair {
    primary: Server,
    replica: Server,
    /// Between the two.
    proxy: Proxy,
}

impl Pair {
    /// Not connected yet.
    fn with(primary: Setup, replica: Setup) -> Self {
        let primary = primary
            .tcp()
            .config("repl-diskless-sync", "yes")
            .config("repl-diskless-sync-delay", "0")
            // The filler is as long in the stream as in memory.
            .config("rdbcompression", "no")
            .config("repl-backlog-size", "16kb")
            .start();
        assert_eq!(primary.cmd(FILLER), Value::Okay);
        let proxy = Proxy::to(primary.port());
        let replica = match is_older_than((7, 0)) {
            true => replica,
            // Others have their turn more often.
            false => replica.config("loading-process-events-interval-bytes", "1024"),
        };
        Self { primary, replica: replica.start(), proxy }
    }

    /// The replica has all that the primary has.
    fn joined(self) -> Self {
        self.follow();
        wait_until_in_sync(&self.primary, &self.replica);
        self
    }

    fn follow(&self) {
        let follow = format!("REPLICAOF 127.0.0.1 {}", self.proxy.port());
        assert_eq!(self.replica.cmd(follow), Value::Okay);
    }

    /// From now on the primary sends its data slowly.
    fn slow(&self) {
        let slow = format!("CONFIG SET rdb-key-save-delay {SAVE_DELAY_MICROS}");
        assert_eq!(self.primary.cmd(slow), Value::Okay);
    }

    /// The replica has lost its primary, and does not find it again.
    fn parted(&self) {
        self.proxy.cut();
        self.primary.cmd("CLIENT KILL TYPE replica");
    }

    /// So much has happened that the replica, once it finds its primary again, must load everything.
    fn found_again_too_late(&self) {
        let mut client = self.primary.client();
        let much = "x".repeat(60_000);
        for number in 0..40 {
            assert_eq!(client.cmd(["SET", &format!("much{number}"), &much]), Value::Okay);
        }
        self.slow();
        self.proxy.heal();
    }

    fn wait_until_it_loads(&self) {
        let mut client = self.replica.client();
        eventually("the replica loads", || match state(&mut client) {
            State::Ready => Err(client.info_text("replication")),
            _ => Ok(()),
        });
    }

    /// Its link breaks, and there will be no other; returns when it has given up what it was loading.
    fn cut_off_for_good(self) -> Self {
        let Self { primary, replica, proxy } = self;
        drop(proxy);
        becomes("the replica", State::Ready, || state(&mut replica.client()));
        // The replica does not know it.
        let proxy = Proxy::to(primary.port());
        Self { primary, replica, proxy }
    }

    /// The replica is made the primary; whatever it grants is above all fences.
    #[track_caller]
    fn is_promoted_and_goes_on_above(&self, highest: u64) {
        let mut client = self.replica.client();
        if !is_older_than((7, 0)) {
            let usual = format!("CONFIG SET leasehold.fence-margin {}", module::USUAL_FENCE_MARGIN);
            assert_eq!(client.cmd(usual), Value::Okay);
        }
        assert_eq!(client.cmd("REPLICAOF NO ONE"), Value::Okay);
        for lock in ["held", "gone", "new", "another"] {
            if let Some(info) = client.info(lock) {
                assert!(client.release(lock, info.owner));
            }
            let fence = client.grant(lock, "zoe", LONG);
            assert!(fence > highest, "{lock}: {fence} is not above {highest}");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Into nothing: nobody is answered.
    Loads,
    /// Beside what it has.
    LoadsBeside,
}

fn state(client: &mut Client) -> State {
    state_in(&client.info_text("persistence"))
}

fn state_in(text: &str) -> State {
    let is = |field: &str| text.lines().any(|line| line == field);
    match (is("loading:1"), is("async_loading:1")) {
        (_, true) => State::LoadsBeside,
        (true, false) => State::Loads,
        (false, false) => State::Ready,
    }
}

/// The replies to all commands at one moment, and the state at that moment.
fn look(client: &mut Client, commands: &[&str]) -> (State, Vec<Value>) {
    // Sent in one go, they are executed in one go.
    let mut replies = client.pipeline(&[commands, &["INFO persistence"]].concat());
    let state = state_in(&bulk_text(&replies.pop().unwrap()));
    (state, replies)
}

/// `held` stays so; `gone` and `new` are for what happens while the two are parted.
fn some_locks(primary: &Server) -> [u64; 2] {
    let mut client = primary.client();
    [client.grant("held", "alice", LONG), client.grant("gone", "alice", LONG)]
}

/// While the two are parted; the highest fence that was told.
fn things_change(primary: &Server) -> u64 {
    let mut client = primary.client();
    assert!(client.release("gone", "alice"));
    for _ in 0..20 {
        client.grant("another", "bob", LONG);
        assert!(client.release("another", "bob"));
    }
    client.grant("new", "bob", LONG)
}

fn beside() -> Setup {
    Server::builder().config("repl-diskless-load", "swapdb")
}

const READONLY: &str = "READONLY You can't write against a read only replica.";

/// What `GET` says of a lock is what our commands say.
#[track_caller]
fn assert_one_truth(replies: &[Value], owner: &str, fence: Option<u64>) {
    let [get, info, check, waiters] = replies else { panic!("{replies:?}") };
    let value = fence.map(|fence| Value::BulkString(format!("{fence}:{owner}").into_bytes()));
    assert_eq!(*get, value.unwrap_or(Value::Nil));
    match fence {
        Some(fence) => {
            assert_eq!(field(info, "fence"), Some(&int(fence)));
            assert_eq!(*check, int(fence));
        }
        None => assert_eq!((info, check), (&Value::Nil, &Value::Nil)),
    }
    assert_eq!(*waiters, Value::Array(vec![]));
}

#[test]
fn a_replica_that_loads_beside_its_data_answers_from_that_and_then_equals_its_primary() {
    if lacks((7, 0), "serving the old data while new data is loaded") {
        return;
    }
    let pair = Pair::with(Server::builder(), beside());
    let [held, gone] = some_locks(&pair.primary);
    let pair = pair.joined();
    pair.parted();
    things_change(&pair.primary);
    pair.found_again_too_late();
    pair.wait_until_it_loads();
    let mut client = pair.replica.client();
    let of = |lock: &str, owner: &str| {
        [
            format!("GET {lock}"),
            format!("LOCK.INFO {lock}"),
            format!("LOCK.CHECK {lock} {owner}"),
            format!("LOCK.WAITERS {lock}"),
        ]
    };
    let mut commands = [of("held", "alice"), of("gone", "alice"), of("new", "bob")].concat();
    let writes = ["ACQUIRE free zoe 60000", "RELEASE held alice", "EXTEND held alice 60000"];
    commands.extend(writes.map(|write| format!("LOCK.{write}")));
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let mut looks = 0;
    loop {
        let (state, replies) = look(&mut client, &commands);
        if state != State::LoadsBeside {
            break;
        }
        looks += 1;
        assert_one_truth(&replies[..4], "alice", Some(held));
        assert_one_truth(&replies[4..8], "alice", Some(gone));
        assert_one_truth(&replies[8..12], "bob", None);
        assert!(replies[12..].iter().all(|reply| *reply == error(READONLY)), "{replies:?}");
    }
    assert!(looks > 0, "it was too fast");
    wait_until_in_sync(&pair.primary, &pair.replica);
    assert_eq!(Snapshot::of(&pair.replica), Snapshot::of(&pair.primary));
}

/// The clock of the replica is behind, and the fences of the primary are not ahead of its own clock. The replica has the
/// usual margin when it is promoted; before, where that can be changed, none that would make up for it.
fn by_two_clocks(replica: Setup) -> (Pair, Clock) {
    let mut behind = Clock::new();
    behind.step_back(BEHIND);
    let none = |setup: Setup| setup.module_args("fence-margin 0");
    let replica = if is_older_than((7, 0)) { replica } else { none(replica) };
    (Pair::with(none(Server::builder()), replica.clock(&behind)), behind)
}

/// It keeps what it had, or has nothing if it loads into nothing.
#[test]
fn a_replica_whose_link_breaks_while_it_loads_goes_on_from_what_it_has() {
    for (replica, is_beside) in [(beside(), true), (Server::builder(), false)] {
        let (pair, _behind) = by_two_clocks(replica);
        some_locks(&pair.primary);
        let (pair, before) = if is_beside {
            let pair = pair.joined();
            let before = Snapshot::of(&pair.replica);
            pair.parted();
            pair.found_again_too_late();
            (pair, Some(before))
        } else {
            (pair, None)
        };
        let highest = things_change(&pair.primary);
        if !is_beside {
            pair.slow();
            pair.follow();
        }
        pair.wait_until_it_loads();
        let pair = pair.cut_off_for_good();
        let left = Snapshot::of(&pair.replica);
        assert_eq!((left.size() > 0).then_some(left), before);
        pair.is_promoted_and_goes_on_above(highest);
    }
}

#[test]
fn a_replica_that_is_promoted_right_after_it_loaded_goes_on_above_its_primary() {
    for replica in [Server::builder(), beside()] {
        let (pair, _behind) = by_two_clocks(replica);
        some_locks(&pair.primary);
        let pair = pair.joined();
        pair.parted();
        things_change(&pair.primary);
        pair.found_again_too_late();
        wait_until_in_sync(&pair.primary, &pair.replica);
        // Of these it never hears.
        pair.parted();
        let highest = (0..20)
            .map(|number| pair.primary.client().grant(format!("unheard{number}"), "bob", LONG));
        let highest = highest.max().unwrap();
        pair.is_promoted_and_goes_on_above(highest);
    }
}
