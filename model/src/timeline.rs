//! A way to a broken promise, as a table that is read from top to bottom.

use crate::both::Which;
use crate::search::Broken;
use crate::server::{Server, Told};
use crate::step::Step;
use crate::world::{Client, Promise, World};
use leasehold_core::lock::Fence;
use std::fmt::Write;

const TIME: usize = 5;
const WHAT: usize = 84;
const CODE: usize = 25;

/// The table.
pub fn of(broken: &Broken) -> String {
    let mut text = format!("{}\n", clocks(&broken.beginning));
    line(&mut text, "time", "what happens", "in the code", "who counts on the lock");
    let mut before = &broken.beginning;
    for (step, after) in &broken.way {
        if !matches!(step, Step::Tick) {
            let time = format!("{} s", after.now);
            let holders: Vec<_> = after.holders().map(Which::client).collect();
            let function = step.in_code().function;
            line(&mut text, &time, &what(*step, before, after), function, &holders.join(", "));
        }
        before = after;
    }
    line(&mut text, "", end(broken.promise), "", "");
    let others = [Promise::OneHolder, Promise::FencesGrow].into_iter();
    for other in others.filter(|other| *other != broken.promise && !before.keeps(*other)) {
        line(&mut text, "", &format!("and so is {}", other.number()), "", "");
    }
    text
}

const fn end(promise: Promise) -> &'static str {
    match promise {
        Promise::OneHolder => "L1 is broken: two clients count on the lock at one time",
        Promise::FencesGrow => {
            "L2 is broken: the fence of a later grant is not above an earlier one"
        }
    }
}

/// Lines do not end in blanks.
fn line(text: &mut String, time: &str, what: &str, code: &str, holders: &str) {
    let line = format!(" {time:TIME$} {what:WHAT$} {code:CODE$} {holders}");
    // A string refuses nothing.
    let _ = writeln!(text, "{}", line.trim_end());
}

fn clocks(beginning: &World) -> String {
    let ahead = |which: Which| beginning.servers.get(which).clock;
    let started = match beginning.is_anew() {
        true => "a has just started",
        false => "a has been up for long",
    };
    match (ahead(Which::First), ahead(Which::Second)) {
        (0, 0) => format!(" {started}; the clocks of a and b agree"),
        (by, 0) => format!(" {started}; the clock of a is {by} s ahead of that of b"),
        (_, by) => format!(" {started}; the clock of b is {by} s ahead of that of a"),
    }
}

/// `2.000001`: the seconds of the clock that it was made of, and what was added.
fn shown(fence: Fence) -> String {
    let micros = Server::since_beginning(fence);
    format!("{}.{:06}", micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000))
}

fn what(step: Step, before: &World, after: &World) -> String {
    match step {
        Step::Tick => "a second passes".to_owned(),
        Step::Acquire { client, server } => acquired(client, server, before, after),
        Step::Hear { client } => format!("the answer reaches {}", client.client()),
        Step::Extend { client, server } => {
            let (who, at) = (client.client(), server.server());
            match after.clients.get(client) {
                Client::Holds { until, .. } => {
                    format!("{who} extends the lease at {at}, and counts on it until {until} s")
                }
                _ => format!("{who} asks to extend the lease at {at}, and is told that it is lost"),
            }
        }
        Step::Release { client, server } => {
            format!("{} releases the lock at {}", client.client(), server.server())
        }
        Step::Learn => {
            let told = before.link.as_ref().and_then(|link| link.first());
            match told {
                Some(Told::Set(held)) => {
                    format!("the replica receives the grant of fence {}", shown(held.fence))
                }
                Some(Told::FenceClock(fence)) => {
                    format!("the replica is told that the fence clock is at {}", shown(*fence))
                }
                Some(Told::Del) | None => "the replica receives the release".to_owned(),
            }
        }
        Step::Die { server } => format!("{} dies", server.server()),
        Step::Begin { server, kept, .. } => {
            let file = match kept {
                kept if kept == before.servers.get(server).key => "",
                Some(_) => " with what it had before",
                None => " without the lock",
            };
            format!("{} restarts{file}{}", server.server(), begins(server, after))
        }
        Step::Join { server, .. } => {
            let name = server.server();
            format!("{name} follows {}, and has what that has", server.other().server())
        }
        Step::TakeOver { server } => {
            let unheard = match before.link.as_ref().map(Vec::len) {
                None | Some(0) => String::new(),
                Some(1) => " and lacks the last command".to_owned(),
                Some(count) => format!(" and lacks the last {count} commands"),
            };
            format!("{} takes over{unheard}{}", server.server(), begins(server, after))
        }
        Step::MovedAtOnce => format!("the slot moves {} atomically", direction(before, after)),
        Step::Expect => "the slot begins to move key by key".to_owned(),
        Step::Migrate => "the key goes to the other node".to_owned(),
        Step::ReadSlots => "the other node owns the slot".to_owned(),
    }
}

fn acquired(client: Which, server: Which, before: &World, after: &World) -> String {
    let (who, at) = (client.client(), server.server());
    let (grant, until) = match *after.clients.get(client) {
        Client::Holds { grant, until } => (grant, format!(", counts on it until {until} s")),
        Client::Asks { grant, .. } => (grant, String::new()),
        Client::Idle => return format!("{who} asks {at} for the lock, and is refused"),
    };
    let fence = shown(grant.fence);
    if after.granted == before.granted {
        return format!("{who} asks {at}, gets the same grant again, fence {fence}{until}");
    }
    let asked = before.servers.get(server);
    let over = match asked.key {
        Some(_) if !asked.is_held(before.now) => ", where the lease is over,",
        _ => "",
    };
    format!("{who} asks {at}{over} and is granted the lock, fence {fence}{until}")
}

/// What a server does that grants locks from now on.
fn begins(server: Which, after: &World) -> String {
    let server = after.servers.get(server);
    let above = server.fences.highest().map(|fence| format!(": fences above {}", shown(fence)));
    let rest = match server.fences.quarantine_left_micros().div_euclid(1_000_000) {
        0 => String::new(),
        left => {
            let end = u64::from(after.now).saturating_add(left);
            format!(", no grant until {end} s")
        }
    };
    format!("{}{rest}", above.unwrap_or_default())
}

fn direction(before: &World, after: &World) -> &'static str {
    if before.is_home(Which::First) && after.is_home(Which::Second) {
        "from a to b"
    } else {
        "from b to a"
    }
}
