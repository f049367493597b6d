//! A restaurant that gives no table to two guests, in five scenes: one guest after the other, two at once, one whose
//! program crashes, one whose program is paused and writes too late to the database, and one who writes too late to Redis.
//!
//! Run a server with `make run`, then `cargo run -p booking`. `REDIS_URL` names another one.

mod book;

use book::{Book, Written};
use leasehold_client::{Guard, Locks, Released, Settings};
use std::env;
use std::error::Error;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// So short that nobody who looks on gets bored. A program of your own rather takes the default of 30 seconds.
const TTL: Duration = Duration::from_millis(1_500);

/// The menu is on a board: a key of the server of the locks. By its tag it is in the slot of its lock, also in a cluster.
const MENU_LOCK: &str = "{menu}";
const MENU: &str = "{menu}:today";

/// How the program is called to play the guest that crashes.
const CRASHING: &str = "--the-one-that-crashes";

struct Restaurant {
    url: String,
    locks: Locks,
    has_leasehold: bool,
    book: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match evening().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn evening() -> Outcome {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    if env::args().nth(1).as_deref() == Some(CRASHING) {
        return wait_to_be_killed(&url).await;
    }
    let has_leasehold = has_leasehold(&url).await.map_err(|error| {
        format!("{url}: {error}\n`make run` starts a server, and REDIS_URL names another one")
    })?;
    let (locks, folder) = (locks(&url)?, tempfile::tempdir()?);
    let book = folder.path().join("bookings.db");
    let restaurant = Restaurant { url, locks, has_leasehold, book };
    Book::create(&restaurant.book)?;
    restaurant.welcome();
    restaurant.one_after_the_other().await?;
    restaurant.two_at_once().await?;
    restaurant.a_crash().await?;
    restaurant.a_pause().await?;
    restaurant.a_late_write_to_redis().await?;
    restaurant.closing_time()?;
    leave(&restaurant.locks).await
}

/// What is not released when a program ends stays until its lease ends.
async fn leave(locks: &Locks) -> Outcome {
    let left = locks.close(Duration::from_secs(5)).await;
    if left.is_empty() { Ok(()) } else { Err(format!("not released: {left:?}").into()) }
}

async fn has_leasehold(url: &str) -> redis::RedisResult<bool> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    match redis::cmd("LOCK.HELP").exec_async(&mut connection).await {
        Err(error) if error.code() == Some("ERR") => Ok(false),
        asked => asked.map(|()| true),
    }
}

fn locks(url: &str) -> Outcome<Locks> {
    Ok(Locks::with_settings(redis::Client::open(url)?, settings())?)
}

fn settings() -> Settings {
    let wait = Some(Duration::from_secs(10));
    Settings { prefix: "lock:table:".to_owned(), ttl: TTL, wait, ..Settings::default() }
}

impl Restaurant {
    fn welcome(&self) {
        println!(
            "Friday evening. Each table has a lock, such as lock:table:7, and the book is a SQLite database."
        );
        if self.has_leasehold {
            println!("The server has Leasehold: whoever waits, waits in its queue.");
        } else {
            println!("The server has no Leasehold: whoever waits asks again and again.");
        }
    }

    async fn one_after_the_other(&self) -> Outcome {
        println!("\n1. One after the other");
        for (guest, hour) in [("Anna", 18), ("Ben", 20)] {
            let guard = self.locks.lock("7").await?;
            println!("   {guest} has the lock of table 7, with fence {}.", guard.fence());
            self.book_a_free_table(&guard, guest, 7, hour)?;
            if guard.release().await? == Released::Late {
                println!("   {guest} held the lock for too long.");
            }
        }
        Ok(())
    }

    async fn two_at_once(&self) -> Outcome {
        println!("\n2. Two at the same moment");
        println!("   Carla and Dan both want table 4 at 20:00, and neither wants to wait.");
        // Each on a connection of its own, as two programs would be.
        let dans = locks(&self.url)?;
        let (carla, dan) = (self.locks.lock("4").try_now(), dans.lock("4").try_now());
        let (carla, dan) = tokio::join!(carla, dan);
        let (mut refused, mut booked) = (Vec::new(), 0_u32);
        for (guest, tried) in [("Carla", carla?), ("Dan", dan?)] {
            let Some(guard) = tried else {
                refused.push(guest);
                continue;
            };
            println!("   {guest} has the lock, with fence {}.", guard.fence());
            self.book_a_free_table(&guard, guest, 4, 20)?;
            booked = booked.saturating_add(1);
        }
        for guest in refused {
            println!("   {guest} hears at once that somebody has the lock, and writes nothing.");
        }
        if booked != 1 {
            return Err(format!("{booked} guests were booked for one table").into());
        }
        leave(&dans).await
    }

    /// A process of its own has the lock, and is killed.
    async fn a_crash(&self) -> Outcome {
        println!("\n3. A crash");
        let mut program = Command::new(env::current_exe()?)
            .arg(CRASHING)
            .env("REDIS_URL", &self.url)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut fence = String::new();
        if let Some(says) = program.stdout.take() {
            BufReader::new(says).read_line(&mut fence)?;
        }
        program.kill()?;
        program.wait()?;
        println!("   Emma has the lock of table 9, with fence {}.", fence.trim());
        println!("   Her program is killed before it books. Nobody is there to release the lock.");
        let begun = Instant::now();
        let guard = self.locks.lock("9").await?;
        let waited = begun.elapsed().as_secs_f64();
        println!(
            "   Finn waits {waited:.1} s, until her lease has ended: fence {}.",
            guard.fence()
        );
        self.book_a_free_table(&guard, "Finn", 9, 20)
    }

