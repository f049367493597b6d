//! Unloaded and loaded again, a module goes on with larger fences, or is not unloaded (L2).

use super::LONG;
use redis::Value;
use testkit::module::USUAL_FENCE_MARGIN;
use testkit::{Clock, Server, UNLOAD, clock::HOUR, eventually, int};

/// So often is a module loaded again.
const ROUNDS: usize = 40;

const LINE: &str = "<leasehold> cannot unload: fences are ";

#[track_caller]
fn assert_refused_for_its_fences(server: &Server) {
    let reply = server.cmd(UNLOAD);
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    assert!(server.log().contains(LINE), "{}", server.log());
}

/// Tries it, and if it works loads the module again. Whether it did.
fn unloaded_and_loaded(server: &Server, args: &[&str]) -> bool {
    let is_unloaded = server.cmd(UNLOAD) == Value::Okay;
    if is_unloaded {
        server.load(args);
    }
    is_unloaded
}

/// A connection whose last command is one of ours keeps the module loaded, so each command has its own.
fn grant(server: &Server, key: &str) -> u64 {
    match server.cmd(format!("LOCK.ACQUIRE {key} alice {LONG}")) {
        Value::Int(fence) => fence.cast_unsigned(),
        other => panic!("no fence: {other:?}"),
    }
}

fn release(server: &Server, key: &str) {
    assert_eq!(server.cmd(format!("LOCK.RELEASE {key} alice")), int(1));
}

fn raise(server: &Server, key: &str, fence: u64) {
    let reply = server.cmd(format!("LOCK.RAISE {key} alice {fence}"));
    assert_eq!(reply, Value::Int(fence.cast_signed()));
}

#[test]
fn fences_that_were_raised_hours_ahead_keep_the_module_loaded() {
    let server = Server::start();
    let ahead = grant(&server, "k") + 2 * HOUR.as_micros() as u64;
    raise(&server, "k", ahead);
    release(&server, "k");
    // Whatever becomes of it.
    for _ in 0..20 {
        unloaded_and_loaded(&server, &[]);
    }
    assert!(grant(&server, "k") > ahead);
    assert_refused_for_its_fences(&server);
}

#[test]
fn a_clock_that_was_set_back_keeps_the_module_loaded_until_it_has_caught_up() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let last = grant(&server, "k");
    release(&server, "k");
    clock.step_back(HOUR);
    clock.wait_until_known(&mut server.client());
    for _ in 0..20 {
        unloaded_and_loaded(&server, &[]);
    }
    let next = grant(&server, "k");
    assert!(next > last, "{next} is not larger than {last}");
    release(&server, "k");
    assert_refused_for_its_fences(&server);
    clock.step_forward(HOUR);
    clock.wait_until_known(&mut server.client());
    server.unload();
    server.load(&[]);
    assert!(grant(&server, "k") > next);
}

#[test]
fn fences_grow_over_many_loads_also_of_locks_that_were_just_released() {
    let server = Server::start();
    let mut last = 0;
    for round in 0..ROUNDS {
        for key in ["k", &format!("k{round}")] {
            let fence = grant(&server, key);
            assert!(fence > last, "{fence} is not larger than {last} in round {round}");
            last = fence;
        }
        release(&server, "k");
        server.unload();
        server.load(&[]);
    }
}

/// Around the moment at which it is no longer refused.
#[test]
fn fences_grow_over_a_load_when_they_are_as_far_ahead_as_a_load_begins() {
    let server = Server::builder().module_args("fence-margin 15000").start();
    let (mut refused, mut loaded) = (0, 0);
    for round in 0..ROUNDS {
        // From one millisecond before the margin on, and the time goes on meanwhile.
        let now = server.client().now().cast_unsigned() * 1_000;
        let ahead = now + USUAL_FENCE_MARGIN * 1_000 - 1_000 + 250 * round as u64;
        let fence = grant(&server, "k");
        let raised = fence.max(ahead);
        raise(&server, "k", raised);
        release(&server, "k");
        let mut was_refused = false;
        eventually("it is loaded again", || match unloaded_and_loaded(&server, &[]) {
            true => Ok(()),
            false => {
                was_refused = true;
                Err(())
            }
        });
        refused += usize::from(was_refused);
        loaded += 1;
        let next = grant(&server, "k");
        assert!(next > raised, "{next} is not larger than {raised}");
        release(&server, "k");
    }
    assert!(refused > 0 && loaded > refused, "{refused} of {loaded} were refused first");
}

/// The next load need not have the same margin. Without a word of it, it has the usual one.
#[test]
fn a_margin_larger_than_the_usual_one_keeps_the_module_loaded_for_longer() {
    let server = Server::builder().module_args("fence-margin 600000").start();
    let last = grant(&server, "k");
    release(&server, "k");
    unloaded_and_loaded(&server, &[]);
    assert!(grant(&server, "k") > last);
    assert_refused_for_its_fences(&server);
}

#[test]
fn a_smaller_margin_counts() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let raised = grant(&server, "k") + 10_000_000;
    raise(&server, "k", raised);
    release(&server, "k");
    unloaded_and_loaded(&server, &["fence-margin", "0"]);
    assert!(grant(&server, "k") > raised);
    assert_refused_for_its_fences(&server);
}
