//! What a grant costs beside the raw protocol, and what a task costs that waits.
//!
//! ```sh
//! cargo run --release -p leasehold-client --example compare              # ratios, with `--check` an error below the goals
//! cargo run --release -p leasehold-client --example compare -- --memory  # of 10,000 tasks that wait
//! ```
//!
//! It starts a server with the module (`LEASEHOLD_SERVER`, `LEASEHOLD_MODULE`). The raw protocol is one connection, on which
//! all tasks write without waiting for each other, and one that is subscribed to the grants: `ACQUIRE … TICKET … NOTIFY` and
//! `RELEASE`, two commands a grant. The ways take turns of a second, and medians are compared.

use leasehold_client::Locks;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use testkit::Server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const TASKS: usize = 16;
const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_secs(1);
const LOCK: &str = "hot";
const CHANNEL: &str = "leasehold:raw";

/// One connection for requests and one for messages, with no more than they need.
#[derive(Clone)]
struct Raw {
    requests: mpsc::UnboundedSender<(String, oneshot::Sender<Option<u64>>)>,
    told: Arc<Mutex<HashMap<String, oneshot::Sender<u64>>>>,
}

/// The words of a request, as servers read them.
fn request(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// An integer, or nil.
async fn number(reader: &mut BufReader<OwnedReadHalf>) -> Outcome<Option<u64>> {
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    match line.trim_end().split_at_checked(1) {
        Some((":", number)) => Ok(Some(number.parse()?)),
        Some(("$", "-1")) | Some(("_", "")) => Ok(None),
        _ => Err(format!("unexpected reply {line:?}").into()),
    }
}

impl Raw {
    async fn connect(port: u16) -> Outcome<Self> {
        let (reading, mut writing) = TcpStream::connect(("127.0.0.1", port)).await?.into_split();
        let (requests, mut asked) =
            mpsc::unbounded_channel::<(String, oneshot::Sender<Option<u64>>)>();
        let waiting: Arc<Mutex<VecDeque<oneshot::Sender<Option<u64>>>>> = Arc::default();
        let sent = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while asked.recv_many(&mut batch, 64).await > 0 {
                let mut bytes = String::new();
                for (words, answer) in batch.drain(..) {
                    bytes.push_str(&words);
                    sent.lock().unwrap_or_else(PoisonError::into_inner).push_back(answer);
                }
                if writing.write_all(bytes.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            let mut reader = BufReader::new(reading);
            while let Ok(number) = number(&mut reader).await {
                let first = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let _ = first.map(|answer| answer.send(number));
            }
        });
        let (subscribed, mut subscribing) =
            TcpStream::connect(("127.0.0.1", port)).await?.into_split();
        subscribing.write_all(request(&["SUBSCRIBE", CHANNEL]).as_bytes()).await?;
        let told: Arc<Mutex<HashMap<String, oneshot::Sender<u64>>>> = Arc::default();
        let hearing = Arc::clone(&told);
        tokio::spawn(async move {
            let (_open, mut reader, mut line) =
                (subscribing, BufReader::new(subscribed), String::new());
            loop {
                line.clear();
                if reader.read_line(&mut line).await.unwrap_or_default() == 0 {
                    return;
                }
                // `<fence> <length of owner> <owner> <key>`
                let mut words = line.split(' ');
                let (Some(Ok(fence)), Some(_), Some(owner)) =
                    (words.next().map(str::parse), words.next(), words.next())
                else {
                    continue;
                };
                let waiter = hearing.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
                let _ = waiter.map(|waiter| waiter.send(fence));
            }
        });
        Ok(Self { requests, told })
    }

    async fn ask(&self, words: &[&str]) -> Outcome<Option<u64>> {
        let (answer, answered) = oneshot::channel();
        self.requests.send((request(words), answer))?;
        Ok(answered.await?)
    }

    async fn grant(&self, owner: &str) -> Outcome {
        let (tell, told) = oneshot::channel();
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.to_owned(), tell);
        let asked = ["LOCK.ACQUIRE", LOCK, owner, "30000", "TICKET", "15000", "NOTIFY", CHANNEL];
        if self.ask(&asked).await?.is_none() {
            told.await?;
        }
        self.ask(&["LOCK.RELEASE", LOCK, owner]).await?;
        Ok(())
    }

    async fn alone(&self, owner: &str) -> Outcome {
        self.ask(&["LOCK.ACQUIRE", LOCK, owner, "30000"]).await?;
        self.ask(&["LOCK.RELEASE", LOCK, owner]).await?;
        Ok(())
    }
}

