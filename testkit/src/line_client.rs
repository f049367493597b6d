//! The connection for clients that must be as fast as a server: benchmarks, background traffic and
//! the clients of the campaign.
//!
//! [`Client`](super::Client) makes a value of each reply. That allocates, and a benchmark would
//! measure the parser as well. Here a reply is the line that the server sent, read in place.

use super::transport::{Transport, Uninterrupted, has_arrived, reset};
use std::io::{self, ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A reply that takes longer is taken for missing.
const REPLY_DEADLINE: Duration = Duration::from_secs(60);

/// Longer than any expected line.
const BUFFER_SIZE: usize = 1 << 16;

/// A connection whose replies are read line by line.
pub struct LineClient {
    transport: Box<dyn Transport>,
    buffer: Box<[u8]>,
    /// The bytes that were received and not yet read begin here …
    begin: usize,
    /// … and end here.
    end: usize,
}

impl LineClient {
    /// Connects to a unix socket.
    pub fn over_unix(socket: &Path) -> io::Result<Self> {
        Self::over(UnixStream::connect(socket)?)
    }

    /// Connects to a TCP port.
    pub fn over_tcp(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Self::over(stream)
    }

    fn over(transport: impl Transport + 'static) -> io::Result<Self> {
        transport.set_deadline(Some(REPLY_DEADLINE))?;
        let (transport, buffer) = (Box::new(transport), vec![0; BUFFER_SIZE].into());
        Ok(Self { transport, buffer, begin: 0, end: 0 })
    }

    /// Sets how long to wait for each line. `None` means without limit.
    pub fn set_deadline(&mut self, deadline: Option<Duration>) {
        self.transport.set_deadline(deadline).unwrap();
    }

    /// Sends encoded requests.
    pub fn send(&mut self, requests: &[u8]) {
        self.try_send(requests).unwrap();
    }

    /// Like `send`, for a connection that may be lost.
    pub fn try_send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.transport.write_all(requests)
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> &[u8] {
        self.line_in_time().expect("a reply in time")
    }

    /// The next line, or `None` when the deadline has passed.
    pub fn line_in_time(&mut self) -> Option<&[u8]> {
        match self.try_line() {
            Ok(line) => Some(line),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like `line`, for a connection that may be lost.
    pub fn try_line(&mut self) -> io::Result<&[u8]> {
        let mut seen = self.begin;
        loop {
            let unread = &self.buffer[seen..self.end];
            if let Some(at) = unread.iter().position(|&byte| byte == b'\n') {
                let (begin, end) = (self.begin, seen + at);
                self.begin = end + 1;
                return Ok(&self.buffer[begin..end - 1]);
            }
            // Moves the beginning of a reply to the front, to make room for the rest.
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            seen = self.end;
            assert!(self.end < self.buffer.len(), "a longer line than any that is expected");
            match Uninterrupted(&mut *self.transport).read(&mut self.buffer[self.end..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.end += count,
            }
        }
    }

    /// Closes the connection with a reset, so that nothing more is sent.
    pub fn reset(self) {
        reset(self.transport.as_fd());
    }

    /// Sends a request and returns its reply, which is one line.
    pub fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.send(request);
        self.line()
    }

    /// Whether an unread reply has arrived. The end of the connection is an error.
    pub fn has_reply(&self) -> io::Result<bool> {
        if self.begin < self.end { Ok(true) } else { has_arrived(self.transport.as_fd()) }
    }
}
