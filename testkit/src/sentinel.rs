//! A primary, two replicas, and three sentinels that watch them.
//!
//! ```text
//!   clients ─► primary ◄── proxy ◄──┬── replica, replica
//!                                   └── sentinel, sentinel, sentinel
//! ```
//!
//! All others reach the first primary through a proxy. Cutting it isolates a primary that its
//! clients still reach.

use super::replica;
use super::version::is_older_than;
use super::{
    Proxy, Server, Setup, eventually, role_of, strings, wait_until_in_sync, wait_until_it_is,
};
use redis::Value;
use std::thread;

/// The name that the sentinels have for the group of servers.
const GROUP: &str = "locks";

const QUORUM: usize = 2;

/// Sentinels do most things each second. Since 7.0 they can be told to do them more often, and not
/// to distrust their clock after a short sleep of the machine. A replica is asked for its state
/// each second, and is promoted only if it has answered within five ping periods.
const HURRY: &str = "SENTINEL DEBUG info-period 100 ping-period 300 ask-period 100 publish-period 100 \
                     tilt-trigger 20000";

/// After how long each sentinel takes a silent primary for down: longer than a busy machine delays
/// one. They differ, because sentinels that notice at the same moment would each vote for
/// themselves.
const DOWN_AFTER_MILLIS: [u64; 3] = [1_000, 1_200, 1_400];

/// Sentinels that could not agree on a leader try again after twice this time.
fn failover_timeout_millis() -> u64 {
    if is_older_than((7, 0)) { 5_000 } else { 1_000 }
}

/// How fast sentinels work.
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
    /// The link between the primary and all others.
    pub proxy: Proxy,
}

impl Sentinels {
    /// Starts all of them. They know each other when this returns.
    pub fn start() -> Self {
        Self::with(|_, setup| setup)
    }

    /// The same, where `setup` changes the setup of the server with that index. The first primary
    /// has index 0.
    pub fn with(setup: impl Fn(usize, Setup) -> Setup) -> Self {
        Self::at_pace(Pace::Hurried, setup)
    }

    /// The same with the usual speed of sentinels.
    pub fn at_pace(pace: Pace, setup: impl Fn(usize, Setup) -> Setup) -> Self {
        let primary = setup(0, Server::builder().tcp()).start();
        let proxy = Proxy::to(primary.port());
        // As a replica too, it has this address for others.
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

    /// A server. At first, 0 is the primary and the others are its replicas.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// A server, to be killed, stopped or started.
    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// The ports of the sentinels.
    pub fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Server::port).collect()
    }

    /// The index of the primary, if all sentinels agree. The error says how they differ.
    pub fn primary(&self) -> Result<usize, Vec<usize>> {
        let seen = self.sentinels.iter().map(|sentinel| {
            let address = sentinel.cmd(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP]);
            self.index_of(strings(&address)[1].parse().unwrap())
        });
        let seen: Vec<_> = seen.collect();
        if seen.iter().all(|index| *index == seen[0]) { Ok(seen[0]) } else { Err(seen) }
    }

    /// Waits until the sentinels have promoted another server than this, and it is a primary.
    pub fn wait_for_another_primary_than(&self, former: usize) -> usize {
        let primary = eventually("the sentinels have another primary", || match self.primary() {
            Ok(index) if index != former => Ok(index),
            seen => Err(seen),
        });
        wait_until_it_is(self.server(primary), "master");
        primary
    }

    /// Waits until the former primary follows this one and has its data.
    pub fn wait_until_follows(&self, replica: usize, primary: usize) {
        wait_until_it_is(self.server(replica), "slave");
        wait_until_in_sync(self.server(primary), self.server(replica));
    }

    /// Waits until the server that the sentinels take for the primary is one and the others follow
    /// it, and returns it. On a busy machine they may have chosen more than once.
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

    /// Waits until the sentinels know each other and the replicas. Before that they would find
    /// nobody to agree with, or to promote.
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
