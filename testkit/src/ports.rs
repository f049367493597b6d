//! Ports that are free now. Another process may take one before the server does, so whoever asks tries again.

use super::Seed;
use std::net::TcpListener;

/// How far above its own port a node of a cluster has its bus, on every server.
const TO_THE_BUS: u16 = 10_000;

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A port for a node of a cluster. Neither it nor that of its bus is one that the system gives to outgoing
/// connections: a node that is down for a while must find both free when it comes back.
pub fn free_port_of_a_node() -> u16 {
    const FIRST: u16 = 11_000;
    const LAST: u16 = 22_000;
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut seed = Seed::fresh();
    loop {
        let port = FIRST + u16::try_from(seed.below(usize::from(LAST - FIRST))).unwrap();
        if is_free(port) && is_free(port + TO_THE_BUS) {
            return port;
        }
    }
}
