use leasehold_client::{Locks, Options};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new(std::env::var("REDIS_URL")?)?; // such as redis://127.0.0.1:6379

    // Waits for the lock, stops the work if the lock is lost, and releases it at the end.
    let options = Options::new().ttl(Duration::from_secs(10)).wait(Duration::from_secs(60));
    let pages = locks.run("printer", options, async |guard| {
        println!("printing, with fence {}", guard.fence());
        17
    });
    println!("{} pages", pages.await?);

    // Takes the lock only if it is free. The guard renews it until it is released or dropped.
    if let Some(guard) = locks.try_lock("nightly-report").await? {
        println!("writing the report");
        if !guard.release().await?.in_time() {
            eprintln!("the lock was lost before the report was written");
        }
    }

    // The last thing that a program does: it releases what is still held.
    let left = locks.close(Duration::from_secs(5)).await;
    assert!(left.is_empty(), "not released: {left:?}");
    Ok(())
}
