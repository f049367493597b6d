//! Waiting behind a proxy that ends idle connections: what `docs/proxies.md` says of a place in the
//! queue.

use super::{LONG, Waiter, owners};
use redis::Value;
use std::time::Duration;
use testkit::{Proxy, Server, eventually};

/// Long enough for a machine that is busy with other tests.
const IDLE_LIMIT: Duration = Duration::from_secs(2);

/// A server on which alice holds `k`, and a proxy before it.
fn behind_a_proxy() -> (Server, Proxy) {
    let server = Server::builder().tcp().start();
    let proxy = Proxy::with_idle_limit(server.port(), IDLE_LIMIT);
    server.client().grant("k", "alice", LONG);
    (server, proxy)
}

fn wait_until_order_is(server: &Server, order: &[&str]) {
    eventually("the queue is as expected", || match owners(server, "k") {
        found if found == order => Ok(()),
        found => Err(found),
    });
}

#[test]
fn a_wait_longer_than_the_idle_limit_of_a_proxy_loses_its_place() {
    let (server, proxy) = behind_a_proxy();
    let mut bob = Waiter::sends_on(proxy.client(), &server, "LOCK.ACQUIRE k bob 60000 BLOCK 60000");
    let mut carol = Waiter::of(&server, "k", "carol");
    bob.client.assert_closed();
    wait_until_order_is(&server, &["carol"]);

    // He asks again, and stands at the end.
    let mut bob = Waiter::sends_on(proxy.client(), &server, "LOCK.ACQUIRE k bob 60000 BLOCK 60000");
    assert_eq!(owners(&server, "k"), ["carol", "bob"]);
    assert!(server.client().release("k", "alice"));
    carol.fence();
    assert!(server.client().release("k", "carol"));
    bob.fence();
}

#[test]
fn asking_again_in_time_on_another_connection_keeps_the_place_beyond_the_idle_limit() {
    const REQUEST: &str = "LOCK.ACQUIRE k bob 60000 BLOCK 60000";
    let (server, proxy) = behind_a_proxy();
    let mut bob = Waiter::sends_on(proxy.client(), &server, REQUEST);
    let mut other = proxy.client();
    let mut carol = Waiter::of(&server, "k", "carol");

    // Each of the two is used in every other turn. All turns together last for two limits and more.
    let mut clock = server.client();
    for _ in 0..10 {
        let next_turn = clock.now() + 450;
        eventually("it is the next turn", || match clock.now() {
            now if now >= next_turn => Ok(()),
            now => Err(now),
        });
        let mut former = std::mem::replace(&mut bob, Waiter::sends_on(other, &server, REQUEST));
        let told = former.reply();
        assert!(matches!(&told, Value::ServerError(told) if told.code() == "REPLACED"), "{told:?}");
        assert_eq!(owners(&server, "k"), ["bob", "carol"]);
        other = former.client;
    }
    assert!(server.client().release("k", "alice"));
    bob.fence();
    carol.assert_waits(&server);
    assert!(server.client().release("k", "bob"));
    carol.fence();
}
