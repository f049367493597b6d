//! A link that goes deaf without a word: what the server says on the connections there are is swallowed from then on,
//! and new connections are not affected. So is a client whose router has forgotten its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

pub(crate) struct Sieve {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Connections below this number are deaf.
    deaf_below: AtomicU64,
    next: AtomicU64,
    over: AtomicBool,
}

impl Sieve {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.over.load(SeqCst) {
                    return;
                }
                let (client, number) = (client.unwrap(), shared.next.fetch_add(1, SeqCst));
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let ends = || (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (there, back) = (ends(), ends());
                thread::spawn(move || pass_on(there.0, there.1, || false));
                let shared = Arc::clone(&shared);
                let is_deaf = move || number < shared.deaf_below.load(SeqCst);
                thread::spawn(move || pass_on(back.1, back.0, is_deaf));
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on, the connections there are hear nothing.
    pub(crate) fn deafen(&self) {
        self.state.deaf_below.store(self.state.next.load(SeqCst), SeqCst);
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> u64 {
        self.state.next.load(SeqCst)
    }
}

impl Drop for Sieve {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_deaf: impl Fn() -> bool) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !is_deaf() && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if !is_deaf() {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
