use super::*;
use crate::testing::{ToolsFixture, hear};
use portcullis_core::CompletionRef;
use serde_json::json;
use std::fs;

const REVIEW: &str = "---
title: Review
description: Look over a piece of code.
arguments:
- name: language
  description: What it is written in.
  required: true
  values: [Rust, Ruby, Go]
- name: focus
---

Review this {{language}} code. {{focus}}
";

fn hub() -> ToolsFixture {
    ToolsFixture::with(|folder| {
        let prompts = folder.join("prompts");
        fs::create_dir(&prompts).unwrap();
        fs::write(prompts.join("review.md"), REVIEW).unwrap();
        fs::write(prompts.join("broken.md"), "---\ntitle: [\n---\nx").unwrap();
        fs::write(prompts.join("notes.txt"), "not a prompt").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", prompts.join("passwd.md")).unwrap();
    })
}

fn names(hub: &ToolsFixture) -> Vec<String> {
    hub.gate.prompts(&hub.caller()).unwrap().iter().map(|prompt| prompt.name.clone()).collect()
}

#[tokio::test]
async fn a_file_is_a_prompt() {
    let hub = hub();
    assert_eq!(names(&hub), ["review"], "the broken one and the link are left out");
    let mut answers = Vec::new();
    for arguments in [
        json!({ "language": "Rust" }),
        json!({ "language": "{{focus}}", "focus": "Be brief." }),
        json!({}),
        json!({ "focus": "x" }),
        json!({ "language": "Rust", "colour": "red" }),
        json!({ "language": 5 }),
    ] {
        answers.push(hub.prompt("review", arguments).await);
    }
    answers.push(hub.prompt("broken", json!({})).await);
    insta::assert_snapshot!(answers.join("\n"), @r#"
    User: "Review this Rust code. \n"
    User: "Review this {{focus}} code. Be brief.\n"
    invalid_args: prompt `review` needs `language`
    hint: it takes `language`, `focus`
    invalid_args: prompt `review` needs `language`
    hint: it takes `language`, `focus`
    invalid_args: prompt `review` has no argument `colour`
    hint: it takes `language`, `focus`
    invalid_args: argument `language` of prompt `review` must be a string
    unknown: Unknown prompt: broken
    "#);
}

#[tokio::test]
async fn values_are_proposed() {
    let hub = hub();
    let review = || CompletionRef::Prompt("review".to_owned());
    assert_eq!(hub.complete(review(), "language", "ru").await, ["Rust", "Ruby"]);
    assert_eq!(hub.complete(review(), "focus", "").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_change_of_the_folder_is_seen() {
    let hub = ToolsFixture::new();
    assert_eq!(names(&hub), Vec::<String>::new(), "no folder, no prompts");
    let mut changes = hub.gate.subscribe();

    fs::create_dir(hub.prompts()).unwrap();
    fs::write(hub.prompts().join("hello.md"), "Say hello.").unwrap();
    hear(&mut changes, CatalogChange::Prompts).await;
    assert_eq!(names(&hub), ["hello"]);

    fs::write(hub.prompts().join("bye.md"), "Say goodbye.").unwrap();
    hear(&mut changes, CatalogChange::Prompts).await;
    assert_eq!(names(&hub), ["bye", "hello"]);

    fs::remove_dir_all(hub.prompts()).unwrap();
    hear(&mut changes, CatalogChange::Prompts).await;
    // Files are removed one by one, so the first notification may come before the last removal.
    while !names(&hub).is_empty() {
        hear(&mut changes, CatalogChange::Prompts).await;
    }
    fs::create_dir(hub.prompts()).unwrap();
    fs::write(hub.prompts().join("again.md"), "Once more.").unwrap();
    hear(&mut changes, CatalogChange::Prompts).await;
    assert_eq!(names(&hub), ["again"]);
}
