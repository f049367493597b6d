//! The stream of a connection: TCP, TLS or a unix socket.
//!
//! The redis crate opens such streams too, but does not hand them out. They are opened here because of what this client
//! needs of them:
//!
//! - A connection that is left is closed in two steps. This side says that it sends no more, and reads on until the
//!   server closes. By then the server has executed everything that was sent, in order.
//! - A server that speaks TLS where the client does not, or the other way round, is an error that says so.

use redis::{ConnectionAddr, ErrorKind, RedisError};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// The type of the record with which TLS servers complain of what is not TLS.
const TLS_ALERT: u8 = 0x15;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) struct Socket {
    stream: Box<dyn Stream>,
    /// What comes first may be TLS that was not asked for.
    expects_plain: bool,
    /// The server knows that nothing more will be sent.
    is_finished: bool,
    seen: Arc<Seen>,
}

/// What has come from the server.
#[derive(Default)]
pub(crate) struct Seen {
    something: AtomicBool,
    the_end: AtomicBool,
}

impl Seen {
    /// The server has sent something.
    pub(crate) fn something(&self) -> bool {
        self.something.load(Relaxed)
    }

    /// The server has closed its side: nothing that was sent takes effect any more.
    pub(crate) fn the_end(&self) -> bool {
        self.the_end.load(Relaxed)
    }
}

/// What encrypts connections; of no use where the crate is built without TLS.
#[cfg(feature = "tls")]
pub(crate) type Encryption = tokio_rustls::TlsConnector;
#[cfg(not(feature = "tls"))]
pub(crate) type Encryption = std::convert::Infallible;

impl Socket {
    /// Each step may take so long.
    pub(crate) async fn connect(
        to: &ConnectionAddr,
        encryption: Option<&Encryption>,
        limit: Duration,
    ) -> Result<Self, RedisError> {
        match (to, encryption) {
            (ConnectionAddr::Tcp(host, port), _) => Ok(Self::plain(tcp(host, *port, limit).await?)),
            (ConnectionAddr::Unix(path), _) => Ok(Self::plain(UnixStream::connect(path).await?)),
            #[cfg(feature = "tls")]
            (ConnectionAddr::TcpTls { host, port, .. }, Some(encryption)) => {
                let stream = tcp(host, *port, limit).await?;
                let stream = crate::tls::handshake(encryption, host, stream, limit).await?;
                Ok(Self { expects_plain: false, ..Self::plain(stream) })
            }
            _ => {
                let what = "this address needs a feature that the crate was built without";
                Err(RedisError::from((ErrorKind::InvalidClientConfig, what)))
            }
        }
    }

    fn plain(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            expects_plain: true,
            is_finished: false,
            seen: Arc::default(),
        }
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }
}

async fn tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let stream = timeout(limit, TcpStream::connect((host, port))).await??;
    stream.set_nodelay(true)?;
    // What has not reached the server when a connection is given up must not reach it later, when
    // the same request has been made on another one.
    stream.set_zero_linger()?;
    Ok(stream)
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = bytes.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, bytes))?;
        match bytes.filled().get(before) {
            None => this.seen.the_end.store(true, Relaxed),
            Some(&TLS_ALERT) if this.expects_plain && !this.seen.something() => {
                let what = "the server speaks TLS on this port: use rediss://";
                return Poll::Ready(Err(io::Error::other(what)));
            }
            Some(_) => this.seen.something.store(true, Relaxed),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    /// Ready once the server has closed its side too.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_finished {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            this.is_finished = true;
        }
        loop {
            let mut unheard = [0; 512];
            let mut unheard = ReadBuf::new(&mut unheard);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut unheard))?;
            if unheard.filled().is_empty() {
                this.seen.the_end.store(true, Relaxed);
                return Poll::Ready(Ok(()));
            }
        }
    }
}
