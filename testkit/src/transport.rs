//! A connection that carries bytes to a server and back: a unix socket, TCP, or TLS.

use super::tls::Tunnel;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(crate) trait Transport: Read + Write + Send + AsFd {
    /// A read that takes longer fails. `None` means without limit.
    fn set_deadline(&self, deadline: Option<Duration>) -> io::Result<()>;

    /// Shuts down one half of the connection or both, for every process that has the socket.
    fn shut_down(&self, how: Shutdown) -> io::Result<()>;
}

/// Repeats a read that a signal has interrupted. Linux interrupts a read with a deadline whenever a stopped
/// process continues.
pub(crate) struct Uninterrupted<'t>(pub(crate) &'t mut dyn Transport);

impl Read for Uninterrupted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                came => return came,
            }
        }
    }
}

impl Transport for UnixStream {
    fn set_deadline(&self, deadline: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(deadline)
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }
}

impl Transport for TcpStream {
    fn set_deadline(&self, deadline: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(deadline)
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }
}

impl Transport for Tunnel {
    fn set_deadline(&self, deadline: Option<Duration>) -> io::Result<()> {
        self.stream().set_deadline(deadline)
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        self.stream().shut_down(how)
    }
}

impl AsFd for Tunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

/// Whether unread bytes have arrived. The end of the connection is an error.
pub(crate) fn has_arrived(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    match SockRef::from(&socket).recv_with_flags(&mut [MaybeUninit::uninit()], flags) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the system end the connection with a reset when the socket is closed.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
}
