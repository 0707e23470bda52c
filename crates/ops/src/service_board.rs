//! Writes the state of the services to a file, where `doctor` reads it. As long as all are well there is no file.

use crate::status_file::StatusFile;
use portcullis_core::{BoxFuture, Health, Service, ServiceCtx, ServiceError};
use portcullis_server::{Hub, ServiceStatus};
use portcullis_store::servers::StatusBoard;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the health of services is looked at. A failure is written at once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub struct ServiceBoard {
    /// Weak: the hub owns its services.
    hub: Weak<Hub>,
    secure: PathBuf,
}

impl ServiceBoard {
    pub fn new(hub: &Arc<Hub>, secure: PathBuf) -> ServiceBoard {
        ServiceBoard { hub: Arc::downgrade(hub), secure }
    }

    fn problems(&self) -> Map<String, Value> {
        let statuses = self.hub.upgrade().map(|hub| hub.service_statuses()).unwrap_or_default();
        let problem = |status: ServiceStatus| {
            let why = status.problem()?;
            let failed = status.health != Health::Ok;
            Some((
                status.name.to_owned(),
                json!({ "reason": why, "failed": failed, "restarts": status.restarts }),
            ))
        };
        statuses.into_iter().filter_map(problem).collect()
    }
}

impl Service for ServiceBoard {
    fn name(&self) -> &'static str {
        "service-status"
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            let Some(mut changed) = self.hub.upgrade().map(|hub| hub.subscribe_services()) else {
                return Ok(());
            };
            let board = StatusFile::new(StatusBoard::of_services(&self.secure));
            // The problems of an earlier hub are not those of this one.
            let mut written = (!board.exists()).then(Map::new);
            loop {
                let problems = self.problems();
                if written.as_ref() != Some(&problems) {
                    board
                        .write(problems.clone(), &*ctx.clock)
                        .await
                        .ok_or("the status file was not written")??;
                    written = Some(problems);
                }
                tokio::select! {
                    () = ctx.shutdown.cancelled() => return Ok(()),
                    _ = changed.changed() => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        })
    }
}
