// Written by `cargo xtask gen`.
const SNAPSHOTS: &[(&str, &str)] = &[
    ("workspace_read", include_str!("workspace_read.json")),
    ("workspace_write", include_str!("workspace_write.json")),
    ("workspace_list", include_str!("workspace_list.json")),
    ("memory_read", include_str!("memory_read.json")),
    ("memory_write", include_str!("memory_write.json")),
    ("vault_read", include_str!("vault_read.json")),
    ("vault_write", include_str!("vault_write.json")),
    ("vault_list", include_str!("vault_list.json")),
    ("vault_search", include_str!("vault_search.json")),
    ("web_fetch", include_str!("web_fetch.json")),
    ("calendar_read", include_str!("calendar_read.json")),
    ("github_list_issues", include_str!("github_list_issues.json")),
    ("github_create_issue", include_str!("github_create_issue.json")),
];
