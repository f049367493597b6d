//! Those who do not use the module do not pay for it. What is left is measured: `make bench ONLY=innocent`.

use testkit::{Client, Server, becomes};

const LONG: u64 = 86_400_000;

/// How many filters the module has in the way of everybody's commands.
fn filters(client: &mut Client) -> u64 {
    let modules = client.info_text("modules");
    let ours = modules.lines().find(|line| line.contains("name=leasehold,")).unwrap();
    let number = ours.split("filters=").nth(1).and_then(|rest| rest.split(',').next());
    number.unwrap_or_else(|| panic!("{ours}")).parse().unwrap()
}

#[test]
fn commands_are_watched_only_while_somebody_waits() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["bob", "carol"] {
        assert_eq!(filters(&mut client), 0);
        client.grant("k", "alice", LONG);
        assert_eq!(client.acquire("k", "dave", LONG), None);
        assert_eq!(filters(&mut client), 0, "holding and trying need no watch");
        let mut waiter = server.client();
        waiter.send(format!("LOCK.ACQUIRE k {owner} {LONG} BLOCK 0"));
        becomes("the filters", 1, || filters(&mut client));
        client.cmd("DEL k");
        waiter.receive();
        becomes("the filters", 0, || filters(&mut client));
        client.cmd("DEL k");
    }
}

#[test]
fn commands_are_watched_while_a_ticket_is_kept() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.cmd(format!("LOCK.ACQUIRE k bob {LONG} TICKET {LONG}"));
    // Several rounds of the routine that takes away a filter which nobody needs.
    let looked = client.now();
    becomes("half a second later", true, || server.client().now() > looked + 500);
    assert_eq!(filters(&mut client), 1);
    client.cmd("LOCK.RELEASE k bob");
    becomes("the filters", 0, || filters(&mut client));
}
