//! What goes on in the background is waited for.

use crate::scene::{LONG, held, millis, server, url};
use crate::support::Proxy;
use leasehold_client::{Locks, Settings};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn settle_waits_for_releases_before_it_and_not_for_those_after() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let locks = Locks::connect_with(url(proxy.port()), Settings::default()).await.unwrap();
    proxy.slow(millis(5));
    let busy: Vec<_> = (0..16)
        .map(|number| {
            let (locks, name) = (locks.clone(), format!("busy:{number}"));
            tokio::spawn(async move {
                loop {
                    drop(locks.lock(&name).ttl(LONG).await.unwrap());
                }
            })
        })
        .collect();
    for _ in 0..10 {
        drop(locks.lock("printer").ttl(LONG).await.unwrap());
        let begun = Instant::now();
        locks.settle().await;
        assert!(begun.elapsed() < millis(1_000), "{:?}", begun.elapsed());
        assert_eq!(held(&server, "printer"), None);
    }
    for task in busy {
        task.abort();
    }
}
