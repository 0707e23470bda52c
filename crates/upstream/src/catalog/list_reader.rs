//! Reading one paginated list of a server, within bounds.

use super::RawDefinition;
use crate::rpc::Connection;
use crate::transport::{LinkError, RequestError};
use portcullis_core::hidden_chars::is_unseen;
use portcullis_core::json::printable;
use portcullis_wire::params::RawMembers;
use portcullis_wire::rpc;
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;

/// How many items of a kind one server may have. The largest known has some hundreds of tools.
const ITEMS_MAX: usize = 2_000;
/// How many pages a list may have. A server may never end its list.
const PAGES_MAX: usize = 200;
/// The largest definition.
const DEFINITION_BYTES_MAX: usize = 256 * 1024;

/// A list and the method that reads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListMethod {
    method: &'static str,
    pub(super) key: &'static str,
    name: &'static str,
}

pub(super) const TOOLS: ListMethod = ListMethod { method: "tools/list", key: "tools", name: "name" };
pub(super) const PROMPTS: ListMethod = ListMethod { method: "prompts/list", key: "prompts", name: "name" };
pub(super) const RESOURCES: ListMethod =
    ListMethod { method: "resources/list", key: "resources", name: "uri" };
pub(super) const TEMPLATES: ListMethod =
    ListMethod { method: "resources/templates/list", key: "resourceTemplates", name: "uriTemplate" };

/// Why a list could not be read, and by which method.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("`{0}`: {1}")]
    Request(&'static str, RequestError),
    #[error("`{0}`: {1}")]
    Unreadable(&'static str, String),
}

impl ListError {
    /// Returns whether it timed out, and may still arrive.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, ListError::Request(_, RequestError::Timeout(_)))
    }

    /// Returns whether it concerns this list alone, and not the connection.
    pub(crate) fn is_of_list(&self) -> bool {
        match self {
            ListError::Unreadable(..) => true,
            ListError::Request(_, error) => matches!(
                error,
                RequestError::Refused(_)
                    | RequestError::Timeout(_)
                    | RequestError::TooLong(_)
                    | RequestError::Link(LinkError::Unsuitable { .. })
            ),
        }
    }
}

/// Reads one list. A server that does not know the method has no such items. A list that breaks off after its first
/// page is taken as far as it goes, and the rest is reported. The timeout is for each page.
pub(super) async fn read_list(
    connection: &Connection,
    kind: ListMethod,
    within: Duration,
    dropped: &mut Vec<(String, String)>,
) -> Result<Vec<RawDefinition>, ListError> {
    let (mut said, mut cursor) = (Vec::new(), None::<String>);
    let cut = |why: String| (kind.key.to_owned(), format!("the list is truncated: {why}"));
    for page in 0.. {
        if page == PAGES_MAX {
            dropped.push(cut(format!("the server has more than {PAGES_MAX} pages of it")));
            break;
        }
        let params =
            cursor.take().map_or_else(String::new, |cursor| format!(r#""cursor":{}"#, Value::from(cursor)));
        let answer = match connection.hub_request(kind.method, params, within).await {
            Ok(answer) => answer,
            Err(RequestError::Refused(error))
                if page == 0 && error.code == i64::from(rpc::METHOD_NOT_FOUND) =>
            {
                break;
            }
            Err(error @ RequestError::Refused(_)) if page > 0 => {
                dropped.push(cut(error.to_string()));
                break;
            }
            Err(error) => return Err(ListError::Request(kind.method, error)),
        };
        let (items, next) = match read_page(kind, &answer) {
            Ok(read) => read,
            Err(why) if page > 0 => {
                dropped.push(cut(why));
                break;
            }
            Err(why) => return Err(ListError::Unreadable(kind.method, why)),
        };
        for raw in items {
            if said.len() >= ITEMS_MAX {
                dropped.push(cut(format!("the server offers more than {ITEMS_MAX}")));
                return Ok(said);
            }
            match own_name(kind, raw) {
                Ok(own) => said.push(RawDefinition { own, raw: raw.to_owned() }),
                Err(why) => dropped.push((kind.key.to_owned(), why)),
            }
        }
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(said)
}

/// Returns the items of a page, and the next cursor.
fn read_page(kind: ListMethod, page: &RawValue) -> Result<(Vec<&RawValue>, Option<String>), String> {
    let fields: RawMembers<'_> =
        serde_json::from_str(page.get()).map_err(|_| "the response is not an object".to_owned())?;
    let items = fields.get(kind.key).ok_or_else(|| format!("the response has no `{}`", kind.key))?;
    // Many servers send `null` for an empty list.
    let items = serde_json::from_str::<Option<Vec<&RawValue>>>(items.get())
        .map_err(|_| format!("`{}` is not a list", kind.key))?;
    let next = fields.get("nextCursor").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    Ok((items.unwrap_or_default(), next.filter(|next| !next.is_empty())))
}

fn own_name(kind: ListMethod, raw: &RawValue) -> Result<String, String> {
    let bytes = raw.get().len();
    if bytes > DEFINITION_BYTES_MAX {
        return Err(format!("a definition has {bytes} bytes, the limit is {DEFINITION_BYTES_MAX}"));
    }
    let fields: RawMembers<'_> = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    let name = fields.get(kind.name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let name =
        name.filter(|name| !name.is_empty()).ok_or_else(|| format!("an entry without `{}`", kind.name))?;
    // A name is made legal before anyone sees it; a URI is literal.
    if kind.name != "name" && name.contains(is_unseen) {
        return Err(format!("the URI `{}` has a hidden character", printable(&name)));
    }
    Ok(name)
}
