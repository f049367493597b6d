//! Asks the servers while the view runs: one task for each server, and one for each address, which finds out the
//! servers behind the address. No task waits for another, so a slow or dead server delays only its own figures.

use super::asking::Asker;
use super::told::Round;
use crate::connecting::{Connection, address};
use crate::exit_code::Failure;
use crate::output::printable;
use crate::servers;
use redis::RedisError;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often an address of a cluster or of sentinels is asked which servers are behind it.
const SERVERS_EVERY: Duration = Duration::from_secs(3);

/// News for the view. Addresses identify servers, without passwords.
pub(crate) enum News {
    /// The servers behind this address now.
    Servers {
        place: usize,
        addresses: Vec<String>,
    },
    /// The servers behind this address cannot be found out.
    Lost {
        place: usize,
        why: String,
    },
    Answered {
        address: String,
        round: Box<Round>,
    },
    Silent {
        address: String,
        why: String,
    },
    /// A task has ended, which only a panic can cause.
    Broken,
}

/// What servers are asked beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The address of a server, and the key of one of its locks.
    pub(crate) opened: Option<(String, Vec<u8>)>,
}

/// Starts to report on the servers behind these addresses.
pub(crate) fn watch(
    places: &[Connection],
    every: Duration,
) -> (UnboundedReceiver<News>, watch::Sender<Wanted>) {
    let (tell, news) = unbounded_channel();
    let (want, wanted) = watch::channel(Wanted::default());
    for (place, connection) in places.iter().enumerate() {
        let attending = Attending {
            connection: connection.clone(),
            place,
            every,
            wanted: wanted.clone(),
            tell: tell.clone(),
        };
        guarded(tell.clone(), attending.run());
    }
    (news, want)
}

/// Runs the task, and reports its end. Otherwise nobody would notice a panic.
fn guarded(
    tell: UnboundedSender<News>,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let running = tokio::spawn(task);
    let stop = running.abort_handle();
    tokio::spawn(async move {
        let _stopped_with_this = StopOnDrop(stop);
        if !running.await.is_err_and(|error| error.is_cancelled()) {
            let _ = tell.send(News::Broken);
        }
    })
}

struct StopOnDrop(tokio::task::AbortHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One address, and the tasks that ask the servers behind it.
struct Attending {
    connection: Connection,
    place: usize,
    every: Duration,
    wanted: watch::Receiver<Wanted>,
    tell: UnboundedSender<News>,
}

impl Attending {
    async fn run(self) {
        let mut asking: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
        loop {
            let known: Vec<_> = asking.keys().cloned().collect();
            match servers::urls_of_primaries(&self.connection, &known).await {
                Ok(urls) => {
                    asking.retain(|url, task| urls.contains(url) || stopped(task));
                    for url in &urls {
                        asking.entry(url.clone()).or_insert_with(|| self.ask(url.clone()));
                    }
                    let addresses = urls.iter().map(|url| address(url)).collect();
                    let _ = self.tell.send(News::Servers { place: self.place, addresses });
                }
                Err(failure) => {
                    let _ = self.tell.send(News::Lost { place: self.place, why: failure.text });
                }
            }
            sleep(SERVERS_EVERY).await;
        }
    }

    fn ask(&self, url: String) -> JoinHandle<()> {
        let (connection, every) = (self.connection.clone(), self.every);
        let (wanted, tell) = (self.wanted.clone(), self.tell.clone());
        guarded(self.tell.clone(), ask(connection, url, every, wanted, tell))
    }
}

/// Stops the task, and drops it from the list.
fn stopped(task: &JoinHandle<()>) -> bool {
    task.abort();
    false
}

async fn ask(
    connection: Connection,
    url: String,
    every: Duration,
    mut wanted: watch::Receiver<Wanted>,
    tell: UnboundedSender<News>,
) {
    let address = address(&url);
    loop {
        let Err(why) = ask_until_it_fails(&connection, &url, every, &mut wanted, &tell).await;
        let _ = tell.send(News::Silent { address: address.clone(), why });
        sleep(every).await;
    }
}

async fn ask_until_it_fails(
    connection: &Connection,
    url: &str,
    every: Duration,
    wanted: &mut watch::Receiver<Wanted>,
    tell: &UnboundedSender<News>,
) -> Result<std::convert::Infallible, String> {
    let client = connection.client(url).map_err(|failure: Failure| failure.text)?;
    let server = servers::connect(&client, url).await.map_err(|error| reason(&error))?;
    let address = server.address.clone();
    let mut asker = Asker::new(server);
    loop {
        let opened = wanted.borrow_and_update().opened.clone();
        let opened = opened.filter(|(server, _)| *server == address).map(|(_, key)| key);
        let round = asker.round(opened.as_deref()).await.map_err(|error| reason(&error))?;
        let round = Box::new(round);
        let _ = tell.send(News::Answered { address: address.clone(), round });
        // Opening a lock starts the next round at once.
        let _ = timeout(every, wanted.changed()).await;
    }
}

/// The error as text beside the address of its server.
pub(crate) fn reason(error: &RedisError) -> String {
    if error.is_timeout() {
        return "it does not answer in time".to_owned();
    }
    let text = printable(&error.to_string());
    let text = text.trim_end_matches('.');
    match error.code() {
        Some("NOAUTH") => {
            format!("{text}. Put the password into the address: redis://:password@host:port")
        }
        Some("WRONGPASS") => format!("{text}. Look at user and password in the address"),
        _ => text.to_owned(),
    }
}
