//! Many connections driven by one thread: non-blocking unix sockets and epoll. So a round with one
//! active member costs the same among ten members and among ten thousand.
//!
//! A [`Client`](super::Client) blocks until its reply is whole, so each would need a thread.
//!
//! Linux only, like the clock.

use super::Server;
use super::eventually::PATIENCE;
use super::request::{Words, all_encoded, encoded};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use redis::{Parser, Value};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Many connections that are served by one thread.
pub struct Crowd {
    /// The members. `None` is a member that left.
    members: Vec<Option<Member>>,
    epoll: Epoll,
    /// The lock that a large crowd holds.
    _large: Option<MutexGuard<'static, ()>>,
}

/// Tests run in parallel in one process, which may be unable to open the files of two large crowds.
static LARGE: Mutex<()> = Mutex::new(());
const LARGE_SIZE: usize = 4_000;

struct Member {
    stream: UnixStream,
    unread: Vec<u8>,
}

/// A member, and its reply or `None` for the end of its connection.
pub type Received = (usize, Option<Value>);

impl Crowd {
    /// Opens this many connections to the server.
    pub fn of(server: &Server, size: usize) -> Self {
        let large =
            (size >= LARGE_SIZE).then(|| LARGE.lock().unwrap_or_else(PoisonError::into_inner));
        allow_files(size + 4_000);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let mut crowd = Self { members: Vec::with_capacity(size), epoll, _large: large };
        (0..size).for_each(|_| crowd.join(server));
        crowd
    }

    /// Adds a member that has sent nothing yet.
    pub fn join(&mut self, server: &Server) {
        let index = self.size();
        // Connecting blocks while the server's backlog is full.
        let stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_nonblocking(true).unwrap();
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64)).unwrap();
        self.members.push(Some(Member { stream, unread: Vec::new() }));
    }

    /// The number of connections, including members that left.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Sends a command on a member's connection. The command must fit into the socket's buffer, as lock commands do.
    pub fn send(&mut self, index: usize, words: impl Words) {
        let member = self.members[index].as_mut().expect("it left");
        member.stream.write_all(&encoded(words)).unwrap();
    }

    /// Sends all commands in one write.
    pub fn send_all(&mut self, index: usize, commands: &[&str]) {
        let member = self.members[index].as_mut().expect("it left");
        member.stream.write_all(&all_encoded(commands)).unwrap();
    }

    /// Closes one member's connection.
    pub fn leave(&mut self, index: usize) {
        self.members[index] = None;
    }

    /// Waits until at least one member has received something. Returns everything received by then.
    pub fn receive(&mut self) -> Vec<Received> {
        let deadline = Instant::now() + PATIENCE;
        let mut received = Vec::new();
        while received.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "none of {} received anything", self.size());
            for index in self.readable(left.try_into().unwrap()) {
                self.read(index, &mut received);
            }
        }
        received
    }

    /// Waits for one reply to each remaining member, and returns the replies by member. `None` is a lost connection.
    pub fn one_reply_each(&mut self) -> Vec<Option<Value>> {
        let mut replies = vec![None; self.size()];
        let mut missing = self.members.iter().flatten().count();
        while missing > 0 {
            for (index, reply) in self.receive() {
                assert_eq!(replies[index], None, "member {index} received more than one reply");
                replies[index] = reply;
                missing -= 1;
            }
        }
        replies
    }

    /// Waits until every connection has ended, and returns the replies that came before.
    pub fn until_all_left(&mut self) -> Vec<Value> {
        let mut replies = Vec::new();
        while self.members.iter().any(Option::is_some) {
            replies.extend(self.receive().into_iter().filter_map(|(_, reply)| reply));
        }
        replies
    }

    fn readable(&self, within: EpollTimeout) -> Vec<usize> {
        let mut events = [EpollEvent::empty(); 512];
        let found = self.epoll.wait(&mut events, within).unwrap();
        events[..found].iter().map(|event| event.data().try_into().unwrap()).collect()
    }

    fn read(&mut self, index: usize, received: &mut Vec<Received>) {
        let Some(member) = &mut self.members[index] else { return };
        let mut bytes = [0; 4_096];
        let ended = loop {
            match member.stream.read(&mut bytes) {
                Ok(0) => break true,
                Ok(count) => member.unread.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break true,
                Err(error) => panic!("member {index}: {error}"),
            }
        };
        while let Some(reply) = member.next_reply() {
            received.push((index, Some(reply)));
        }
        if ended {
            self.leave(index);
            received.push((index, None));
        }
    }
}

impl Member {
    fn next_reply(&mut self) -> Option<Value> {
        let mut unread = ByteByByte(&self.unread);
        let reply = Parser::new().parse_value(&mut unread).ok()?;
        let left = unread.0.len();
        self.unread.drain(..self.unread.len() - left);
        Some(reply)
    }
}

/// A parser reads as much as it can and drops the bytes after its reply. So this gives it one byte at a time.
struct ByteByByte<'b>(&'b [u8]);

impl Read for ByteByByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(1);
        self.0.read(&mut buffer[..room])
    }
}

/// Allows this process to open this many files, or fails the test.
fn allow_files(wanted: usize) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(wanted as u64 <= most, "{wanted} open files are more than ulimit -Hn allows");
    // The maximum, because other tests of this process open files too.
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}
