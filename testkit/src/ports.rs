//! Free ports. Another process may take one before the server does, so callers retry.

use super::Seed;
use std::net::TcpListener;

/// The distance between the port of a cluster node and the port of its bus, on every server.
const TO_THE_BUS: u16 = 10_000;

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A port for a node of a cluster. The system gives neither this port nor the port of the bus to
/// outgoing connections: a node that was down must find both free when it comes back.
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
