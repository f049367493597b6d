//! The examples are run as they stand, and what pages show for Node, shells and stores.

mod guide;
mod node;
mod python;
mod recipes;
mod snippets;
mod stores;
mod stories;
mod tutorial;

use testkit::Server;

/// What the pages call the server.
const ADDRESS: &str = "redis://127.0.0.1:6379";

/// Since when redis-cli fails on an error, if told to.
const CLI_SINCE: (u32, u32) = (7, 0);

fn server() -> Server {
    Server::builder().clients_over_tcp().start()
}

fn address_of(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}
