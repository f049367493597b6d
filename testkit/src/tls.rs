//! Connections over TLS.
//!
//! They go through `openssl s_client`. For these few tests a TLS library would take longer to
//! compile than everything else.

use std::fs::File;
use std::io::{Read, Result, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The certificate of both server and clients, which they also trust.
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Identity {
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self { certificate: dir.join("tls.crt"), key: dir.join("tls.key") }
    }

    pub(crate) fn create(&self) {
        let output = Command::new("openssl")
            .args("req -x509 -nodes -days 2 -subj /CN=localhost".split(' '))
            .args("-newkey ec -pkeyopt ec_paramgen_curve:prime256v1".split(' '))
            // Some clients refuse a name that is only in the subject, and a server's certificate
            // that is also an authority.
            .args(
                "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE".split(' '),
            )
            .arg("-keyout")
            .arg(&self.key)
            .arg("-out")
            .arg(&self.certificate)
            .output();
        let output =
            output.expect("TLS is tested through the program openssl, which cannot be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A connection that is encrypted by a process.
pub(crate) struct Tunnel {
    /// The standard input and output of the process: a socket, because a pipe cannot be read with a deadline.
    stream: UnixStream,
    process: Child,
}

impl Tunnel {
    pub(crate) fn open(port: u16, identity: &Identity, log: File) -> Result<Self> {
        let (stream, inner) = UnixStream::pair()?;
        let process = Command::new("openssl")
            // -quiet, because s_client would take some letters for its own commands.
            .args("s_client -quiet -verify_quiet -verify_return_error".split(' '))
            .args(["-connect", &format!("127.0.0.1:{port}")])
            .arg("-CAfile")
            .arg(&identity.certificate)
            .arg("-cert")
            .arg(&identity.certificate)
            .arg("-key")
            .arg(&identity.key)
            .stdin(OwnedFd::from(inner.try_clone()?))
            .stdout(OwnedFd::from(inner))
            .stderr(Stdio::from(log))
            .spawn()?;
        Ok(Self { stream, process })
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl Read for Tunnel {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Tunnel {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

/// The process would not end by itself.
impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
