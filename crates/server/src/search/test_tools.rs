//! Typical tools of upstream servers, for search tests.

use portcullis_core::{CallLimits, Definition, Effect, Reach, ToolDef};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

/// Returns a tool with an upstream's definition.
pub(super) fn foreign(server: &str, name: &str, description: &str, schema: Value) -> ToolDef {
    let definition = json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": { "readOnlyHint": true, "mood": "calm" },
    });
    ToolDef::foreign(
        server.to_owned(),
        name.to_owned(),
        String::new(),
        description.to_owned(),
        Effect::Read,
        Reach::Outside,
        CallLimits::DEFAULT,
        schema,
        None,
        Definition::new(to_raw_value(&definition).unwrap()),
    )
}

/// Server, name, description, and parameters with descriptions.
type Row = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const TOOLS: &[Row] = &[
    (
        "github",
        "github_create_issue",
        "Create a new issue in a GitHub repository",
        &[
            ("owner", "Repository owner"),
            ("repo", "Repository name"),
            ("title", "Issue title"),
            ("body", "Issue body"),
        ],
    ),
    (
        "github",
        "github_list_issues",
        "List issues in a GitHub repository with filtering options",
        &[("owner", ""), ("repo", ""), ("state", "open closed"), ("labels", "")],
    ),
    (
        "github",
        "github_get_file_contents",
        "Get the contents of a file or directory from a GitHub repository",
        &[("owner", ""), ("repo", ""), ("path", ""), ("branch", "")],
    ),
    (
        "github",
        "github_create_pull_request",
        "Create a new pull request in a GitHub repository",
        &[("owner", ""), ("repo", ""), ("title", ""), ("head", ""), ("base", "")],
    ),
    (
        "github",
        "github_merge_pull_request",
        "Merge a pull request",
        &[("pull_number", ""), ("merge_method", "")],
    ),
    ("github", "github_search_code", "Search for code across GitHub repositories", &[("q", "")]),
    (
        "github",
        "github_fork_repository",
        "Fork a GitHub repository to your account or specified organization",
        &[("owner", ""), ("repo", "")],
    ),
    (
        "github",
        "github_add_issue_comment",
        "Add a comment to an existing issue",
        &[("issue_number", ""), ("body", "")],
    ),
    (
        "slack",
        "slack_list_channels",
        "List public or pre-defined channels in the workspace with pagination",
        &[("limit", ""), ("cursor", "")],
    ),
    (
        "slack",
        "slack_post_message",
        "Post a new message to a Slack channel",
        &[("channel_id", "The ID of the channel to post to"), ("text", "The message text to post")],
    ),
    (
        "slack",
        "slack_reply_to_thread",
        "Reply to a specific message thread in Slack",
        &[("channel_id", ""), ("thread_ts", ""), ("text", "")],
    ),
    (
        "slack",
        "slack_add_reaction",
        "Add a reaction emoji to a message",
        &[("timestamp", ""), ("reaction", "The name of the emoji reaction")],
    ),
    (
        "time",
        "time_get_current_time",
        "Get current time in a specific timezones",
        &[("timezone", "IANA timezone name")],
    ),
    (
        "time",
        "time_convert_time",
        "Convert time between timezones",
        &[("source_timezone", ""), ("time", ""), ("target_timezone", "")],
    ),
    (
        "fetch",
        "fetch_fetch",
        "Fetches a URL from the internet and optionally extracts its contents as markdown.",
        &[("url", "URL to fetch"), ("max_length", ""), ("raw", "")],
    ),
    (
        "weather",
        "weather_get_forecast",
        "Get weather forecast for a location.",
        &[("latitude", "Latitude of the location"), ("longitude", "Longitude")],
    ),
    (
        "weather",
        "weather_get_alerts",
        "Get weather alerts for a US state.",
        &[("state", "Two-letter US state code")],
    ),
    (
        "mail",
        "mail_sendEmail",
        "Delivers an e-mail to one or more recipients",
        &[("to", "recipients"), ("subject", "")],
    ),
    ("mail", "mail_listInbox", "Shows the newest mails", &[("folder", "")]),
    ("mail", "mail_getURLContent", "Loads something", &[("u", "")]),
    ("postgres", "postgres_query", "Run a read-only SQL query", &[("sql", "")]),
    (
        "brave",
        "brave_web_search",
        "Performs a web search using the Brave Search API, ideal for general queries, news, articles, and online content.",
        &[("query", "Search query"), ("count", "")],
    ),
    (
        "brave",
        "brave_local_search",
        "Searches for local businesses and places using Brave's Local Search API.",
        &[("query", "")],
    ),
    (
        "memory",
        "memory_create_entities",
        "Create multiple new entities in the knowledge graph",
        &[("entities", "An array of them, and their observations")],
    ),
    ("pictures", "pictures_make_thumbnail", "Makes a small image of a large one", &[("path", "")]),
    ("pictures", "pictures_env", "Returns the environment", &[]),
    ("forms", "forms_submit_form", "Submits what was filled in", &[]),
    ("zh", "w1", "查询指定城市的天气预报", &[("city", "城市名称")]),
    ("zh", "w2", "发送电子邮件给联系人", &[("to", "收件人")]),
    ("ko", "w3", "도시의 날씨를 알려 줍니다", &[]),
    ("jira", "open_ticket", "Opens a ticket", &[("summary", "")]),
];

pub(super) fn all() -> Vec<ToolDef> {
    let made = TOOLS.iter().map(|(server, name, description, parameters)| {
        let property = |(name, said): &(&str, &str)| {
            ((*name).to_owned(), json!({ "type": "string", "description": said }))
        };
        let properties: serde_json::Map<String, Value> = parameters.iter().map(property).collect();
        foreign(server, name, description, json!({ "type": "object", "properties": properties }))
    });
    made.collect()
}
