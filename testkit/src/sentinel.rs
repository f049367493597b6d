//! A primary, two replicas, and three sentinels that watch them.
//!
//! ```text
//!   clients ─► primary ◄── proxy ◄──┬── replica, replica
//!                                   └── sentinel, sentinel, sentinel
//! ```
//!
//! The rest of the world reaches the first primary through a proxy. Cut, it leaves a primary to itself that its
//! clients still reach.

use super::replica;
use super::version::is_older_than;
use super::{
    Proxy, Server, Setup, eventually, role_of, strings, wait_until_in_sync, wait_until_it_is,
};
use redis::Value;
use std::thread;

/// What the sentinels call the group of servers.
const GROUP: &str = "locks";

const QUORUM: usize = 2;

/// Sentinels do most things each second. Where they can be told to hurry (since 7.0), they do them more often; nor do
/// they take a short sleep of their machine for a sign that their clock is wrong. In five ping periods each replica must
/// have said how it is, which it is asked for each second: otherwise it is not promoted.
const HURRY: &str = "SENTINEL DEBUG info-period 100 ping-period 300 ask-period 100 publish-period 100 \
                     tilt-trigger 20000";

/// When each takes a silent primary for down: not one that is merely slow, on a machine on which much else is tested.
/// Those who did at the same moment would each vote for themselves.
const DOWN_AFTER_MILLIS: [u64; 3] = [1_000, 1_200, 1_400];

/// Sentinels who could not agree on a leader try again after twice this.
fn failover_timeout_millis() -> u64 {
    if is_older_than((7, 0)) { 5_000 } else { 1_000 }
}

/// How often sentinels do what they do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Sentinel's own settings, with which a failover takes half a minute and more.
    Usual,
    /// Settings with which a failover takes a second.
    Hurried,
}

/// A primary, its replicas, and the sentinels that watch them.
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    /// The link between the primary and everybody else.
    pub proxy: Proxy,
}

impl Sentinels {
    /// All of them, which know each other when this returns.
    pub fn start() -> Self {
        Self::with(|_, setup| setup)
    }

    /// With what `setup` adds to the server of that index; that of the first primary is 0.
    pub fn with(setup: impl Fn(usize, Setup) -> Setup) -> Self {
        Self::at_pace(Pace::Hurried, setup)
    }

    /// The same with sentinels that do things as often as they would anywhere.
    pub fn at_pace(pace: Pace, setup: impl Fn(usize, Setup) -> Setup) -> Self {
        let primary = setup(0, Server::builder().tcp()).start();
        let proxy = Proxy::to(primary.port());
        // Whenever it is a replica, the others are to know it under this address.
        primary.cmd(format!("CONFIG SET replica-announce-port {}", proxy.port()));
        let replica =
            |index| setup(index, Server::builder().tcp()).replica_through(proxy.port()).start();
        let servers = vec![primary, replica(1), replica(2)];
        for replica in &servers[1..] {
            wait_until_in_sync(&servers[0], replica);
        }
        let watched = proxy.port();
        let starting = DOWN_AFTER_MILLIS
            .map(|down_after| thread::spawn(move || start_sentinel(watched, down_after, pace)));
        let sentinels = starting.into_iter().map(|sentinel| sentinel.join().unwrap()).collect();
        let sentinels = Self { servers, sentinels, proxy };
        sentinels.wait_until_known();
        sentinels
    }

    /// A server: at first the primary, then the replicas.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// A server that is to be killed, stopped or started anew.
    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// Where the sentinels are.
    #[allow(dead_code, reason = "the tests of the client ask for it")]
    pub fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Server::port).collect()
    }

    /// The index of the primary, as all the sentinels see it; `Err` says how they differ.
    pub fn primary(&self) -> Result<usize, Vec<usize>> {
        let seen = self.sentinels.iter().map(|sentinel| {
            let address = sentinel.cmd(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP]);
            self.index_of(strings(&address)[1].parse().unwrap())
        });
        let seen: Vec<_> = seen.collect();
        if seen.iter().all(|index| *index == seen[0]) { Ok(seen[0]) } else { Err(seen) }
    }

    /// Waits until the sentinels have made another server than this the primary, and it knows.
    pub fn wait_for_another_primary_than(&self, former: usize) -> usize {
        let primary = eventually("the sentinels have another primary", || match self.primary() {
            Ok(index) if index != former => Ok(index),
            seen => Err(seen),
        });
        wait_until_it_is(self.server(primary), "master");
        primary
    }

    /// Waits until the server that was the primary has become a replica of this one, and has what it has.
    pub fn wait_until_follows(&self, replica: usize, primary: usize) {
        wait_until_it_is(self.server(replica), "slave");
        wait_until_in_sync(self.server(primary), self.server(replica));
    }

    /// Waits until whom the sentinels take for the primary is, and the others follow it; and says who it is. On a busy
    /// machine they may have chosen more than once.
    #[allow(dead_code, reason = "the campaign goes on whoever leads")]
    pub fn wait_until_one_leads(&self) -> usize {
        eventually("one leads, and the others follow", || {
            let primary = self.primary().map_err(|seen| format!("{seen:?}"))?;
            for (index, server) in self.servers.iter().enumerate() {
                let leads = role_of(server).as_deref() == Some("master");
                let follows = replica::field(server, "master_link_status").as_deref() == Some("up");
                if leads != (index == primary) || follows == leads {
                    return Err(format!(
                        "{primary} is to lead, {index} leads: {leads}, follows: {follows}"
                    ));
                }
            }
            Ok(primary)
        })
    }

    /// Until then no sentinel would find others to agree with, or a replica to promote.
    fn wait_until_known(&self) {
        for sentinel in &self.sentinels {
            eventually("the sentinel knows the others and both replicas", || {
                let known = ["SENTINELS", "REPLICAS"].map(|what| {
                    match sentinel.cmd(["SENTINEL", what, GROUP]) {
                        Value::Array(known) => known.len(),
                        other => panic!("SENTINEL {what}: {other:?}"),
                    }
                });
                if known == [2, 2] { Ok(()) } else { Err(known) }
            });
        }
    }

    fn index_of(&self, port: u16) -> usize {
        if port == self.proxy.port() {
            return 0;
        }
        let index = self.servers.iter().position(|server| server.port() == port);
        index.unwrap_or_else(|| panic!("nobody is at port {port}"))
    }
}

fn start_sentinel(watched: u16, down_after: u64, pace: Pace) -> Server {
    let timeout = failover_timeout_millis();
    let sentinel = Server::builder()
        .sentinel()
        .config("sentinel", &format!("monitor {GROUP} 127.0.0.1 {watched} {QUORUM}"))
        .config("sentinel", &format!("down-after-milliseconds {GROUP} {down_after}"))
        .config("sentinel", &format!("failover-timeout {GROUP} {timeout}"))
        .start();
    if pace == Pace::Hurried && !is_older_than((7, 0)) {
        assert_eq!(sentinel.cmd(HURRY), Value::Okay);
    }
    sentinel
}