/// How many grants so many tasks get in a turn.
async fn turn<F>(tasks: usize, grant: impl Fn(usize, u64) -> F) -> Outcome<f64>
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let (count, begun) = (AtomicU32::new(0), Instant::now());
    let (count, grant) = (&count, &grant);
    let work = async |task: usize| -> Outcome {
        for number in 0.. {
            if begun.elapsed() >= TURN {
                break;
            }
            grant(task, number).await?;
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    for done in futures_util::future::join_all((0..tasks).map(work)).await {
        done?;
    }
    Ok(f64::from(count.load(Relaxed)) / begun.elapsed().as_secs_f64())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().div_euclid(2)).copied().unwrap_or_default()
}

async fn compare(server: &Server, tasks: usize) -> Outcome<f64> {
    let raw = Raw::connect(server.port()).await?;
    let locks = Locks::new(redis::Client::open(format!("redis://127.0.0.1:{}", server.port()))?);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port()))?;
    let library = client.get_multiplexed_async_connection().await?;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut by_library = Vec::new();
    for _ in 0..ROUNDS {
        let by_hand = turn(tasks, |task, number| {
            let (raw, owner) = (raw.clone(), format!("owner-of-the-raw-protocol-{task}-{number}"));
            async move { if tasks == 1 { raw.alone(&owner).await } else { raw.grant(&owner).await } }
        });
        theirs.push(by_hand.await?);
        if tasks == 1 {
            let bare = turn(1, |_, number| {
                let mut library = library.clone();
                async move {
                    let owner = format!("owner-of-the-library-{number}");
                    let asked = redis::cmd("LOCK.ACQUIRE").arg(LOCK).arg(&owner).arg(30_000).take();
                    asked.exec_async(&mut library).await?;
                    Ok(redis::cmd("LOCK.RELEASE")
                        .arg(LOCK)
                        .arg(&owner)
                        .exec_async(&mut library)
                        .await?)
                }
            });
            by_library.push(bare.await?);
        }
        let by_crate = turn(tasks, |_, _| {
            let locks = locks.clone();
            async move {
                let guard = locks.lock(LOCK).await?;
                guard.release().await.map(drop)?;
                Ok(())
            }
        });
        ours.push(by_crate.await?);
        if let (Some(ours), Some(theirs)) = (ours.last(), theirs.last()) {
            ratios.push(ours / theirs);
        }
    }
    let (ours, theirs, ratio) = (median(ours), median(theirs), median(ratios));
    println!(
        "{tasks:>2} tasks: {ours:>7.0} grants a second, the raw protocol {theirs:>7.0}: {ratio:.2}"
    );
    if tasks == 1 {
        println!("          bare commands over the redis crate {:>7.0}", median(by_library));
    }
    let _ = locks.close(TURN).await;
    Ok(ratio)
}

fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

async fn memory(server: &Server) -> Outcome {
    const WAITS: u64 = 10_000;
    let locks = Locks::new(redis::Client::open(format!("redis://127.0.0.1:{}", server.port()))?);
    let held = locks.lock(LOCK).await?;
    let before = resident()?;
    for _ in 0..WAITS {
        let request = locks.lock(LOCK);
        tokio::spawn(async move { request.await.map(drop) });
    }
    // Their number alone: a list of them would take more memory than they do.
    while locks.info(LOCK).await?.and_then(|info| info.waiters) < Some(WAITS) {
        sleep(Duration::from_millis(100)).await;
    }
    let grown = resident()?.saturating_sub(before).saturating_mul(1_024);
    let each = grown.checked_div(WAITS).unwrap_or_default();
    println!("{WAITS} tasks that wait: {each} bytes each");
    drop(held);
    if each > 3_072 { Err("more than 3 kB".into()) } else { Ok(()) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let server = Server::builder().tcp().start();
    if std::env::args().any(|arg| arg == "--memory") {
        return memory(&server).await;
    }
    let (contended, alone) = (compare(&server, TASKS).await?, compare(&server, 1).await?);
    let is_checked = std::env::args().any(|arg| arg == "--check");
    if is_checked && (contended < 0.85 || alone < 0.95) {
        return Err("below 0.85 of the raw protocol with 16 tasks, or 0.95 alone".into());
    }
    Ok(())
}
