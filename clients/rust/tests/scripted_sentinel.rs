//! A sentinel that says what the test wants.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct ScriptedSentinel {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The port of the primary.
    named: AtomicU16,
    over: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl ScriptedSentinel {
    pub(crate) fn that_names(primary: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        state.named.store(primary, SeqCst);
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.over.load(SeqCst) {
                    return;
                }
                let (client, state) = (client.unwrap(), Arc::clone(&shared));
                state.connections.lock().unwrap().push(client.try_clone().unwrap());
                thread::spawn(move || answer(client, &state));
            }
        });
        Self { port, state }
    }

    pub(crate) fn names(&self, primary: u16) {
        self.state.named.store(primary, SeqCst);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for ScriptedSentinel {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for connection in self.state.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// One line of an answer for each command; they come whole, because they are short.
fn answer(mut client: TcpStream, state: &State) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        for command in text.split('*').skip(1) {
            let port = state.named.load(SeqCst).to_string();
            let reply = if command.contains("GET-MASTER-ADDR-BY-NAME") {
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            } else if command.contains("INFO\r\n") && !command.contains("CLIENT") {
                "$0\r\n\r\n".to_owned()
            } else {
                "-ERR unknown command\r\n".to_owned()
            };
            if client.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}
