//! Scenario `reload`: the module is unloaded while it is in use, and loaded again. Unloading may be
//! refused. If not, fences still grow, and the server lives.

use crate::connection::is_gone;
use crate::runner::Totals;
use redis::Value;
use std::panic;
use std::thread;
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::traffic::{Batch, Traffic};
use testkit::{Client, Clock, Seed, Server, module};

const LONG: u64 = 60_000;

const AN_HOUR_MICROS: u64 = 3_600_000_000;

pub(crate) fn reload(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let mut totals = Totals::default();
    let begin = Instant::now();
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let mut clock = Clock::new();
        let setup = Server::builder().tcp().clock(&clock);
        let threads = seed.below(3) == 0;
        let setup = if threads { setup.config("io-threads", "4") } else { setup };
        let mut server = setup.start();
        let wrong = match seed.below(4) {
            0 | 1 => fences(&server, &mut clock, &mut seed, &mut totals),
            2 => parsed_ahead(&server, &mut seed, &mut totals),
            _ => under_traffic(&server, &mut totals),
        };
        // A server that crashes may take a moment to end.
        thread::sleep(Duration::from_millis(50));
        if is_gone(server.port()) {
            totals.wrong.push("L6: the server has ended since MODULE UNLOAD".to_owned());
        }
        totals.wrong.extend(wrong);
        if !totals.wrong.is_empty() {
            totals.micros = begin.elapsed().as_micros();
            server.kill();
            // The report of a crash is not a second finding.
            panic::resume_unwind(Box::new(totals));
        }
    }
    totals.micros = begin.elapsed().as_micros();
    totals
}

/// Unloads the module and loads it again, if the server lets it. Its commands are there afterwards
/// in either case, unless the server has ended.
fn unload_and_load(client: &mut Client, totals: &mut Totals) {
    totals.faults += 1;
    if let Ok(Value::Okay) = client.try_cmd("MODULE UNLOAD leasehold") {
        let _ = client.try_cmd(format!("MODULE LOAD {}", module::path().display()));
    }
}

/// The fence clock is ahead of the server's clock, because an operator raised it or because the
/// clock was set back.
fn fences(
    server: &Server,
    clock: &mut Clock,
    seed: &mut Seed,
    totals: &mut Totals,
) -> Option<String> {
    let mut client = server.client();
    let mut told = client.grant("k", "m", LONG);
    let what = match seed.below(3) {
        0 => "",
        1 => {
            let ahead = told + 2 * AN_HOUR_MICROS;
            assert_eq!(client.cmd(format!("LOCK.RAISE k m {ahead}")), Value::Int(ahead as i64));
            told = ahead;
            ", after LOCK.RAISE"
        }
        _ => {
            clock.step_back(Duration::from_secs(*seed.pick(&[60, 3_600])));
            ", after the clock was set back"
        }
    };
    // A fence in the keyspace would tell the module.
    if seed.below(2) == 0 {
        client.cmd("DEL k");
    }
    totals.operations += 2;
    for _ in 0..2 {
        // If the last command of this client is one of the module's, that keeps the module loaded.
        client.cmd("PING");
        unload_and_load(&mut client, totals);
        let fence = match client.try_cmd(format!("LOCK.ACQUIRE other m {LONG}")) {
            Ok(Value::Int(fence)) => fence.unsigned_abs(),
            other => return Some(format!("L6: after MODULE UNLOAD and LOAD{what}: {other:?}")),
        };
        totals.operations += 1;
        totals.grants += 1;
        if fence <= told {
            let what = format!("{fence} came after {told}, over MODULE UNLOAD and LOAD{what}");
            return Some(format!("L2: {what}"));
        }
        told = fence;
        client.cmd("LOCK.RELEASE other m");
    }
    None
}

/// A client waits for something else, and has sent a command of the module in the same packet.
fn parsed_ahead(server: &Server, seed: &mut Seed, totals: &mut Totals) -> Option<String> {
    let mut client = server.client();
    let mut ahead = server.client();
    let waits = ["BLPOP nokey 0.1", "BLPOP nokey 0.02", "WAIT 1 30"][seed.below(3)];
    let ours = ["LOCK.ACQUIRE k o 1000", "LOCK.INFO k", "LOCK.RELEASE k o"][seed.below(3)];
    ahead.send_all(&[waits, ours, ours]);
    thread::sleep(Duration::from_millis(seed.below(10) as u64));
    totals.faults += 1;
    // Either reply is right. The module is loaded again when the commands were executed, or were
    // found to be unknown.
    let unloaded = client.try_cmd("MODULE UNLOAD leasehold");
    for _ in 0..3 {
        totals.operations += 1;
        if ahead.try_receive().is_err() || client.try_cmd("PING").is_err() {
            let what = format!("{waits} and {ours} in one packet, and MODULE UNLOAD: {unloaded:?}");
            return Some(format!("L6: {what}, and the server has ended"));
        }
    }
    if let Ok(Value::Okay) = unloaded {
        client.cmd(format!("MODULE LOAD {}", module::path().display()));
    }
    None
}

/// Other clients go on with commands of the server and of the module.
fn under_traffic(server: &Server, totals: &mut Totals) -> Option<String> {
    let own: Vec<_> = (0..16).map(|number| format!("SET v{number} x PX 1000")).collect();
    let ours = ["LOCK.ACQUIRE k o 1000", "LOCK.RELEASE k o", "PING"].map(str::to_owned);
    let _own = Traffic::on(server, 20, "", vec![Batch::of(&own)]);
    let _ours = Traffic::on(server, 4, "", vec![Batch::of(&ours), Batch::of(&own)]);
    let mut client = server.client();
    for round in 0..12 {
        // Sometimes with waiters, which keep the module loaded for as long as they wait.
        let _waiters = (round == 5).then(|| Contended::hold(server, &format!("w{round}-"), 20));
        unload_and_load(&mut client, totals);
        totals.operations += 1;
        if client.try_cmd("PING").is_err() {
            return Some("L6: MODULE UNLOAD under traffic, and the server has ended".to_owned());
        }
        thread::sleep(Duration::from_millis(2));
    }
    None
}
