//! A round of questions to a client that waits for its call.

use portcullis_core::{InputRefusal, InputRequestKind, InputResponses, KeyedInputRequest, Peer};
use serde_json::json;

/// Asks a client that waits the questions of a server of the newer era, all of them before the first answer. A
/// client that refuses to show an elicitation counts as cancelled by its person.
pub(super) async fn ask_each(
    peer: &dyn Peer,
    questions: Vec<KeyedInputRequest>,
) -> Result<InputResponses, InputRefusal> {
    let asking = questions.into_iter().map(async |question| {
        let (key, kind) = (question.key.clone(), question.ask.kind);
        match peer.ask(vec![question]).await {
            Err(InputRefusal::Refused(_)) if kind == InputRequestKind::Elicit => {
                Ok(InputResponses::from([(key, json!({ "action": "cancel" }))]))
            }
            answers => answers,
        }
    });
    let answers = futures::future::try_join_all(asking).await?;
    Ok(answers.into_iter().flatten().collect())
}
