//! A web service that sells the tickets of concerts: `POST /concerts/opera/tickets` sells one.
//!
//! Several processes may share one database. Each concert has a lock, and the database takes a sale
//! only with the newest fence of that lock.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p programs --bin tickets
//! curl -X POST http://127.0.0.1:8080/concerts/opera/tickets
//! ```

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use leasehold_client::{Locks, Settings};
use rusqlite::{Connection, OptionalExtension, params};
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::select;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

/// With a write-ahead log a sale does not wait for the disk.
const TABLE: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS concerts (
        name TEXT PRIMARY KEY,
        sold INTEGER NOT NULL,
        fence INTEGER NOT NULL -- the largest one that was seen
    )";

const SEATS: i64 = 40;

struct Office {
    locks: Locks,
    database: Mutex<Connection>,
}

enum Sale {
    Ticket(i64),
    SoldOut,
    /// The lock was lost, and another request has it. Nothing was sold.
    Overtaken,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let settings = Settings {
        prefix: "concert:".to_owned(),
        // After two seconds a visitor is told to try again, whether others have the lock or Redis
        // is down.
        wait: Some(Duration::from_secs(2)),
        unreachable_after: Duration::from_secs(2),
        ..Settings::default()
    };
    // It connects with the first sale, so the service also starts while Redis is down.
    let redis = redis::Client::open(variable("REDIS_URL", "redis://127.0.0.1:6379"))?;
    let locks = Locks::with_settings(redis, settings)?;
    let database = Connection::open(variable("DATABASE", "/tmp/tickets.db"))?;
    database.execute_batch(TABLE)?;

    let office = Office { locks: locks.clone(), database: Mutex::new(database) };
    let app = Router::new().route("/concerts/{concert}/tickets", post(sell));
    let listener = TcpListener::bind(variable("ADDRESS", "127.0.0.1:8080")).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut asked_to_stop = signal(SignalKind::terminate())?;
    axum::serve(listener, app.with_state(Arc::new(office)))
        .with_graceful_shutdown(async move {
            select! {
                _ = asked_to_stop.recv() => {}
                _ = ctrl_c() => {}
            }
        })
        .await?;

    // All requests have been answered. A lock that is not released by now stays until its lease
    // ends.
    let left = locks.close(Duration::from_secs(5)).await;
    if left.is_empty() { Ok(()) } else { Err(format!("not released: {left:?}").into()) }
}

/// When the visitor disconnects, this future is dropped: it leaves the queue, or releases its lock.
async fn sell(
    State(office): State<Arc<Office>>,
    Path(concert): Path<String>,
) -> (StatusCode, String) {
    let sale = office
        .locks
        .lock(&concert)
        .run(async |guard| office.sell_one(&concert, guard.fence().into()).await);
    match sale.await {
        Ok(Ok(Sale::Ticket(number))) => (StatusCode::OK, format!("ticket {number}\n")),
        Ok(Ok(Sale::SoldOut)) => (StatusCode::GONE, "sold out\n".to_owned()),
        Ok(Ok(Sale::Overtaken)) => (StatusCode::CONFLICT, "not sold, try again\n".to_owned()),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        // Patience has ended, the lock was lost in the middle, or there is no Redis.
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

impl Office {
    /// Under the lock: nobody else reads or writes between this read and this write.
    async fn sell_one(&self, concert: &str, fence: i64) -> rusqlite::Result<Sale> {
        let sold = match self.sold(concert, fence)? {
            None => return Ok(Sale::Overtaken),
            Some(sold) if sold >= SEATS => return Ok(Sale::SoldOut),
            Some(sold) => sold.saturating_add(1),
        };
        // The ticket is printed, which takes a moment.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(if self.write(concert, sold, fence)? { Sale::Ticket(sold) } else { Sale::Overtaken })
    }

    /// Stores the fence and reads in one step: from then on no write with an older fence is taken.
    fn sold(&self, concert: &str, fence: i64) -> rusqlite::Result<Option<i64>> {
        let sql = "INSERT INTO concerts VALUES (?1, 0, ?2) ON CONFLICT (name)
            DO UPDATE SET fence = excluded.fence WHERE fence <= excluded.fence RETURNING sold";
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        database.query_row(sql, params![concert, fence], |row| row.get(0)).optional()
    }

    /// Whether it was written. It is not if a newer fence has been stored meanwhile.
    fn write(&self, concert: &str, sold: i64, fence: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE concerts SET sold = ?2 WHERE name = ?1 AND fence <= ?3";
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(database.execute(sql, params![concert, sold, fence])? == 1)
    }
}
