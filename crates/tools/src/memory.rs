//! `memory_*`: an assistant's long-term memory, in a few workspace files with short names.

use crate::files;
use portcullis_core::root::{RootError, RootedPath};
use portcullis_core::{
    CallCtx, CallLimits, Effect, Example, Family, FileContents, Label, Reach, Root, SummaryWithData,
    ToolError, ToolSpec, blocking,
};
use portcullis_family::{AbsentSection, ConfigSection, FamilyModule, SectionChecks, SectionSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const READ: ToolSpec = ToolSpec {
    name: "memory_read",
    title: "Read memory",
    description: "Return the text of a memory file, written in earlier conversations. A file that does not exist yet is \
                  returned as empty.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Read the long-term memory", arguments: "{}" },
};

pub(crate) const WRITE_NAME: &str = "memory_write";

const WRITE: ToolSpec = ToolSpec {
    name: WRITE_NAME,
    title: "Write memory",
    description: "Save text for later conversations. With `append` it is added to the end of the file, otherwise it \
                  replaces the file.",
    effect: Effect::Write,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example {
        what: "Remember a preference",
        arguments: r#"{"content": "- Prefers short answers", "append": true}"#,
    },
};

const LONG_TERM: &str = "MEMORY.md";
/// The files at the top of the workspace, with their aliases.
const NAMED: [(&str, &str); 3] = [("long-term", LONG_TERM), ("soul", "SOUL.md"), ("user-profile", "USER.md")];
/// The folder of all others, one file per day or topic.
const FOLDER: &str = "memory/";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    /// Which memory: `MEMORY.md` (long-term), `SOUL.md`, `USER.md`, a day like `2024-01-15`, or `memory/topic.md`.
    #[serde(default = "long_term")]
    file: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// The text to keep, at most 1 MiB.
    content: String,
    /// Which memory: `MEMORY.md` (long-term), `SOUL.md`, `USER.md`, a day like `2024-01-15`, or `memory/topic.md`.
    #[serde(default = "long_term")]
    file: String,
    /// Whether to add to the end of the file instead of replacing it.
    #[serde(default)]
    append: bool,
}

fn long_term() -> String {
    LONG_TERM.to_owned()
}

#[derive(Debug, Serialize, JsonSchema)]
struct WriteFacts {
    /// Path of the memory file in the workspace.
    file: String,
    /// How many bytes were given to keep.
    bytes: usize,
    /// Whether they were added to what was there before.
    appended: bool,
}

struct Memory {
    root: Root,
}

pub(crate) const MODULE: FamilyModule = FamilyModule {
    name: "memory",
    tables: None,
    section: Some(SectionSpec::of::<MemorySection>()),
    doctor: None,
    provide: |parts| {
        if !parts.section::<MemorySection>().is_some_and(|memory| memory.enabled) {
            return Ok(None);
        }
        // The workspace tools look at the same folder.
        if !parts.workspace.enabled {
            files::tidy(&parts.root);
        }
        Ok(Some(family(parts.root.clone()).into()))
    },
};

/// Memory that persists across conversations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Enable the memory_* tools.
    enabled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    pub enabled: bool,
}

impl Default for MemorySection {
    fn default() -> Self {
        MemorySection { enabled: true }
    }
}

impl ConfigSection for MemorySection {
    const KEY: &'static str = "memory";
    const ABSENT: AbsentSection = AbsentSection::Defaults;
    type Settings = MemorySettings;

    fn resolve(&self, _: &mut SectionChecks<'_>) -> Option<MemorySettings> {
        Some(MemorySettings { enabled: self.enabled })
    }
}

pub(crate) fn family(root: Root) -> Family {
    let memory = Arc::new(Memory { root });
    Family::new("memory").tool(READ, &memory, read).labelled(&[Label::Private]).tool(WRITE, &memory, write)
}

async fn read(memory: Arc<Memory>, args: ReadArgs, _: CallCtx) -> Result<FileContents, ToolError> {
    let path = file_named(&args.file)?;
    match files::read(&memory.root, &path).await {
        Ok(content) => Ok(files::contents(&path, files::text(&path, content)?)),
        Err(RootError::NotFound) => Ok(FileContents {
            text: String::new(),
            if_empty: format!("{path} does not exist yet, so it is empty."),
        }),
        Err(error) => Err(memory_file_error(error, &args.file)),
    }
}

async fn write(
    memory: Arc<Memory>,
    args: WriteArgs,
    _: CallCtx,
) -> Result<SummaryWithData<WriteFacts>, ToolError> {
    files::check_size(&args.content)?;
    let path = file_named(&args.file)?;
    let (root, target, bytes) = (memory.root.clone(), path.clone(), args.content.len());
    let done = blocking(move || match args.append {
        true => root.update(&target, files::FILE_BYTES_MAX, |former| joined(former, &args.content)),
        false => root.write(&target, args.content.as_bytes()),
    });
    done.await.map_err(|error| memory_file_error(error, &args.file))?;
    let did = if args.append { "Appended" } else { "Wrote" };
    Ok(SummaryWithData {
        sentence: format!("{did} {bytes} bytes to {path}"),
        facts: WriteFacts { file: path.to_string(), bytes, appended: args.append },
    })
}

/// Joins both texts with a line break.
fn joined(former: Option<Vec<u8>>, addition: &str) -> Vec<u8> {
    let mut content = former.unwrap_or_default();
    if content.last().is_some_and(|last| *last != b'\n') {
        content.push(b'\n');
    }
    content.extend_from_slice(addition.as_bytes());
    content
}

