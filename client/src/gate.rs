//! What requests go through. Once it is closed none goes in, and those inside end.

use crate::Error;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Gate {
    closing: CancellationToken,
    /// Read by each request as long as it is under way.
    inside: RwLock<()>,
}

impl Gate {
    /// What it comes to, unless the gate is closed before that.
    pub(crate) async fn pass<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let pass = async {
            let _inside = self.inside.read().await;
            tokio::select! {
                biased;
                () = self.closing.cancelled() => Err(Error::Closed),
                came = request => came,
            }
        };
        pass.await
    }

    /// The same for what goes on in the background: `leave` is what it has to do before it ends
    /// when the gate is closed.
    pub(crate) async fn stay(&self, work: impl Future<Output = ()>, leave: impl FnOnce()) {
        let _inside = self.inside.read().await;
        tokio::select! {
            biased;
            () = self.closing.cancelled() => leave(),
            () = work => {}
        }
    }

    /// Returns when nobody is inside.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        drop(self.inside.write().await);
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
