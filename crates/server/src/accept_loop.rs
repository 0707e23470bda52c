//! Accept loops as services: readiness names a transport that accepts no connections any more.

use crate::Hub;
use portcullis_core::{BoxFuture, Health, Service, ServiceCtx, ServiceError};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An accept loop, as a service that says whether it lives. The loop itself outlasts the services at shutdown, because open
/// connections are served until their calls are done; and its listener is gone with it, so it is not started again.
pub struct AcceptLoop {
    name: &'static str,
    ended: CancellationToken,
    closing: CancellationToken,
}

impl AcceptLoop {
    pub fn new(name: &'static str, hub: &Hub) -> Arc<AcceptLoop> {
        Arc::new(AcceptLoop { name, ended: CancellationToken::new(), closing: hub.closing() })
    }

    /// Runs the loop.
    pub fn spawn(&self, serving: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        // Also after a panic.
        let ended = self.ended.clone().drop_guard();
        tokio::spawn(async move {
            let _ended = ended;
            serving.await;
        })
    }
}

impl Service for AcceptLoop {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            tokio::select! {
                () = ctx.shutdown.cancelled() => return Ok(()),
                () = self.ended.cancelled() => {}
            }
            if !ctx.shutdown.is_cancelled() {
                tracing::error!(target: "service", service = self.name, "The accept loop ended; restart the hub.");
            }
            ctx.shutdown.cancelled().await;
            Ok(())
        })
    }

    fn health(&self) -> Health {
        if self.ended.is_cancelled() && !self.closing.is_cancelled() {
            return Health::Failed("it accepts no connections any more; restart the hub".to_owned());
        }
        Health::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept_loop() -> AcceptLoop {
        AcceptLoop { name: "http", ended: CancellationToken::new(), closing: CancellationToken::new() }
    }

    #[tokio::test]
    async fn an_accept_loop_that_dies_is_a_failure_and_one_that_closes_is_not() {
        let dead = accept_loop();
        assert_eq!(dead.health(), Health::Ok);
        let died = dead.spawn(async { panic!("a mistake") }).await;
        assert!(died.is_err());
        assert!(matches!(dead.health(), Health::Failed(_)));

        let closed = accept_loop();
        closed.closing.cancel();
        closed.spawn(async {}).await.unwrap();
        assert_eq!(closed.health(), Health::Ok);
    }
}