/// Returns the file that an argument names, if that is one of memory.
pub(crate) fn named_file(name: Option<&str>) -> Option<RootedPath> {
    file_named(name.unwrap_or(LONG_TERM)).ok()
}

/// Returns the file for a name. Aliases and file names are both accepted, because models use both.
fn file_named(name: &str) -> Result<RootedPath, ToolError> {
    let refused = |error: RootError| memory_file_error(error, name);
    let given = RootedPath::parse(name).map_err(refused)?;
    let named = NAMED
        .iter()
        .find(|(alias, file)| [alias, file].iter().any(|known| known.eq_ignore_ascii_case(given.as_str())));
    if let Some((_, file)) = named {
        return RootedPath::parse(file).map_err(refused);
    }
    let topic = match given.as_str().strip_prefix(FOLDER) {
        Some(topic) => topic,
        None if given.is_root() || given.as_str().contains('/') => {
            return Err(ToolError::invalid_args(format!("`{given}` is not a memory file")).hint(
                "memory is `MEMORY.md`, `SOUL.md`, `USER.md`, a day like `2024-01-15`, or `memory/topic.md`; \
                 other files are for `workspace_read` and `workspace_write`",
            ));
        }
        None => given.as_str(),
    };
    let extension = if topic.ends_with(".md") { "" } else { ".md" };
    RootedPath::parse(&format!("{FOLDER}{topic}{extension}")).map_err(refused)
}

fn memory_file_error(error: RootError, name: &str) -> ToolError {
    error.into_tool_error("memory", name, "workspace_list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ToolsFixture;

    #[test]
    fn names_of_both_generations_are_understood() {
        for (name, file) in [
            ("MEMORY.md", "MEMORY.md"),
            ("memory.md", "MEMORY.md"),
            ("/workspace/MEMORY.md", "MEMORY.md"),
            ("long-term", "MEMORY.md"),
            ("soul", "SOUL.md"),
            ("user-profile", "USER.md"),
            ("USER.md", "USER.md"),
            ("2024-01-15", "memory/2024-01-15.md"),
            ("2024-01-15.md", "memory/2024-01-15.md"),
            ("memory/2024-01-15.md", "memory/2024-01-15.md"),
            ("memory/2024-01-15", "memory/2024-01-15.md"),
            ("topic", "memory/topic.md"),
            ("memory/people/ada.md", "memory/people/ada.md"),
        ] {
            assert_eq!(file_named(name).unwrap().as_str(), file, "{name}");
        }
        for name in ["notes/todo.md", "../MEMORY.md", "memory/../../x", "/etc/passwd", "", ".", "a\0b"] {
            assert!(file_named(name).is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn memory_is_written_added_to_and_read() {
        let hub = ToolsFixture::new();
        insta::assert_snapshot!(hub.check(&[
            r#"memory_read {}"#,
            r#"memory_write {"content": "one"}"#,
            r#"memory_write {"content": "two\n", "append": true}"#,
            r#"memory_write {"content": "three", "append": true}"#,
            r#"memory_read {"file": "long-term"}"#,
            r#"memory_write {"content": "rain", "file": "2024-01-15", "append": true}"#,
            r#"memory_read {"file": "memory/2024-01-15.md"}"#,
            r#"memory_write {"content": ""}"#,
            r#"memory_read {}"#,
        ]).await, @r#"
        > memory_read {}
        "MEMORY.md does not exist yet, so it is empty."
        > memory_write {"content": "one"}
        "Wrote 3 bytes to MEMORY.md"
        facts: {"file":"MEMORY.md","bytes":3,"appended":false}
        > memory_write {"content": "two\n", "append": true}
        "Appended 4 bytes to MEMORY.md"
        facts: {"file":"MEMORY.md","bytes":4,"appended":true}
        > memory_write {"content": "three", "append": true}
        "Appended 5 bytes to MEMORY.md"
        facts: {"file":"MEMORY.md","bytes":5,"appended":true}
        > memory_read {"file": "long-term"}
        "one\ntwo\nthree"
        > memory_write {"content": "rain", "file": "2024-01-15", "append": true}
        "Appended 4 bytes to memory/2024-01-15.md"
        facts: {"file":"memory/2024-01-15.md","bytes":4,"appended":true}
        > memory_read {"file": "memory/2024-01-15.md"}
        "rain"
        > memory_write {"content": ""}
        "Wrote 0 bytes to MEMORY.md"
        facts: {"file":"MEMORY.md","bytes":0,"appended":false}
        > memory_read {}
        "MEMORY.md is empty."
        "#);
    }

    #[tokio::test]
    async fn only_memory_is_reached() {
        let hub = ToolsFixture::new();
        insta::assert_snapshot!(hub.check(&[
            r#"memory_read {"file": "notes/todo.md"}"#,
            r#"memory_write {"file": "../secure/x.md", "content": "x"}"#,
            r#"memory_read {"file": "memory"}"#,
            r#"memory_read {"name": "x"}"#,
        ]).await, @r#"
        > memory_read {"file": "notes/todo.md"}
        invalid_args: `notes/todo.md` is not a memory file
        hint: memory is `MEMORY.md`, `SOUL.md`, `USER.md`, a day like `2024-01-15`, or `memory/topic.md`; other files are for `workspace_read` and `workspace_write`
        > memory_write {"file": "../secure/x.md", "content": "x"}
        denied: path `../secure/x.md` leads outside the folder of this tool
        hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
        > memory_read {"file": "memory"}
        "memory/memory.md does not exist yet, so it is empty."
        > memory_read {"name": "x"}
        invalid_args: invalid arguments: `name` does not fit the tool's schema
        hint: compare them with the description and the schema of the tool, in `tools/list`
        "#);
    }
}
