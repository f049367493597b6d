//! Hand-offs on a server on which many contended locks are named all the time, by commands that
//! free none of them.
//!
//! This is what a fleet does that moves over from `SET NX`: its older clients poll the very locks
//! that the newer ones wait for. Nothing that they send may keep a lock that was really freed from
//! its waiter.

use super::{LONG, Waiter, exact, granted_at, is_parked};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::traffic::Traffic;
use testkit::{
    Client, Cluster, Seed, Server, Setup, SlotMove, Stopwatch, announce, micros, strings,
};

/// More than are looked at in one turn of the server.
const LOCKS: usize = 1_500;

/// What the server cannot be this busy for. A lock that is handed on later is not handed on because
/// of its cause.
const NEVER: Duration = Duration::from_secs(3);

const TRIES: usize = 5;

/// Where the locks are that are freed, out of reach of the traffic.
const DATABASE: i64 = 5;

/// How late hand-offs may be, in milliseconds. A quiet machine with a release build takes less than
/// 5; this is for one on which other tests run too.
struct Limits {
    median: i64,
    longest: i64,
}

const PROMPT: Limits = Limits { median: 50, longest: 500 };

/// After `FLUSHALL` all the other waiters are granted their locks too, which takes a moment by
/// itself.
const AMONG_ALL_OTHERS: Limits = Limits { median: 400, longest: 1_000 };

/// What frees a lock whose name stands for `{}`.
const WAYS: [&str; 6] = [
    "LOCK.EXTEND {} alice 300",
    "DEL {}",
    "RENAME {} {}-elsewhere",
    "MOVE {} 6",
    "FLUSHDB",
    "SWAPDB 5 7",
];

struct Scene {
    server: Server,
    contended: Contended,
    /// In the database of the locks that are freed.
    client: Client,
    /// So that no name is used twice.
    victims: usize,
}

impl Scene {
    fn set(setup: Setup) -> Self {
        let server = setup.start();
        let mut client = server.client();
        // The waiters come before a password is asked for, if it is: they do not know it.
        let [_, password] = &strings(&client.cmd("CONFIG GET requirepass"))[..] else { panic!() };
        client.cmd(["CONFIG", "SET", "requirepass", ""]);
        let contended = Contended::hold(&server, "lock:", LOCKS);
        client.cmd(["CONFIG", "SET", "requirepass", password]);
        client.cmd(format!("SELECT {DATABASE}"));
        Self { server, contended, client, victims: 0 }
    }

    /// A lock that alice holds, and the one who waits for it.
    fn victim(&mut self) -> (String, Waiter) {
        self.victims += 1;
        let key = format!("victim{}", self.victims);
        self.client.grant(&key, "alice", LONG);
        let mut client = self.server.client();
        client.cmd(format!("SELECT {DATABASE}"));
        let request = format!("LOCK.ACQUIRE {key} bob {LONG} BLOCK 0");
        let waiter = Waiter::sends_on(client, &self.server, &request);
        (key, waiter)
    }

