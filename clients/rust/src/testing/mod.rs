//! Locks in memory, for unit tests: with the interface and the rules of those on a server, and without any server.
//!
//! ```
//! use leasehold_client::Locks;
//! use leasehold_client::testing::MemoryServer;
//! use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = MemoryServer::new();
//! let locks = Locks::new(&server); // in place of Locks::new(redis::Client::open(url)?)
//! let other = Locks::new(&server); // another program, with the same locks
//!
//! let guard = locks.lock("printer").await?;
//! assert!(other.lock("printer").try_now().await?.is_none());
//! guard.release().await?;
//! other.lock("printer").wait(Duration::from_secs(60)).await?.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The engine of the module grants these locks, and the client is the one of this crate, so leases, losses, waits and
//! elections are as ever. So is time: a test that pauses the clock of tokio does not pause these locks. There are no replicas
//! to acknowledge a grant, no users, and no events of the server's own, and [`Locks::top`](crate::Locks::top) and
//! [`Locks::log`](crate::Locks::log) are empty. A [guarded](crate::Guard::run_command) command is `SET`, `GET`, `INCR`,
//! `DEL`, `PTTL` or `PEXPIRE`.

mod commands;
mod host;

use crate::server::{Place, Server};
use futures_util::StreamExt;
use host::Host;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisError, Value, ValueCodec,
};
use std::rc::Rc;
use std::thread;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio_util::codec::FramedRead;

/// How much a connection holds that the other side has not read.
const BUFFER: usize = 65_536;

/// A server in memory, which a thread of its own runs. Copies are the same server. It ends with the last copy and the last
/// client.
#[derive(Clone, Debug)]
pub struct MemoryServer {
    connections: UnboundedSender<DuplexStream>,
}

impl MemoryServer {
    /// A server without any locks.
    #[must_use]
    pub fn new() -> Self {
        let (connections, opened) = unbounded_channel();
        let thread = thread::Builder::new().name("leasehold-memory".to_owned());
        // Without a thread, every connection is closed at once, and requests report that.
        let _ = thread.spawn(move || run(opened));
        Self { connections }
    }

    /// A connection that speaks the protocol of Redis, for what the program does beside its locks. The server knows the
    /// commands of the module, those that can be guarded, and `CLIENT KILL TYPE normal`, which cuts the other connections.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        let (theirs, ours) = tokio::io::duplex(BUFFER);
        let _ = self.connections.send(ours);
        theirs
    }

    pub(crate) async fn open(
        &self,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        let opening = MultiplexedConnection::new_with_config(&info, self.connect(), config);
        let (connection, driver) = opening.await?;
        tokio::spawn(driver);
        Ok(connection)
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&MemoryServer> for Server {
    fn from(server: &MemoryServer) -> Self {
        Place::Memory(server.clone()).into()
    }
}

fn run(mut opened: UnboundedReceiver<DuplexStream>) {
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else { return };
    let host = Rc::new(Host::new());
    runtime.block_on(LocalSet::new().run_until(async move {
        spawn_local(Rc::clone(&host).keep_time());
        while let Some(stream) = opened.recv().await {
            spawn_local(serve(Rc::clone(&host), stream));
        }
    }));
}

/// Executes the requests of one connection in their order.
async fn serve(host: Rc<Host>, stream: DuplexStream) {
    let (id, mut replies) = host.connected();
    let (reader, mut writer) = tokio::io::split(stream);
    let mut requests = FramedRead::new(reader, ValueCodec::default());
    loop {
        tokio::select! {
            request = requests.next() => match request {
                Some(Ok(Value::Array(words))) => host.execute(id, &words),
                _ => break,
            },
            reply = replies.recv() => {
                // Without a sender, the connection was killed.
                let Some(reply) = reply else { break };
                if writer.write_all(&reply).await.is_err() {
                    break;
                }
            }
        }
    }
    host.disconnected(id);
}
