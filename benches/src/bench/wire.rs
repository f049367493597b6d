//! Requests as bytes, and connections that cost the one who measures as little as can be: no parser, no allocation.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Server, bulk_text, strings};

/// A reply that takes longer never comes.
const REPLY_DEADLINE: Duration = Duration::from_secs(60);

/// Appends a command as it goes over the wire.
pub(crate) fn encode(words: &[&str], bytes: &mut Vec<u8>) {
    write!(bytes, "*{}\r\n", words.len()).unwrap();
    for word in words {
        write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
}

pub(crate) fn encoded(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(words, &mut bytes);
    bytes
}

/// A text cut at its spaces.
pub(crate) fn request(line: &str) -> Vec<u8> {
    encoded(&line.split(' ').collect::<Vec<_>>())
}

/// Where the server listens.
pub(crate) fn socket(server: &Server) -> PathBuf {
    let reply = server.cmd("CONFIG GET unixsocket");
    strings(&reply).pop().expect("a unix socket").into()
}

/// A connection whose replies are read line by line.
pub(crate) struct Line {
    stream: UnixStream,
    buffer: Box<[u8]>,
    /// What was received and not yet read: from here …
    begin: usize,
    /// … to here.
    end: usize,
}

impl Line {
    pub(crate) fn to(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(REPLY_DEADLINE)).unwrap();
        Self { stream, buffer: vec![0; 1 << 16].into(), begin: 0, end: 0 }
    }

    pub(crate) fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).unwrap();
    }

    /// How long to wait for what the server sends by itself: see `line_in_time`.
    pub(crate) fn patience(&mut self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    /// The next line that the server sends, without its end.
    pub(crate) fn line(&mut self) -> &[u8] {
        self.line_in_time().expect("a reply in time")
    }

    /// The same, or `None` when patience has ended.
    pub(crate) fn line_in_time(&mut self) -> Option<&[u8]> {
        let mut seen = self.begin;
        loop {
            let unread = &self.buffer[seen..self.end];
            if let Some(at) = unread.iter().position(|&byte| byte == b'\n') {
                let (begin, end) = (self.begin, seen + at);
                self.begin = end + 1;
                return Some(&self.buffer[begin..end - 1]);
            }
            // What is left of a reply moves to the front, so that there is room for the rest of it.
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            seen = self.end;
            assert!(self.end < self.buffer.len(), "a longer line than any that is expected");
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends a request whose reply is one line, and returns that.
    pub(crate) fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.send(request);
        self.line()
    }
}

/// Loads a script; what EVALSHA calls it.
pub(crate) fn load_script(server: &Server, script: &str) -> String {
    bulk_text(&server.cmd(["SCRIPT", "LOAD", script]))
}
