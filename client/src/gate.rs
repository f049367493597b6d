//! What requests go through. Once it is closed none goes in, and those inside end.

use crate::Error;
use std::sync::Arc;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Gate {
    closing: CancellationToken,
    /// Read by each request as long as it is under way.
    inside: Arc<RwLock<()>>,
}

/// Whoever has it is waited for when the gate is closed.
pub(crate) type Inside = OwnedRwLockReadGuard<()>;

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

    /// For what is to go on in the background, before it is begun. None once the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside> {
        Arc::clone(&self.inside).try_read_owned().ok().filter(|_| !self.closing.is_cancelled())
    }

    /// Works in the background: `leave` is what it has to do before it ends when the gate is
    /// closed.
    pub(crate) async fn stay(
        &self,
        _inside: Inside,
        work: impl Future<Output = ()>,
        leave: impl FnOnce(),
    ) {
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
    use std::time::Duration;
    use tokio::time::timeout;

    /// It may not have run by then.
    #[tokio::test]
    async fn whoever_has_entered_is_waited_for_before_it_has_begun_to_work() {
        let gate = Gate::default();
        let inside = gate.enter().unwrap();
        let mut closed = std::pin::pin!(gate.close());
        let waited = timeout(Duration::from_millis(5), &mut closed).await;
        assert!(waited.is_err());
        assert!(gate.enter().is_none());
        let mut has_left = false;
        gate.stay(inside, pending(), || has_left = true).await;
        closed.await;
        assert!(has_left);
    }

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
