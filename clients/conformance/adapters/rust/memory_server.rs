//! The server in memory of the crate for Rust, started as a real one is: by its configuration file, which the driver writes.

use leasehold_client::testing::MemoryServer;
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, UnixListener};

const KNOWN: &str = "bind port unixsocket dir save appendonly repl-diskless-sync repl-diskless-load hz loadmodule \
                     enable-debug-command enable-module-command";

fn serve(server: &MemoryServer, mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let mut inside = server.connect();
    tokio::spawn(async move { copy_bidirectional(&mut stream, &mut inside).await });
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let file = std::fs::read_to_string(std::env::args().next_back().unwrap_or_default())?;
    let settings: HashMap<_, _> = file.lines().filter_map(|line| line.split_once(' ')).collect();
    let setting = |name| settings.get(name).map_or("", |value| value.trim_matches('"'));
    if let Some(name) = settings.keys().find(|name| !KNOWN.split(' ').any(|known| known == **name))
    {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("a server in memory has no {name}"),
        ));
    }
    let server = MemoryServer::new();
    if setting("port") != "0" {
        let listener = TcpListener::bind(format!("127.0.0.1:{}", setting("port"))).await?;
        let server = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // As servers do: a reply goes out at once.
                let _ = stream.set_nodelay(true);
                serve(&server, stream);
            }
        });
    }
    // A server that was killed has left it behind.
    let _ = std::fs::remove_file(setting("unixsocket"));
    let listener = UnixListener::bind(setting("unixsocket"))?;
    loop {
        serve(&server, listener.accept().await?.0);
    }
}
