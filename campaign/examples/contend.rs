//! Keeps a hundred locks held and waited for on every server that runs in a folder: see `scripts/server-suites`.
//!
//! ```text
//!   contend FOLDER
//! ```
//!
//! Servers come and go while their own test suite runs. They are found among the processes of the
//! machine: the title of a server's process has its port.
//!
//! Each lock has one connection, which holds the lock by one name and waits for it by another. When
//! the lock is taken away, as by a flush, the waiting name is granted it, and the next name waits.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{env, fs, thread};
use testkit::{LineClient, encoded};

const LOCKS: usize = 100;
const DATABASE: usize = 15;
const TTL_MILLIS: u64 = 86_400_000;

const BETWEEN_SEARCHES: Duration = Duration::from_millis(20);
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: contend FOLDER");
        return ExitCode::from(2);
    };
    let folder = Path::new(&folder);
    let mut contended: HashMap<u16, Weak<()>> = HashMap::new();
    loop {
        for port in ports(folder) {
            if contended.get(&port).is_some_and(|alive| alive.strong_count() > 0) {
                continue;
            }
            let alive = Arc::new(());
            contended.insert(port, Arc::downgrade(&alive));
            for lock in 0..LOCKS {
                let alive = Arc::clone(&alive);
                thread::spawn(move || {
                    contend(port, lock);
                    drop(alive);
                });
            }
        }
        thread::sleep(BETWEEN_SEARCHES);
    }
}

/// The ports of the servers that run in the folder.
fn ports(folder: &Path) -> Vec<u16> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| port(&process.path(), folder)).collect()
}

/// The port in a title like `…/redis-server 127.0.0.1:21111`. Sentinels and children that save data have other titles.
fn port(process: &Path, folder: &Path) -> Option<u16> {
    if !fs::read_link(process.join("cwd")).ok()?.starts_with(folder) {
        return None;
    }
    let title = fs::read_to_string(process.join("cmdline")).ok()?;
    let mut words = title.trim_end_matches(['\0', ' ']).split(' ');
    let (program, address) = (words.next()?, words.next()?);
    if !program.ends_with("-server") || words.next().is_some_and(|mode| mode == "[sentinel]") {
        return None;
    }
    address.rsplit_once(':')?.1.parse().ok().filter(|&port| port != 0)
}

/// Contends for a lock until no process listens on the port.
fn contend(port: u16, lock: usize) {
    let (mut turn, mut rest) = (0, FIRST_REST);
    while let Ok(client) = LineClient::over_tcp((Ipv4Addr::LOCALHOST, port)) {
        let before = turn;
        // Any error may end it: the server may be a replica, be loading, ask for a password, or close the connection.
        let _ = hold_and_wait(client, lock, &mut turn);
        rest = if turn > before { FIRST_REST } else { LONGEST_REST.min(rest.saturating_mul(2)) };
        thread::sleep(rest);
    }
}

/// Holds the lock and waits for it in turn, until the connection ends or a reply is an error.
fn hold_and_wait(mut client: LineClient, lock: usize, turn: &mut u64) -> io::Result<()> {
    client.set_deadline(None);
    let mut ask = |command: String| -> io::Result<()> {
        client.try_send(&encoded(command))?;
        let reply = client.try_line()?;
        if reply.starts_with(b"-") { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    };
    ask(format!("SELECT {DATABASE}"))?;
    loop {
        ask(format!("LOCK.ACQUIRE contended:{lock} {lock}-{turn} {TTL_MILLIS}"))?;
        let next = turn.saturating_add(1);
        ask(format!("LOCK.ACQUIRE contended:{lock} {lock}-{next} {TTL_MILLIS} BLOCK 0"))?;
        *turn = next;
    }
}
