//! Who is who on encrypted connections.

use crate::Error;
use redis::{ErrorKind, RedisError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, crypto};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

    pub(crate) fn connector(&self) -> Result<TlsConnector, Error> {
        self.config().map(|config| TlsConnector::from(Arc::new(config))).map_err(unusable)
    }

    fn config(&self) -> Result<ClientConfig, String> {
        // Named, for a program may have several of them.
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let config = config.with_root_certificates(self.trusted()?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("the key: {e}"))?;
        config.with_client_auth_cert(chain, key).map_err(|e| e.to_string())
    }

    fn trusted(&self) -> Result<RootCertStore, String> {
        let mut store = RootCertStore::empty();
        let Some(root) = &self.root else {
            // Those of the operating system that nobody can read are left out.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(store);
        };
        for certificate in certificates(root)? {
            store.add(certificate).map_err(|e| e.to_string())?;
        }
        Ok(store)
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("there is no certificate in PEM format".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("the certificate: {error}")),
    }
}

fn unusable(reason: String) -> Error {
    Error::setting("tls", &reason)
}

/// Encrypts a connection that was just opened.
pub(crate) async fn handshake(
    connector: &TlsConnector,
    host: &str,
    stream: TcpStream,
    limit: Duration,
) -> Result<TlsStream<TcpStream>, RedisError> {
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
    let name = name.map_err(|error| {
        let what = "no name that a certificate could be for";
        RedisError::from((ErrorKind::InvalidClientConfig, what, error.to_string()))
    })?;
    match timeout(limit, connector.connect(name, stream)).await {
        Ok(encrypted) => encrypted.map_err(explained),
        Err(_) => {
            let what =
                "the TLS handshake was not answered: does the server speak TLS on this port?";
            Err(io::Error::new(io::ErrorKind::TimedOut, what).into())
        }
    }
}

/// A server that does not speak TLS answers with text, or hangs up.
fn explained(error: io::Error) -> RedisError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            let what = "the server does not speak TLS on this port: use redis://";
            RedisError::from(io::Error::other(what))
        }
        _ => RedisError::from(error),
    }
}

impl fmt::Debug for Tls {
    /// Keys belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
