//! Errors that say why.

use super::{Scenario, quick};
use crate::adapter::{Trouble, Unsupported};
use crate::program::lock;
use crate::scene::{Scene, at, at_port, server, with};
use serde_json::json;
use std::panic::panic_any;
use testkit::{Server, lacks_tls};

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "cause-of-unreachable",
        "a server that refuses connections is told as the cause of the error",
        nobody_listens,
    ),
    quick(
        "cause-of-unreachable-later",
        "a server that has died is told as the cause of the error",
        dead_server,
    ),
    quick(
        "cause-of-a-refused-certificate",
        "a certificate that is not trusted is told as the cause of the error",
        untrusted_certificate,
    ),
];

fn nobody_listens(scene: &Scene<'_>) {
    let mut server = server();
    server.kill();
    let program = scene.open(&with(at(&server), json!({ "within": 1_000 })));
    let (trouble, _) = program.fail_to_try(&lock("x"));
    assert_eq!(trouble.kind, "unreachable");
    assert_says_refused(&trouble);
}

fn dead_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.open(&with(at(&server), json!({ "within": 1_000 })));
    assert_eq!(program.acquire(&lock("x")).release(), "released");
    server.kill();
    let (trouble, _) = program.fail_to_try(&lock("x"));
    assert_eq!(trouble.kind, "unreachable");
    assert_says_refused(&trouble);
}

fn untrusted_certificate(scene: &Scene<'_>) {
    if lacks_tls() {
        panic_any(Unsupported("this server was built without TLS".into()));
    }
    let server = Server::builder().clients_over_tls().start();
    let mut place = with(at_port(server.port()), json!({ "within": 1_000 }));
    place["url"] = json!(format!("rediss://127.0.0.1:{}", server.port()));
    let (trouble, _) = scene.open(&place).fail_to_try(&lock("x"));
    assert_eq!(trouble.kind, "unreachable");
    assert!(trouble.text.to_lowercase().contains("cert"), "{trouble:?}");
}

/// In the words of the system, or in those that Python has for them.
#[track_caller]
fn assert_says_refused(trouble: &Trouble) {
    let text = trouble.text.to_lowercase();
    let is_said = ["refused", "connect call failed"].iter().any(|words| text.contains(words));
    assert!(is_said, "{trouble:?}");
}
