//! Who asks the servers while somebody looks: one task for each server, and one for each address, which finds out what
//! servers are behind it. None waits for another, so one that is slow or down delays nobody else's figures.

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

/// How often one finds out whether other servers are behind an address: of a cluster, or of sentinels.
const SERVERS_EVERY: Duration = Duration::from_secs(3);

/// What happened, for whoever draws. Servers are named by their addresses without passwords.
pub(crate) enum News {
    /// These are the servers behind this address now.
    Servers {
        place: usize,
        addresses: Vec<String>,
    },
    /// Which they are cannot be found out.
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
    /// A task that asks has ended, which none does by itself.
    Broken,
}

/// What is asked of all servers besides the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The address of a server, and the key of one of its locks.
    pub(crate) opened: Option<(String, Vec<u8>)>,
}

/// Tells of the servers behind these addresses from now on.
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

/// Runs it, and tells if it ends: of a panic nobody else would hear.
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

/// Nothing is kept of it.
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
        // Whoever opens a lock does not wait for the next round.
        let _ = timeout(every, wanted.changed()).await;
    }
}

/// What an error is to whoever reads it beside the address.
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
