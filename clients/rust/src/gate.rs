//! What requests go through. Once it is closed none goes in, and those inside end.

use crate::Error;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Gate {
    closing: CancellationToken,
    /// How many are inside.
    inside: Arc<watch::Sender<usize>>,
}

/// Somebody who has gone in, until this is dropped.
struct Inside(Arc<watch::Sender<usize>>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.send_modify(|inside| *inside = inside.saturating_sub(1));
    }
}

impl Gate {
    fn enter(&self) -> Inside {
        self.inside.send_modify(|inside| *inside = inside.saturating_add(1));
        Inside(Arc::clone(&self.inside))
    }

    /// What it comes to, unless the gate is closed before that.
    pub(crate) async fn pass<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let _inside = self.enter();
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(Error::Closed),
            came = request => came,
        }
    }

    /// Returns when nobody is inside.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        let mut inside = self.inside.subscribe();
        // It fails when the sender is gone, which is this gate's.
        let _ = inside.wait_for(|inside| *inside == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn whoever_is_inside_leaves_when_the_gate_is_closed_and_nobody_goes_in() {
        let gate = Gate::default();
        let inside = gate.pass(pending::<Result<(), Error>>());
        let closed = async {
            tokio::task::yield_now().await;
            gate.close().await;
        };
        let (came, ()) = tokio::join!(inside, closed);
        assert!(matches!(came, Err(Error::Closed)));
        let late = gate.pass(async { panic!("it was begun") });
        assert!(matches!(late.await, Err::<(), _>(Error::Closed)));
    }
}