    /// When each of some waiters was granted its lock, in milliseconds after what freed it; `None`
    /// if never.
    fn hand_offs(&mut self, way: &str, victims: usize) -> Vec<Option<i64>> {
        let mut victims: Vec<_> = (0..victims).map(|_| self.victim()).collect();
        let command = way.replace("{}", &victims[0].0);
        let end = format!("PTTL {}", victims[0].0);
        let replies = self.client.pipeline(&[&*command, "TIME", &end]);
        assert!(!matches!(replies[0], Value::ServerError(_)), "{command}: {:?}", replies[0]);
        let mut freed = (micros(&replies[1]).unwrap() / 1_000).cast_signed();
        if way.starts_with("LOCK.EXTEND") {
            let Value::Int(left) = replies[2] else { panic!("{:?}", replies[2]) };
            freed += left;
        }
        let since = Instant::now();
        let late = |(_, waiter): &mut (String, Waiter)| {
            let mut observer = self.server.client();
            while is_parked(&mut observer, waiter.id) {
                if since.elapsed() > NEVER {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Some(granted_at(waiter.fence()) - freed)
        };
        victims.iter_mut().map(late).collect()
    }

    /// Frees locks in each way while there is traffic, and says in which of them their waiters were
    /// kept waiting.
    fn try_each_way(&mut self, kind: &str, traffic: impl Fn(&Self) -> Traffic) -> Vec<String> {
        let mut wrong = Vec::new();
        for way in WAYS {
            let traffic = traffic(self);
            let (mut seen, begun) = (Vec::new(), Instant::now());
            while seen.len() < TRIES && !seen.contains(&None) {
                seen.extend(self.hand_offs(way, 1));
            }
            let rate = traffic.answered() as f64 / begun.elapsed().as_secs_f64();
            wrong.extend(judged(kind, way, seen, &PROMPT, rate));
        }
        let traffic = traffic(self);
        let (begun, seen) = (Instant::now(), self.hand_offs("FLUSHALL", TRIES));
        let rate = traffic.answered() as f64 / begun.elapsed().as_secs_f64();
        wrong.extend(judged(kind, "FLUSHALL", seen, &AMONG_ALL_OTHERS, rate));
        wrong
    }
}

/// Says how late hand-offs were, and returns that if it is too late.
fn judged(
    kind: &str,
    way: &str,
    mut seen: Vec<Option<i64>>,
    limits: &Limits,
    rate: f64,
) -> Option<String> {
    // Those that were never made come last.
    seen.sort_unstable_by_key(|late| late.unwrap_or(i64::MAX));
    let shown: Vec<_> =
        seen.iter().map(|late| late.map_or("never".to_owned(), |ms| ms.to_string())).collect();
    let line = format!("{kind}, {way}: handed on after {} ms", shown.join(", "));
    announce(&format!("{line}, beside {rate:.0} commands/s"));
    let within = |late: Option<i64>, limit| late.is_some_and(|late| late <= limit);
    let prompt = within(seen[seen.len() / 2], limits.median)
        && seen.iter().all(|&late| within(late, limits.longest));
    (!prompt).then_some(line)
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "too late: {wrong:#?}");
}

#[test]
fn nobody_is_kept_waiting_by_older_clients_that_poll_other_contended_locks() {
    let mut scene = Scene::set(exact());
    let batches = |scene: &Scene| scene.contended.polls(&mut Seed::announced());
    let wrong = scene.try_each_way("older clients poll", |scene| {
        Traffic::on(&scene.server, 50, "", batches(scene))
    });
    assert_none(&wrong);
}

#[test]
fn nobody_is_kept_waiting_by_a_user_without_any_permission() {
    let mut scene = Scene::set(exact());
    assert_eq!(scene.client.cmd("ACL SETUSER nobody on >secret"), Value::Okay);
    let mut nobody = scene.server.client();
    nobody.cmd("AUTH nobody secret");
    let told = nobody.cmd("MGET a b");
    assert_eq!(code(&told).as_deref(), Some("NOPERM"), "{told:?}");
    let wrong = scene.try_each_way("no permission", |scene| {
        Traffic::on(&scene.server, 3, "AUTH nobody secret", scene.contended.named_at_once())
    });
    assert_none(&wrong);
}

#[test]
fn nobody_is_kept_waiting_by_clients_that_have_not_logged_in() {
    let mut scene = Scene::set(exact().password("secret"));
    let told = scene.server.stranger().cmd("MGET a b");
    assert_eq!(code(&told).as_deref(), Some("NOAUTH"), "{told:?}");
    let wrong = scene.try_each_way("not logged in", |scene| {
        Traffic::on(&scene.server, 4, "", scene.contended.named_in_short())
    });
    assert_none(&wrong);
}

fn code(reply: &Value) -> Option<String> {
    match reply {
        Value::ServerError(error) => Some(error.code().to_owned()),
        _ => None,
    }
}

/// How soon waiters are sent away when the slot of their lock leaves the node.
const SENT_AWAY: Duration = Duration::from_millis(200);

/// The same where the machine is busy too. It happens within the second after which all locks are
/// looked at anyway.
const SENT_AWAY_AT_LAST: Duration = Duration::from_millis(800);

#[test]
fn who_waits_for_a_lock_whose_slot_leaves_is_sent_away_although_other_contended_locks_are_named() {
    let cluster = Cluster::of(2, 0);
    let node = cluster.node(0);
    let prefix = cluster.slot_of(0).key("lock:");
    let contended = Contended::hold(node, &prefix, LOCKS);
    let _traffic = Traffic::on(node, 50, "", contended.polls(&mut Seed::announced()));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let slot = cluster.slot_of(0);
        let key = slot.key("victim");
        let mut client = node.client();
        client.grant(&key, "alice", LONG);
        let mut bob = Waiter::of(node, &key, "bob");
        let step = SlotMove { slot: slot.number, from: 0, to: 1 };
        step.import(&cluster);
        step.migrate(&cluster);
        let moved = Stopwatch::start();
        step.move_keys(&cluster);
        let mut observer = node.client();
        while is_parked(&mut observer, bob.id) && moved.elapsed() < NEVER {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = moved.elapsed();
        seen.push(took);
        if took >= NEVER {
            break;
        }
        let told = bob.reply();
        assert!(["TRYAGAIN", "MOVED", "ASK"].map(Some).contains(&code(&told).as_deref()));
    }
    seen.sort_unstable();
    announce(&format!("sent away after {seen:?}"));
    let (median, longest) = (seen[seen.len() / 2], seen[seen.len() - 1]);
    assert!(median <= SENT_AWAY && longest <= SENT_AWAY_AT_LAST, "sent away after {seen:?}");
}
