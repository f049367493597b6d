//! Who is who on encrypted connections.

use redis::{ClientTlsConfig, TlsCertificates};
use std::fmt;

/// Whom to trust, and who to be, on connections to `rediss://` addresses.
///
/// Unless told otherwise, a client trusts whom its operating system trusts, or the certificates in the file that
/// `SSL_CERT_FILE` names, and shows no certificate itself.
///
/// ```no_run
/// use leasehold_client::{Settings, Tls};
///
/// # fn main() -> std::io::Result<()> {
/// let tls = Tls::new()
///     .trusting(std::fs::read("ca.crt")?)
///     .identity(std::fs::read("client.crt")?, std::fs::read("client.key")?);
/// let settings = Settings::default().tls(tls);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    root: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// The usual trust, and no identity.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts servers whose certificate was signed by one of these, in PEM format, and nobody else.
    #[must_use]
    pub fn trusting(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.root = Some(certificates.into());
        self
    }

    /// Shows servers this certificate, which belongs to this key, both in PEM format.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    pub(crate) fn certificates(&self) -> TlsCertificates {
        let client = |(client_cert, client_key)| ClientTlsConfig { client_cert, client_key };
        TlsCertificates {
            client_tls: self.identity.clone().map(client),
            root_cert: self.root.clone(),
        }
    }
}

impl fmt::Debug for Tls {
    /// Keys belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
