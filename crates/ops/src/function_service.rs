//! Services made of one function.

use portcullis_core::{BoxFuture, Service, ServiceCtx, ServiceError};
use std::sync::Arc;

/// Makes a service of a function that never fails. It is called again after a panic.
pub fn service<F, Fut>(name: &'static str, run: F) -> Arc<dyn Service>
where
    F: Fn(ServiceCtx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    Arc::new(FunctionService { name, run: Box::new(move |ctx| Box::pin(run(ctx))) })
}

struct FunctionService {
    name: &'static str,
    run: Box<dyn Fn(ServiceCtx) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Service for FunctionService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            (self.run)(ctx).await;
            Ok(())
        })
    }
}
