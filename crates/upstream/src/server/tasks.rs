//! What clients ask after tasks that this server has made of their calls.

use super::Server;
use crate::connection::RequestError;
use portcullis_core::{Call, Outcome, TaskAsk};
use serde::Deserialize;
use serde_json::value::RawValue;

impl Server {
    /// Asks after a task by the name that the server has given it.
    pub(crate) async fn ask_after(&self, call: &Call, ask: TaskAsk, id: &str) -> Outcome {
        let connection = self.connected(&call.ctx.cancel, None).await?;
        let mut more = match ask {
            TaskAsk::Update => answers(call),
            TaskAsk::Get | TaskAsk::Cancel => String::new(),
        };
        let beside = &call.passed.params;
        if !more.is_empty() && !beside.is_empty() {
            more.push(',');
        }
        more.push_str(beside);
        let answer = connection.about_task(ask.method(), id, &more, self.spec.timeout).await;
        match &answer {
            Ok(_) if ask == TaskAsk::Cancel => self.uses.task_ended(id),
            Ok(said) => {
                self.uses.tasks_in(said);
                self.look_into(said);
            }
            // It knows of no such task any more.
            Err(RequestError::Refused(_)) => self.uses.task_ended(id),
            Err(_) => {}
        }
        self.presented(answer.map_err(|error| self.told(error))?)
    }

    /// Looks which addresses the result of a task names, as it is done with the result of a call.
    fn look_into(&self, said: &RawValue) {
        #[derive(Deserialize)]
        struct Ended<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        if let Ok(Ended { result: Some(result) }) = serde_json::from_str(said.get()) {
            self.linked.look(result);
        }
    }
}

/// Returns what the client answers, as a member of the request; nothing where it answers nothing.
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