    /// A thread with a runtime of its own stands still, so that nothing renews its lease: as a whole program does when
    /// its machine is suspended.
    async fn a_pause(&self) -> Outcome {
        println!("\n4. A pause");
        let (url, file) = (self.url.clone(), self.book.clone());
        let (paused, is_paused) = oneshot::channel();
        let (wake, is_woken) = mpsc::channel();
        let grace = thread::spawn(move || as_grace(&url, &file, paused, &is_woken));
        if is_paused.await.is_ok() {
            let guard = self.locks.lock("12").await?;
            println!("   Her lease ends. Hugo has the lock, with fence {}.", guard.fence());
            self.book_a_free_table(&guard, "Hugo", 12, 20)?;
        }
        // It fails if she has ended, and then what she says is why.
        let _ = wake.send(());
        grace.join().map_err(|_| "the thread of the paused guest panicked")?
    }

    /// Nothing keeps a fence here: the server looks at the lock, and runs the command or does not.
    async fn a_late_write_to_redis(&self) -> Outcome {
        println!("\n5. A pause, and no database");
        if !self.has_leasehold {
            println!(
                "   Without Leasehold the server does not refuse what a late holder writes to it."
            );
            return Ok(());
        }
        let url = self.url.clone();
        let (paused, is_paused) = oneshot::channel();
        let (wake, is_woken) = mpsc::channel();
        let ida = thread::spawn(move || as_ida(&url, paused, &is_woken));
        if is_paused.await.is_ok() {
            let guard = self.locks.lock(MENU_LOCK).await?;
            println!("   Her lease ends. Jan has the lock, with fence {}.", guard.fence());
            guard.run_command::<()>(&todays_dish("soup")).await?;
            println!("   Jan writes soup on the board.");
        }
        // It fails if she has ended, and then what she says is why.
        let _ = wake.send(());
        ida.join().map_err(|_| "the thread of the paused cook panicked")??;
        let guard = self.locks.lock(MENU_LOCK).await?;
        let dish: String = guard.run_command(redis::cmd("GETDEL").arg(MENU)).await?;
        println!("   The board says {dish}.");
        Ok(())
    }

    fn closing_time(&self) -> Outcome {
        println!("\nThe book says:");
        for (table, hour, guest) in Book::open(&self.book)?.all()? {
            println!("   table {table:>2}   {hour}:00   {guest}");
        }
        println!("Nobody was booked twice, and nobody's booking was overwritten.");
        Ok(())
    }

    /// What the lock is for: from looking to writing, nobody else does either.
    fn book_a_free_table(&self, guard: &Guard, guest: &str, table: u32, hour: u32) -> Outcome {
        let mut book = Book::open(&self.book)?;
        if let Some(other) = book.guest_at(table, hour)? {
            return Err(format!("table {table} is {other}'s at {hour}:00").into());
        }
        say(guest, table, hour, book.write(table, hour, guest, guard.fence().into())?);
        Ok(())
    }
}

fn say(guest: &str, table: u32, hour: u32, written: Written) {
    match written {
        Written::Booked => println!("   {guest} is booked: table {table} at {hour}:00."),
        Written::Refused { newer } => {
            println!("   The database refuses {guest}'s write: it has seen fence {newer}.");
        }
    }
}

fn as_grace(
    url: &str,
    file: &Path,
    paused: oneshot::Sender<()>,
    is_woken: &mpsc::Receiver<()>,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = locks(url)?;
        let guard = locks.lock("12").await?;
        println!("   Grace has the lock of table 12, with fence {}.", guard.fence());
        let mut book = Book::open(file)?;
        if book.guest_at(12, 20)?.is_none() {
            println!("   She sees that the table is free at 20:00, and her program stands still.");
        }
        // Whoever waits for that is gone only if the program ends.
        let _ = paused.send(());
        is_woken.recv()?;
        println!("   Grace's program goes on where it stood still, and writes.");
        let written = book.write(12, 20, "Grace", guard.fence().into())?;
        say("Grace", 12, 20, written);
        match written {
            Written::Booked => Err("a late write was taken".into()),
            Written::Refused { .. } => leave(&locks).await,
        }
    })
}

fn todays_dish(dish: &str) -> redis::Cmd {
    redis::cmd("SET").arg(MENU).arg(dish).take()
}

fn as_ida(url: &str, paused: oneshot::Sender<()>, is_woken: &mpsc::Receiver<()>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // She waits for answers for longer than she stands still. Else she would not learn what became of her write.
        let patient = Settings { response_timeout: Duration::from_secs(60), ..settings() };
        let locks = Locks::with_settings(redis::Client::open(url)?, patient)?;
        let guard = locks.lock(MENU_LOCK).await?;
        println!("   Ida has the lock of the menu, with fence {}.", guard.fence());
        let dish = todays_dish("roast");
        let mut writing = pin!(guard.run_command::<()>(&dish));
        // It has found her lease good, and is about to send.
        if poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await.is_ready() {
            return Err("a write was done before it was sent".into());
        }
        println!(
            "   She writes roast on the board, but her program stands still before that is sent."
        );
        // Whoever waits for that is gone only if the program ends.
        let _ = paused.send(());
        is_woken.recv()?;
        println!("   Ida's program goes on where it stood still, and sends it.");
        match writing.await {
            Err(leasehold_client::Error::Lost { .. }) => {
                println!("   The server refuses Ida's write: the lock is not hers any more.");
            }
            Err(error) => return Err(error.into()),
            Ok(()) => return Err("a late write was taken".into()),
        }
        leave(&locks).await
    })
}

async fn wait_to_be_killed(url: &str) -> Outcome {
    let guard = locks(url)?.lock("9").await?;
    println!("{}", guard.fence());
    std::io::stdout().flush()?;
    std::future::pending().await
}
