//! The examples are run as they stand, and what pages show for Node, Java, shells and stores.

mod guide;
mod java;
mod node;
mod page;
mod paused;
mod program;
mod python;
mod recipes;
mod snippets;
mod stores;
mod stories;
mod tutorial;

use testkit::Server;

/// What the pages call the server.
const ADDRESS: &str = "redis://127.0.0.1:6379";

fn server() -> Server {
    Server::builder().clients_over_tcp().start()
}

fn address_of(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}
