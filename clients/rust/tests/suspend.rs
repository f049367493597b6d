//! A machine that was suspended: the leases of servers went on meanwhile, and the timers of the
//! client did not.
//!
//! Each test runs once more in a process of its own, whose clock this one sets ahead as a suspend
//! does. Linux only.

use crate::scene::{Kind, millis, soon, url};
use leasehold_client::{Locks, Loss, Quorum, Settings};
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::Clock;
use tokio::time::{sleep, timeout};

/// Where the process finds its servers.
const URLS: &str = "LEASEHOLD_TEST_URLS";

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
        let urls: Vec<_> = servers.iter().map(|server| url(server.port())).collect();
        let said = suspended_with(test, &urls);
        if let Some(told) = said.lines().find_map(|line| line.strip_prefix(TOLD)) {
            let held_on = if servers.len() > 1 { "of a quorum" } else { "of a guard" };
            let what = format!("ms until `lost` tells after a suspend, {held_on}");
            kind.measured(&what, told);
        }
    }
}

/// Returns what it said.
fn suspended_with(test: &str, urls: &[String]) -> String {
    let mut clock = Clock::new();
    let mut itself = Command::new(env::current_exe().unwrap());
    itself.args([test, "--exact", "--nocapture"]).env(URLS, urls.join(" "));
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

fn urls() -> Option<Vec<String>> {
    Some(env::var(URLS).ok()?.split(' ').map(str::to_owned).collect())
}

async fn client(urls: &[String]) -> Locks {
    Locks::connect_with(urls[0].as_str(), Settings::default()).await.unwrap()
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
    let Some(urls) = urls() else {
        return suspended("suspend::a_guard_whose_lease_ended_in_a_suspend_knows_it_at_once", 1);
    };
    // Renewed after 6 s, if no clock but this process's own is asked.
    let locks = client(&urls).await;
    let (renewed, fixed) = (locks.lock("renewed").ttl(millis(18_000)), locks.lock("fixed"));
    let (renewed, fixed) = (renewed.await.unwrap(), fixed.fixed_ttl(millis(18_000)).await.unwrap());
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
    let Some(urls) = urls() else {
        return suspended("suspend::a_lease_that_outlasts_a_suspend_is_renewed_soon_after_it", 1);
    };
    let locks = client(&urls).await;
    let guard = locks.lock("printer").ttl(millis(30_000)).await.unwrap();
    let fixed = locks.lock("fixed").fixed_ttl(millis(30_000)).await.unwrap();
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
    let Some(urls) = urls() else {
        let name = "suspend::a_guard_of_a_quorum_whose_lease_ended_in_a_suspend_knows_it_at_once";
        return suspended(name, 3);
    };
    let quorum = Quorum::connect_with(urls, Settings::default()).await.unwrap();
    let guard = quorum.lock("printer").fixed_ttl(millis(18_000)).await.unwrap();
    until_suspended(|| guard.valid_for()).await;
    let woken = Instant::now();
    assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Expired), Duration::ZERO));
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    println!("{TOLD}{}", woken.elapsed().as_millis());
    assert!(woken.elapsed() < millis(1_500), "{:?}", woken.elapsed());
}
