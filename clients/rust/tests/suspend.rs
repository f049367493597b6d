//! A machine that was suspended: the leases of servers went on meanwhile, and the timers of the
//! client did not.
//!
//! Each test runs once more in a process of its own, whose clock this one sets ahead as a suspend
//! does. Linux only.

use crate::scene::{Kind, client, millis, quorum_of, soon};
use leasehold_client::{Locks, Loss, Renew, Settings};
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::Clock;
use tokio::time::{sleep, timeout};

/// Where the process finds its servers.
const PORTS: &str = "LEASEHOLD_TEST_PORTS";

/// What it says as soon as it holds its lock.
const HOLDING: &str = "HOLDING";

const SLEEP: Duration = Duration::from_secs(20);

/// What it says before the milliseconds that a loss took to be told.
const TOLD: &str = "TOLD ";

/// Runs this test in a process that is suspended for twenty seconds once it holds its lock, with
/// so many servers of each kind.
fn suspended(test: &str, servers: usize) {
    for kind in Kind::BOTH {
        let servers: Vec<_> = (0..servers).map(|_| kind.setup().start()).collect();
        let ports: Vec<_> = servers.iter().map(|server| server.port().to_string()).collect();
        let said = suspended_with(test, &ports.join(" "));
        if let Some(told) = said.lines().find_map(|line| line.strip_prefix(TOLD)) {
            let held_on = if servers.len() > 1 { "of a quorum" } else { "of a guard" };
            let what = format!("ms until `lost` tells after a suspend, {held_on}");
            kind.measured(&what, told);
        }
    }
}

/// Returns what it said.
fn suspended_with(test: &str, ports: &str) -> String {
    let mut clock = Clock::new();
    let mut itself = Command::new(env::current_exe().unwrap());
    itself.args([test, "--exact", "--nocapture"]).env(PORTS, ports);
    let mut process = clock.preload(&mut itself).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.ends_with(HOLDING) {
            clock.suspend(SLEEP);
        }
        said = said + &line + "\n";
    }
    assert!(process.wait().unwrap().success() && said.contains("1 passed"), "{said}");
    said
}

fn ports() -> Option<Vec<u16>> {
    Some(env::var(PORTS).ok()?.split(' ').map(|port| port.parse().unwrap()).collect())
}

/// Returns as soon as the clock of a guard shows that the process was suspended.
async fn until_suspended(valid_for: impl Fn() -> Duration) {
    let before = valid_for();
    println!("{HOLDING}");
    let suspended = async {
        while valid_for() + SLEEP / 2 > before && !valid_for().is_zero() {
            sleep(millis(1)).await;
        }
    };
    // Sooner than any renewal, which would make up for it.
    timeout(SLEEP / 4, suspended).await.expect("the clock did not show it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_whose_lease_ended_in_a_suspend_knows_it_at_once() {
    let Some(ports) = ports() else {
        return suspended("suspend::a_guard_whose_lease_ended_in_a_suspend_knows_it_at_once", 1);
    };
    // Renewed after 6 s, if no clock but this process's own is asked.
    let locks = Locks::new(client(ports[0]));
    let (renewed, fixed) = (locks.lock("renewed").ttl(millis(18_000)), locks.lock("fixed"));
    let (renewed, fixed) =
        (renewed.await.unwrap(), fixed.ttl(millis(18_000)).renew(Renew::Never).await.unwrap());
    until_suspended(|| fixed.valid_for()).await;
    let woken = Instant::now();
    assert_eq!((fixed.loss(), fixed.valid_for()), (Some(Loss::Expired), Duration::ZERO));
    assert_eq!((renewed.loss(), renewed.valid_for()), (Some(Loss::Expired), Duration::ZERO));
    assert_eq!(soon(fixed.lost()).await, Loss::Expired);
    assert_eq!(soon(renewed.lost()).await, Loss::Expired);
    println!("{TOLD}{}", woken.elapsed().as_millis());
    assert!(woken.elapsed() < millis(1_500), "{:?}", woken.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_outlasts_a_suspend_is_renewed_soon_after_it() {
    let Some(ports) = ports() else {
        return suspended("suspend::a_lease_that_outlasts_a_suspend_is_renewed_soon_after_it", 1);
    };
    let locks = Locks::new(client(ports[0]));
    let guard = locks.lock("printer").ttl(millis(30_000)).await.unwrap();
    let fixed = locks.lock("fixed").ttl(millis(30_000)).renew(Renew::Never).await.unwrap();
    until_suspended(|| fixed.valid_for()).await;
    let woken = Instant::now();
    let renewed = async {
        while guard.valid_for() < millis(25_000) {
            assert_eq!(guard.loss(), None);
            sleep(millis(1)).await;
        }
    };
    soon(renewed).await;
    assert!(woken.elapsed() < millis(1_500), "{:?}", woken.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_of_a_quorum_whose_lease_ended_in_a_suspend_knows_it_at_once() {
    let Some(ports) = ports() else {
        let name = "suspend::a_guard_of_a_quorum_whose_lease_ended_in_a_suspend_knows_it_at_once";
        return suspended(name, 3);
    };
    let quorum = quorum_of(ports.into_iter(), Settings::default());
    let guard = quorum.lock("printer").ttl(millis(18_000)).renew(Renew::Never).await.unwrap();
    until_suspended(|| guard.valid_for()).await;
    let woken = Instant::now();
    assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Expired), Duration::ZERO));
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    println!("{TOLD}{}", woken.elapsed().as_millis());
    assert!(woken.elapsed() < millis(1_500), "{:?}", woken.elapsed());
}
