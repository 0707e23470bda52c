//! Results of calls, as types. `wire` renders them; a tool never handles protocol JSON.

use serde_json::Value;
use serde_json::value::RawValue;

/// The text of a result that is empty, if its tool does not say it better.
const NOTHING: &str = "The result is empty.";

/// The result of a call.
#[derive(Debug, Clone)]
pub enum Output {
    Tool(ToolOutput),
    Resource(Vec<ResourceContents>),
    Prompt(PromptOutput),
    Completion(Completion),
    /// An upstream server's result object, forwarded unchanged.
    Raw(Box<RawValue>),
}

/// The result of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    pub content: Vec<Content>,
    pub structured: Option<Value>,
    /// The tool itself reports a failure, with its own content.
    pub is_error: bool,
    /// Whether the result is an empty text, and the content only says so: a script gets the empty text.
    pub is_empty: bool,
}

/// One content item, with the sender's annotations.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    pub body: ContentBody,
    pub annotations: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ContentBody {
    Text(String),
    Image { base64: String, mime_type: String },
    Audio { base64: String, mime_type: String },
    Resource(ResourceContents),
}

/// The contents of one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceContents {
    pub uri: String,
    pub mime_type: Option<String>,
    pub body: ResourceBody,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ResourceBody {
    Text(String),
    Base64(String),
}

/// The role of a prompt message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    pub role: Role,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PromptOutput {
    pub description: Option<String>,
    pub messages: Vec<PromptMessage>,
}

/// Proposed values for an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    pub values: Vec<String>,
    pub total: usize,
    pub has_more: bool,
}

impl Completion {
    /// Bound on the values of one completion, from the protocol.
    pub const VALUES_MAX: usize = 100;

    /// Returns the candidates that start with `prefix`, up to the bound.
    pub fn matching<I: IntoIterator<Item = String>>(candidates: I, prefix: &str) -> Completion {
        let prefix = prefix.to_lowercase();
        let mut values: Vec<String> =
            candidates.into_iter().filter(|c| c.to_lowercase().starts_with(&prefix)).collect();
        let total = values.len();
        values.truncate(Completion::VALUES_MAX);
        Completion { has_more: total > values.len(), total, values }
    }
}

impl Content {
    pub fn text(text: impl Into<String>) -> Content {
        ContentBody::Text(text.into()).into()
    }
}

impl From<ContentBody> for Content {
    fn from(body: ContentBody) -> Content {
        Content { body, annotations: None }
    }
}

impl ToolOutput {
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput { content: vec![Content::text(text)], ..ToolOutput::default() }
    }

    /// A result with data that its text repeats or sums up.
    pub fn with_data(text: impl Into<String>, data: Value) -> ToolOutput {
        ToolOutput { structured: Some(data), ..ToolOutput::text(text) }
    }

    /// An empty text, which `said` tells a client about: a result without text looks like a fault to a model.
    pub fn empty(said: impl Into<String>) -> ToolOutput {
        ToolOutput { is_empty: true, ..ToolOutput::text(said) }
    }

    /// Returns the result as every native tool gives it: exactly one text, which is not empty. Content of other kinds follows.
    pub(crate) fn with_one_text(mut self) -> ToolOutput {
        if let [Content { body: ContentBody::Text(text), .. }] = self.content.as_slice()
            && !text.is_empty()
        {
            return self;
        }
        let (mut texts, mut rest) = (Vec::new(), Vec::new());
        for content in self.content {
            match content.body {
                ContentBody::Text(text) if text.is_empty() => {}
                ContentBody::Text(text) => texts.push(text),
                body => rest.push(Content { body, annotations: content.annotations }),
            }
        }
        if texts.is_empty() && rest.is_empty() {
            // Without data, the empty text is the result.
            (texts, self.is_empty) = match &self.structured {
                Some(data) => (vec![pretty(data)], self.is_empty),
                None => (vec![NOTHING.to_owned()], true),
            };
        }
        let text = (!texts.is_empty()).then(|| Content::text(texts.join("\n\n")));
        self.content = text.into_iter().chain(rest).collect();
        self
    }
}

/// Returns a value as text that people and models read: two spaces, one member per line.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

