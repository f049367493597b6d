//! Waiting for what goes on in the background.

use crate::Locks;
use crate::keeper::Order;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long `settle` waits for servers that do not answer.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

impl Locks {
    /// Waits until all that was released, dropped or given up before is released, for ten seconds at the most.
    ///
    /// What other tasks release meanwhile is not waited for.
    pub async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        if self.orders().send(Order::Settle(done)).is_ok() {
            // It fails when the keeper ends, and then there is nothing to wait for.
            let _ = timeout(SETTLES_WITHIN, settled).await;
        }
    }
}
