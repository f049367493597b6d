use leasehold_client::{Locks, Released};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL")?; // such as redis://127.0.0.1:6379
    let locks = Locks::new(redis::Client::open(url)?);

    // Try to take the lock, without waiting …
    if let Some(guard) = locks.lock("printer").try_now().await? {
        println!("printing, with fence {}", guard.fence());
        assert_eq!(guard.release().await?, Released::InTime);
    }

    // … or wait for it, in the order of arrival.
    let guard =
        locks.lock("printer").ttl(Duration::from_secs(5)).wait(Duration::from_secs(60)).await?;
    drop(guard); // released in the background

    // Released however the work ends, and stopped if the lock is lost.
    let pages = locks.lock("printer").run(async |_guard| 17).await?;
    assert_eq!(pages, 17);

    // Close last: a lock that is not released by then stays held until its lease ends.
    let left = locks.close(Duration::from_secs(5)).await;
    assert!(left.is_empty(), "not released: {left:?}");
    Ok(())
}
