//! A primary, two replicas, and three sentinels that watch them.
//!
//! ```text
//!   clients ─► primary ◄── proxy ◄──┬── replica, replica
//!                                   └── sentinel, sentinel, sentinel
//! ```
//!
//! All others reach the first primary through a proxy. Cutting the proxy isolates a primary that
//! its clients still reach.

use super::replica;
use super::version::is_older_than;
use super::{
    Proxy, Server, Setup, eventually, role_of, strings, wait_until_in_sync, wait_until_it_is,
};
use redis::Value;
use std::thread;

/// The name of the group of servers in the sentinels' settings.
const GROUP: &str = "locks";

const QUORUM: usize = 2;

/// Sentinels do most things each second. Since 7.0 they can do them more often, and can tolerate a
/// short sleep of the machine without distrusting their clock. A replica is asked for its state
/// each second, and is promoted only if it has answered within five ping periods.
const HURRY: &str = "SENTINEL DEBUG info-period 100 ping-period 300 ask-period 100 publish-period 100 \
                     tilt-trigger 20000";

/// How long a primary must be silent before a sentinel takes it for down: longer than a busy machine delays it. The
/// times differ, because sentinels that notice at the same moment would each vote for themselves.
const DOWN_AFTER_MILLIS: [u64; 3] = [1_000, 1_200, 1_400];

/// Sentinels that did not agree on a leader try again after twice this time.
fn failover_timeout_millis() -> u64 {
    if is_older_than((7, 0)) { 5_000 } else { 1_000 }
}

/// How fast sentinels work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Sentinel's default settings, with which a failover takes at least half a minute.
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
    /// Starts all of them, and waits until they know each other.
    pub fn start() -> Self {
        Self::with(|_, setup| setup)
    }

    /// Like `start`, but `setup` changes the setup of the server with that index. The first primary has index 0.
    pub fn with(setup: impl Fn(usize, Setup) -> Setup) -> Self {
        Self::at_pace(Pace::Hurried, setup)
    }

    /// Like `with`, with sentinels at this pace.
    pub fn at_pace(pace: Pace, setup: impl Fn(usize, Setup) -> Setup) -> Self {
        let primary = setup(0, Server::builder().tcp()).start();
        let proxy = Proxy::to(primary.port());
        // The address that the others use, even when this server is a replica.
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

    /// The index of the primary, if all sentinels agree. The error shows what each of them says.
    pub fn primary(&self) -> Result<usize, Vec<usize>> {
        let seen = self.sentinels.iter().map(|sentinel| {
            let address = sentinel.cmd(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP]);
            self.index_of(strings(&address)[1].parse().unwrap())
        });
        let seen: Vec<_> = seen.collect();
        if seen.iter().all(|index| *index == seen[0]) { Ok(seen[0]) } else { Err(seen) }
    }

    /// Waits until the sentinels have promoted another server, which is now a primary.
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

    /// Waits until the server that the sentinels name is a primary and the others follow it.
    /// Returns its index. On a busy machine the sentinels may have chosen more than once.
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

    /// Waits until the sentinels know each other and the replicas. Before that they could neither
    /// agree nor find a server to promote.
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
