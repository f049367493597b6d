//! `leasehold mcp`: locks as tools, by the Model Context Protocol on standard input and output.

mod session;
mod tools;

use crate::child::Signals;
use crate::connecting::{Connection, usage};
use crate::exit_code::{Code, Failure};
use crate::output::{self, printable};
use clap::Args;
use leasehold_client::CancellationToken;
use rmcp::ServiceExt;
use session::Session;
use std::io::IsTerminal;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf, Stdin, stdin, stdout};
use tokio::time::timeout;

/// How long the client may take to read the last answers. All locks are released by then.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// Offers locks as tools to the program that starts it, by the Model Context Protocol on standard input and output.
///
/// The tools are acquire, wait, renew, release and info. A lease ends by itself unless the caller renews it. All locks are
/// released when standard input is closed.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {}

const EXAMPLES: &str = r#"Examples:
  leasehold --url redis://locks.example mcp
  in the configuration of a client:
  {"mcpServers": {"locks": {"command": "leasehold", "args": ["mcp"],
                            "env": {"LEASEHOLD_URL": "redis://locks.example"}}}}"#;

pub(crate) async fn run(connection: &Connection, _: Arguments) -> Result<Code, Failure> {
    let mut signals = Signals::that_end()?;
    let session = Arc::new(Session::of(connection.open()?));
    if std::io::stdin().is_terminal() {
        output::say("a client of the Model Context Protocol starts this: see leasehold mcp --help");
    }
    let ended = CancellationToken::new();
    let input = Input { stdin: stdin(), ended: ended.clone() };
    let tools = Arc::clone(&session);
    let mut served = Box::pin(async {
        let running = tools.serve((input, stdout())).await.map_err(|error| error.to_string())?;
        running.waiting().await.map(drop).map_err(|error| error.to_string())
    });
    let (code, is_answering) = tokio::select! {
        () = ended.cancelled() => (Ok(Code::Done), true),
        signal = signals.next_that_ends() => (Ok(Code::of_signal(signal)), false),
        served = &mut served => match served {
            Err(error) if !ended.is_cancelled() => {
                let text = format!("this is not the Model Context Protocol: {}", printable(&error));
                (Err(usage(&text)), false)
            }
            _ => (Ok(Code::Done), false),
        },
    };
    let place = &session.place;
    let left = place.close().await;
    if is_answering {
        // Requests that were under way have ended by now.
        let _ = timeout(READ_WITHIN, served).await;
    }
    if left.is_empty() {
        return code;
    }
    let names = left.iter().map(|name| printable(name)).collect::<Vec<_>>().join(", ");
    let text = format!("not released at {}: free when their leases end: {names}", place.name);
    Err(Failure::new(Code::Unreachable, text))
}

/// Standard input that reports its end at once. The service reports it only when all requests are answered, and some wait
/// for a lock.
struct Input {
    stdin: Stdin,
    ended: CancellationToken,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stdin).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            self.ended.cancel();
        }
        Poll::Ready(read)
    }
}
