//! What clients were told by a primary, and what must be true once another server has taken over from it.

use super::LONG;
use redis::Value;
use std::time::Duration;
use testkit::{Server, Waiter, deadline};

/// What waiters may be told when they are sent away, so that they know to ask elsewhere.
const SENT_AWAY: [&str; 4] = ["UNBLOCKED", "TRYAGAIN", "MOVED", "CLUSTERDOWN"];

pub(super) struct Scene {
    /// What all keys begin with, so that they are in one slot.
    prefix: String,
    held: u64,
    held_until: i64,
    /// By how many milliseconds the end of a lease may be another.
    lease_slack: i64,
    waiters: Vec<Waiter>,
    /// Locks that nobody has, as far as the next primary knows.
    free: Vec<&'static str>,
    /// The highest fence that anybody was told.
    highest: u64,
}

impl Scene {
    /// Locks that are held, contended and free.
    pub(super) fn on(primary: &Server, prefix: &str) -> Self {
        let key = |name: &str| format!("{prefix}{name}");
        let mut client = primary.client();
        let held = client.grant(key("held"), "alice", LONG);
        let held_until = deadline(&mut client, key("held").as_bytes());
        client.grant(key("contended"), "alice", LONG);
        let waits = |owner| Waiter::of(primary, &key("contended"), owner);
        let waiters = vec![waits("bob"), waits("carol")];
        let prefix = prefix.to_owned();
        let free = vec!["free", "new"];
        let mut scene =
            Self { prefix, held, held_until, lease_slack: 0, waiters, free, highest: 0 };
        scene.goes_on(primary);
        scene
    }

    /// A lock is granted and released again and again.
    pub(super) fn goes_on(&mut self, primary: &Server) {
        let mut client = primary.client();
        for _ in 0..10 {
            let fence = client.grant(self.key("free"), "churn", LONG);
            assert!(self.told(fence));
            assert!(client.release(self.key("free"), "churn"));
        }
    }

    /// The same, and another one is granted, of which the next primary does not hear.
    pub(super) fn goes_on_unheard(&mut self, primary: &Server) {
        self.goes_on(primary);
        let fence = primary.client().grant(self.key("unheard"), "alice", LONG);
        assert!(self.told(fence));
        self.free.push("unheard");
    }

    /// Somebody was told this fence. Whether it is above all that were told before.
    pub(super) fn told(&mut self, fence: u64) -> bool {
        let grows = fence > self.highest;
        self.highest = self.highest.max(fence);
        grows
    }

    /// The keys will be moved by `MIGRATE`, which tells the other node how much is left of a lease and not when it ends.
    pub(super) fn by_clocks_that_differ_by(mut self, difference: Duration) -> Self {
        let transfer = Duration::from_secs(1);
        self.lease_slack = (difference + transfer).as_millis().try_into().unwrap();
        self
    }

    #[track_caller]
    pub(super) fn all_wait(&self, primary: &Server) {
        self.waiters.iter().for_each(|waiter| waiter.assert_waits(primary));
    }

    /// Those who wait are granted the lock one after another, here where they wait; then alice has it again.
    #[track_caller]
    pub(super) fn hands_on(&mut self, primary: &Server) {
        let (mut client, key) = (primary.client(), self.key("contended"));
        let mut holder = "alice";
        for (mut waiter, owner) in self.waiters.drain(..).zip(["bob", "carol"]) {
            assert!(client.release(&key, holder), "{holder} holds it");
            let fence = waiter.fence();
            assert!(fence > self.highest, "{fence} is not above {}", self.highest);
            self.highest = fence;
            holder = owner;
        }
        assert!(client.release(&key, holder), "{holder} holds it");
        let fence = client.grant(&key, "alice", LONG);
        assert!(self.told(fence));
    }

    /// Each waiter is told to ask elsewhere, or its connection ends; what they were told.
    #[track_caller]
    pub(super) fn sends_all_waiters_away(&mut self) -> Vec<String> {
        let mut told_by_now = Vec::new();
        for mut waiter in self.waiters.drain(..) {
            match waiter.client.try_receive() {
                Err(_) => {}
                Ok(Value::ServerError(told)) if SENT_AWAY.contains(&told.code()) => {
                    told_by_now.push(format!(
                        "{} {}",
                        told.code(),
                        told.details().unwrap_or_default()
                    ));
                }
                Ok(other) => panic!("it was told {other:?}"),
            }
        }
        told_by_now
    }

    /// What was replicated is as it was, and whatever is granted now has a higher fence than anything before.
    #[track_caller]
    pub(super) fn continues_on(&self, primary: &Server) {
        let mut client = primary.client();
        for name in self.free.iter().rev() {
            let fence = client.grant(self.key(name), "zoe", LONG);
            assert!(fence > self.highest, "{name}: {fence} is not above {}", self.highest);
        }

        let held = self.key("held");
        assert_eq!(client.check(&held, "alice"), Some(self.held), "it is still held");
        let until = deadline(&mut client, held.as_bytes());
        assert!(
            (until - self.held_until).abs() <= self.lease_slack,
            "until {until}, not {}",
            self.held_until
        );
        assert_eq!(client.acquire(&held, "zoe", LONG), None);
        assert!(client.release(&held, "alice"));
        assert!(client.grant(&held, "zoe", LONG) > self.highest);

        let contended = self.key("contended");
        let mut bob = Waiter::of(primary, &contended, "bob");
        let mut carol = Waiter::of(primary, &contended, "carol");
        assert!(client.release(&contended, "alice"), "it is still held");
        let fence = bob.fence();
        assert!(fence > self.highest);
        carol.assert_waits(primary);
        assert!(client.release(&contended, "bob"));
        assert!(carol.fence() > fence);
    }

    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
