//! A link on which some connections are slower than others. Ends of either side are passed on in order.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct SlowLink {
    port: u16,
    over: Arc<AtomicBool>,
}

impl SlowLink {
    /// All connections but the first so many take this much longer, each way.
    pub(crate) fn to(server: u16, fast: u64, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (over, accepted) = (Arc::<AtomicBool>::default(), AtomicU64::new(0));
        let shared = Arc::clone(&over);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.load(SeqCst) {
                    return;
                }
                let client = client.unwrap();
                let is_fast = accepted.fetch_add(1, SeqCst) < fast;
                let delay = if is_fast { Duration::ZERO } else { delay };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), delay);
                pass_on(server, client, delay);
            }
        });
        Self { port, over }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// What came when; nothing is the end.
type Parcel = (Instant, Vec<u8>);

fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (send, receive): (Sender<Parcel>, Receiver<Parcel>) = channel();
    thread::spawn(move || {
        let mut bytes = [0; 16_384];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            let is_over = send.send((Instant::now(), bytes[..count].to_vec())).is_err();
            if is_over || count == 0 {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (came, bytes) in receive {
            thread::sleep((came + delay).saturating_duration_since(Instant::now()));
            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    });
}