impl Output {
    /// Passes every text in the output to `visit`, which may replace it.
    ///
    /// Keys of structured values count as text: a secret can be in a key too.
    pub fn visit_texts(&mut self, visit: &mut dyn FnMut(&mut String)) {
        match self {
            Output::Tool(output) => {
                output.content.iter_mut().for_each(|content| content.visit_texts(visit));
                if let Some(value) = &mut output.structured {
                    visit_value(value, visit);
                }
            }
            Output::Resource(contents) => contents.iter_mut().for_each(|c| c.visit_texts(visit)),
            Output::Prompt(prompt) => {
                prompt.description.iter_mut().for_each(&mut *visit);
                prompt.messages.iter_mut().for_each(|message| message.content.visit_texts(visit));
            }
            Output::Completion(completion) => completion.values.iter_mut().for_each(visit),
            Output::Raw(raw) => {
                let mut text = raw.get().to_owned();
                visit(&mut text);
                // If a replacement broke the JSON, the whole result is withheld, so that no partial secret leaves.
                *raw = RawValue::from_string(text).unwrap_or_else(|_| withheld());
            }
        }
    }

    /// Returns the approximate serialized size.
    pub fn size(&self) -> usize {
        let mut bytes = 0;
        match self {
            Output::Tool(output) => {
                bytes += output.content.iter().map(Content::size).sum::<usize>();
                bytes += output.structured.as_ref().map_or(0, value_size);
            }
            Output::Resource(contents) => bytes += contents.iter().map(ResourceContents::size).sum::<usize>(),
            Output::Prompt(prompt) => {
                bytes += prompt.messages.iter().map(|message| message.content.size()).sum::<usize>();
            }
            Output::Completion(completion) => {
                bytes += completion.values.iter().map(String::len).sum::<usize>();
            }
            Output::Raw(raw) => bytes += raw.get().len(),
        }
        bytes
    }
}

#[expect(clippy::expect_used, reason = "a constant")]
fn withheld() -> Box<RawValue> {
    let text = r#"{"content":[{"type":"text","text":"[WITHHELD]"}],"isError":true}"#;
    RawValue::from_string(text.to_owned()).expect("a constant JSON object")
}

impl Content {
    fn visit_texts(&mut self, visit: &mut dyn FnMut(&mut String)) {
        match &mut self.body {
            ContentBody::Text(text) => visit(text),
            ContentBody::Image { base64, mime_type } | ContentBody::Audio { base64, mime_type } => {
                visit(base64);
                visit(mime_type);
            }
            ContentBody::Resource(resource) => resource.visit_texts(visit),
        }
        if let Some(annotations) = &mut self.annotations {
            visit_value(annotations, visit);
        }
    }

    fn size(&self) -> usize {
        match &self.body {
            ContentBody::Text(text) => text.len(),
            ContentBody::Image { base64, .. } | ContentBody::Audio { base64, .. } => base64.len(),
            ContentBody::Resource(resource) => resource.size(),
        }
    }
}

impl ResourceContents {
    fn visit_texts(&mut self, visit: &mut dyn FnMut(&mut String)) {
        visit(&mut self.uri);
        self.mime_type.iter_mut().for_each(&mut *visit);
        match &mut self.body {
            ResourceBody::Text(text) | ResourceBody::Base64(text) => visit(text),
        }
    }

    fn size(&self) -> usize {
        match &self.body {
            ResourceBody::Text(text) | ResourceBody::Base64(text) => self.uri.len() + text.len(),
        }
    }
}

fn visit_value(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| visit_value(item, visit)),
        Value::Object(object) => {
            let entries = std::mem::take(object);
            for (mut key, mut value) in entries {
                visit(&mut key);
                visit_value(&mut value, visit);
                object.insert(key, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the approximate serialized size of a value.
pub fn value_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| value_size(item) + 1).sum(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + value_size(value) + 4).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_native_result_has_exactly_one_text() {
        let image = || {
            Content::from(ContentBody::Image { base64: "AA==".to_owned(), mime_type: "image/png".to_owned() })
        };
        let made = |content: Vec<Content>, structured: Option<Value>| {
            let output = ToolOutput { content, structured, ..ToolOutput::default() }.with_one_text();
            (output.content, output.is_empty)
        };
        let said = |text: &str| vec![Content::text(text)];
        assert_eq!(made(said("one"), None), (said("one"), false));
        assert_eq!(made(vec![Content::text("one"), Content::text("two")], None), (said("one\n\ntwo"), false));
        assert_eq!(made(vec![Content::text(""), Content::text("two")], None), (said("two"), false));
        assert_eq!(made(said(""), None), (said(NOTHING), true));
        assert_eq!(made(Vec::new(), None), (said(NOTHING), true));
        assert_eq!(made(said(""), Some(json!({ "a": 1 }))), (said("{\n  \"a\": 1\n}"), false));
        assert_eq!(made(vec![image()], None), (vec![image()], false));
        assert_eq!(made(vec![image(), Content::text("a")], None), (vec![Content::text("a"), image()], false));
    }
}
