//! Requests of clients about tasks that this server has made of their calls.

use super::UpstreamServer;
use crate::transport::RequestError;
use portcullis_core::{Call, Outcome, TaskOperation};
use serde::Deserialize;
use serde_json::value::RawValue;

impl UpstreamServer {
    /// Sends a request about a task, by the server's own id.
    pub(crate) async fn task_operation(&self, call: &Call, ask: TaskOperation, id: &str) -> Outcome {
        let connection = self.connected(&call.ctx.cancel, None).await?;
        let mut members = match ask {
            TaskOperation::Update => answers(call),
            TaskOperation::Get | TaskOperation::Cancel => String::new(),
        };
        let passed = &call.passed.params;
        if !members.is_empty() && !passed.is_empty() {
            members.push(',');
        }
        members.push_str(passed);
        let answer = connection.about_task(ask.method(), id, &members, self.spec.timeout).await;
        match &answer {
            Ok(_) if ask == TaskOperation::Cancel => self.leases.task_ended(id),
            Ok(said) => {
                self.leases.tasks_in(said);
                self.collect_links(said);
            }
            // The server no longer knows the task.
            Err(RequestError::Refused(_)) => self.leases.task_ended(id),
            Err(_) => {}
        }
        self.output(answer.map_err(|error| self.tool_error(error))?)
    }

    /// Collects the resource links in the result of a task, as in the result of a call.
    fn collect_links(&self, said: &RawValue) {
        #[derive(Deserialize)]
        struct Ended<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        if let Ok(Ended { result: Some(result) }) = serde_json::from_str(said.get()) {
            self.catalog.links.look(result);
        }
    }
}

/// Returns the client's answers as a member of `params`; empty where there are none.
fn answers(call: &Call) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Said<'a> {
        #[serde(borrow)]
        input_responses: Option<&'a RawValue>,
    }
    match serde_json::from_str(call.arguments.raw().get()) {
        Ok(Said { input_responses: Some(answers) }) => format!(r#""inputResponses":{answers}"#),
        _ => String::new(),
    }
}
