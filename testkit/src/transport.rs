//! A connection that carries bytes to a server and back: a unix socket, TCP, or TLS.

use super::tls::Tunnel;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
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
    let (mut byte, flags) = (0_u8, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    // SAFETY: the borrow keeps the socket open, and the buffer has room for the one byte.
    let count = unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
    match count {
        1.. => Ok(true),
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// Makes the system end the connection with a reset when the socket is closed.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let (option, size) = ((&raw const at_once).cast(), size_of_val(&at_once));
    // SAFETY: the borrow keeps the socket open, and the option outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            option,
            size.try_into().unwrap(),
        )
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}
