//! The examples are run as they stand, and the recipes of docs/clients.md by their clients.

mod around;
mod guarded;
mod guide;
mod leases;
mod node;
mod page;
mod program;
mod python;
mod recipe;
mod recipes;
mod shapes;
mod shares;
mod stores;
mod stories;
mod tickets;

use testkit::Server;

/// What the pages call the server.
const ADDRESS: &str = "redis://127.0.0.1:6379";

fn server() -> Server {
    Server::builder().clients_over_tcp().start()
}

fn address_of(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}
