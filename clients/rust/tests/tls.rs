//! Encrypted connections.

use crate::scene::{LONG, millis, soon};
use leasehold_client::{Error, Locks, Settings, Tls};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use std::fs;
use testkit::{Server, lacks_tls};

fn url(server: &Server) -> String {
    format!("rediss://127.0.0.1:{}", server.port())
}

fn pem(server: &Server, file: &str) -> Vec<u8> {
    fs::read(server.dir().join(file)).unwrap()
}

/// Whoever shows what the server shows.
fn known_to(server: &Server) -> Tls {
    Tls::new().identity(pem(server, "tls.crt"), pem(server, "tls.key"))
}

#[tokio::test]
async fn a_lock_is_held_and_waited_for_over_encrypted_connections() {
    if lacks_tls() {
        return;
    }
    let server = Server::builder().clients_over_tls().start();
    let tls = known_to(&server).trusting(pem(&server, "tls.crt"));
    let settings = Settings::default().ttl(LONG).tls(tls);
    assert!(!format!("{settings:?}").contains("PRIVATE KEY"));
    let locks = Locks::connect_with(url(&server), settings).await.unwrap();
    let first = locks.lock("printer").await.unwrap();
    assert!(locks.try_lock("printer").await.unwrap().is_none());
    let fence = first.fence();
    let second = tokio::spawn(locks.lock("printer").into_future());
    drop(first);
    assert!(soon(second).await.unwrap().unwrap().fence() > fence);
    locks.settle().await;
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_talked_to() {
    if lacks_tls() {
        return;
    }
    let server = Server::builder().clients_over_tls().start();
    let settings = Settings::default().within(millis(100)).tls(known_to(&server));
    let refused = Locks::connect_with(url(&server), settings).await;
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_certificate_that_is_none_is_named() {
    let settings = Settings::default().tls(Tls::new().identity("nonsense", "nonsense"));
    let refused = Locks::connect_with("rediss://127.0.0.1:1", settings).await;
    let Err(Error::Setting { name, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(name, "tls");
}

#[tokio::test]
async fn that_only_one_side_speaks_tls_is_an_error_that_says_so() {
    if lacks_tls() {
        return;
    }
    let settings = Settings::default().within(millis(100)).response(millis(500));
    let why = async |url: String, settings| {
        let Err(error) = Locks::connect_with(url, settings).await else { panic!("it connected") };
        error.to_string()
    };
    let encrypted = Server::builder().clients_over_tls().start();
    let error = why(crate::scene::url(encrypted.port()), settings.clone()).await;
    assert!(error.contains("TLS"), "{error}");
    let plain = crate::scene::server();
    let error = why(url(&plain), settings.clone().tls(known_to(&encrypted))).await;
    assert!(
        error.contains("does not speak TLS") || error.contains("speak TLS on this port"),
        "{error}"
    );
}

/// Without its certificates it would be somebody else.
#[tokio::test]
async fn a_redis_client_with_certificates_is_refused_and_one_without_is_given_them() {
    if lacks_tls() {
        return;
    }
    let server = Server::builder().clients_over_tls().start();
    let (client_cert, client_key) = (pem(&server, "tls.crt"), pem(&server, "tls.key"));
    let client_tls = Some(ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: None };
    let client = Client::build_with_tls(url(&server), certificates).unwrap();
    let refused = Locks::new(&client).unwrap_err();
    assert!(matches!(&refused, Error::Setting { name, .. } if name == "target"), "{refused}");
    let client = Client::open(url(&server)).unwrap();
    let tls = known_to(&server).trusting(pem(&server, "tls.crt"));
    let locks = Locks::with_settings(&client, Settings::default().tls(tls)).unwrap();
    assert!(soon(locks.try_lock("printer")).await.unwrap().is_some());
    locks.settle().await;
}
